//! JPEG files that end before their picture does, however they end (`jpeg/README.md` says how the kept ones were made).
#![allow(clippy::unwrap_used)]

use image::codecs::jpeg::JpegEncoder;
use image::{DynamicImage, ExtendedColorType, GrayImage, ImageEncoder, ImageFormat, Luma, Rgb, RgbImage};
use std::io::Cursor;
use std::path::Path;
use velatura_data::decode::{WHITE, decode};
use velatura_data::scan::scan;

const END: [u8; 2] = [0xFF, 0xD9];

fn kept(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jpeg").join(name)).unwrap()
}

fn baseline() -> Vec<u8> {
    let image = RgbImage::from_fn(75, 51, |x, y| Rgb([(x * 37 + y * 91) as u8, (x * y) as u8, (x * 5) as u8]));
    let mut out = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(image).write_to(&mut out, ImageFormat::Jpeg).unwrap();
    out.into_inner()
}

/// Where the data of the first scan begin.
fn data(jpeg: &[u8]) -> usize {
    let scan = jpeg.windows(2).position(|pair| pair == [0xFF, 0xDA]).unwrap() + 2;
    scan + usize::from(jpeg[scan]) * 256 + usize::from(jpeg[scan + 1])
}

/// A grey picture whose rows of blocks begin anew each: what each row would be as a picture of its own, with markers between them.
fn with_restarts() -> Vec<u8> {
    let strip = |row: u32| {
        let grey = GrayImage::from_fn(64, 8, |x, y| Luma([(x * 29 + (y + row * 8) * 57) as u8]));
        let mut out = Vec::new();
        JpegEncoder::new_with_quality(&mut out, 90).write_image(&grey, 64, 8, ExtendedColorType::L8).unwrap();
        out
    };
    let strips: Vec<Vec<u8>> = (0..4).map(strip).collect();
    let mut out = strips[0][..strips[0].len() - 2].to_vec();
    let frame = out.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    out[frame + 6] = 32;
    for (row, strip) in strips.iter().enumerate().skip(1) {
        out.extend([0xFF, 0xD0 + row as u8 - 1]);
        out.extend(&strip[data(strip)..strip.len() - 2]);
    }
    out.extend(END);
    out.splice(frame..frame, [0xFF, 0xDD, 0, 4, 0, 8]);
    out
}

fn sound() -> [(&'static str, Vec<u8>); 4] {
    [
        ("baseline", baseline()),
        ("with restarts", with_restarts()),
        ("progressive", kept("progressive.jpg")),
        ("progressive with restarts", kept("restarts.jpg")),
    ]
}

#[track_caller]
fn assert_refused(name: &str, bytes: &[u8]) {
    let error = decode(bytes, WHITE).map(|_| ()).expect_err(name).to_string();
    assert!(error.contains("cut short") || error.contains("damaged JPEG"), "{name}: {error}");
}

#[test]
fn a_picture_that_is_cut_anywhere_and_ends_in_a_proper_mark_is_refused() {
    for (name, whole) in sound() {
        decode(&whole, WHITE).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        let (begin, end) = (data(&whole), whole.len() - 3);
        for at in begin..end {
            // Never between the two bytes of a mark.
            let at = if whole[at - 1] == 0xFF { at - 1 } else { at };
            assert_refused(&format!("{name}, cut at {at} of {}", whole.len()), &[&whole[..at], &END].concat());
        }
    }
}

#[test]
fn a_picture_whose_tail_is_zeros_is_refused() {
    for (name, whole) in sound() {
        let begin = data(&whole);
        for tenth in 1..10 {
            let mut zeroed = whole.clone();
            let (from, to) = (begin + (whole.len() - begin) * tenth / 10, whole.len() - 2);
            zeroed[from..to].fill(0);
            assert_refused(&format!("{name}, zeros from {from} of {}", whole.len()), &zeroed);
        }
    }
}

#[test]
fn what_stands_behind_a_whole_picture_does_not_matter() {
    for (name, whole) in sound() {
        let plain = decode(&whole, WHITE).unwrap().rgb;
        for behind in [&b"garbage"[..], &[0; 5000], &whole, &[0xFF, 0xD8, 0xFF]] {
            let found = decode(&[&whole, behind].concat(), WHITE).unwrap_or_else(|error| panic!("{name}: {error:#}")).rgb;
            assert!(found == plain, "{name}");
        }
        // Some cameras fill up before the mark.
        let padded = [&whole[..whole.len() - 2], &[0; 40], &END].concat();
        assert!(decode(&padded, WHITE).unwrap_or_else(|error| panic!("{name}, padded: {error:#}")).rgb == plain, "{name}");
    }
}

#[test]
fn the_scan_lists_a_picture_that_ends_early_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let whole = baseline();
    std::fs::write(dir.path().join("whole.jpg"), &whole).unwrap();
    std::fs::write(dir.path().join("half.jpg"), [&whole[..whole.len() / 2 + 300], &END].concat()).unwrap();
    let found = scan(dir.path(), true).unwrap();
    assert_eq!((found.pictures.len(), found.rejected.len()), (1, 1), "{found:?}");
    assert!(found.rejected[0].file == "half.jpg" && found.rejected[0].reason.contains("cut short"), "{:?}", found.rejected);
}

#[test]
fn a_whole_picture_that_lacks_only_its_end_mark_is_read() {
    for (name, whole) in sound() {
        let plain = decode(&whole, WHITE).unwrap().rgb;
        for missing in [1, 2] {
            let found = decode(&whole[..whole.len() - missing], WHITE).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert!(found.rgb == plain, "{name}");
        }
    }
}
