//! AVIF files of avifenc, beside what avifdec makes of them (`../../data/tests/avif/README.md`), through the process that decodes them.
#![allow(clippy::unwrap_used)]

#[path = "../../data/tests/like/mod.rs"]
mod like;

use data::decode::{Decoded, decode};
use image::{DynamicImage, RgbImage};
use like::assert_like;
use std::path::{Path, PathBuf};
use std::process::Command;

const VELATURA: &str = env!("CARGO_BIN_EXE_velatura");

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests/avif").join(name)
}

fn file(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn try_open(bytes: &[u8]) -> anyhow::Result<Decoded> {
    data::av1::use_program(VELATURA.into());
    // Over a grey, so that transparency shows.
    decode(bytes, [90, 90, 90])
}

fn open(name: &str) -> Decoded {
    try_open(&file(name)).unwrap_or_else(|error| panic!("{name}: {error:#}"))
}

fn refusal(bytes: &[u8]) -> String {
    format!("{:#}", try_open(bytes).map(|decoded| (decoded.rgb.width, decoded.rgb.height)).unwrap_err())
}

#[test]
fn lossless_files_are_read_to_the_bit() {
    let found = open("lossless.avif");
    assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    assert_like("lossless", &found, &open("rgb.png"), 0, 0.0);
}

#[test]
fn every_sampling_depth_range_and_matrix_is_read_as_the_reference_decoder_reads_it() {
    let names = ["full_444", "full_420", "full_422", "limited_709", "odd_420", "ten_2020_matrix", "ten_420", "twelve", "grey"];
    for name in names {
        assert_like(name, &open(&format!("{name}.avif")), &open(&format!("{name}.png")), 1, 0.3);
    }
}

#[test]
fn transparency_is_read_and_colours_that_were_multiplied_by_it_are_divided() {
    for name in ["alpha", "grey_alpha"] {
        assert_like(name, &open(&format!("{name}.avif")), &open(&format!("{name}.png")), 1, 0.3);
    }
    assert_like("premultiplied", &open("premultiplied.avif"), &open("premultiplied.png"), 2, 0.5);
}

#[test]
fn a_grid_of_tiles_is_one_picture() {
    assert_like("grid", &open("grid.avif"), &open("grid.png"), 2, 0.5);
}

#[test]
fn turns_mirrors_and_crops_are_done_in_their_order() {
    let whole = open("rgb.png").rgb;
    let whole = DynamicImage::ImageRgb8(RgbImage::from_raw(whole.width, whole.height, whole.pixels).unwrap());
    // The middle of 48 × 40 is 24 × 20; the crop's is 4 to its right and 6 above it.
    let cropped = whole.crop_imm(24 + 4 - 10, 20 - 6 - 8, 20, 16);
    let expected = [
        // Turns are against the clock.
        ("turned.avif", whole.rotate270()),
        ("flipped.avif", whole.flipv()),
        ("mirrored.avif", whole.fliph()),
        ("cropped.avif", cropped.clone()),
        ("all_three.avif", cropped.rotate90().fliph()),
    ];
    for (name, expected) in expected {
        let (found, expected) = (open(name).rgb, expected.into_rgb8());
        assert_eq!((found.width, found.height), expected.dimensions(), "{name}");
        assert!(found.pixels == expected.into_raw(), "{name}");
    }
}

#[test]
fn colours_of_another_space_come_to_srgb_by_code_points_and_by_profile() {
    for name in ["p3.avif", "p3_icc.avif"] {
        let found = open(name);
        assert!(found.warnings.is_empty(), "{name}: {:?}", found.warnings);
        // Red of sRGB, as it is written in Display P3.
        let [r, g, b] = found.rgb.pixels[..3].try_into().unwrap();
        assert!(r >= 250 && g <= 5 && b <= 5, "{name}: {:?}", [r, g, b]);
    }
}

#[test]
fn the_first_frame_of_an_animation_is_used_with_a_warning() {
    let found = open("animated.avif");
    assert_eq!(found.warnings, ["animated: only the first frame is used"]);
    assert_like("animated", &found, &open("animated.png"), 1, 0.3);
}

#[test]
fn what_is_cut_short_damaged_or_in_high_dynamic_range_is_refused_in_words() {
    for name in ["lossless.avif", "full_420.avif", "alpha.avif", "grid.avif", "turned.avif"] {
        let whole = file(name);
        for part in 1..10 {
            let error = refusal(&whole[..whole.len() * part / 10]);
            assert!(error.contains("cut short"), "{name}, {part} tenths: {error}");
        }
    }
    for (name, curve) in [("pq.avif", "PQ"), ("hlg.avif", "HLG")] {
        let error = refusal(&file(name));
        assert!(error.contains("HDR") && error.contains(curve), "{name}: {error}");
    }
    let mut hollow = file("full_420.avif");
    let data = place(&hollow, b"mdat") + 4;
    hollow[data..].fill(0x5A);
    assert!(refusal(&hollow).contains("can't be decoded"), "{}", refusal(&hollow));
}

fn place(bytes: &[u8], name: &[u8]) -> usize {
    bytes.windows(name.len()).position(|window| window == name).unwrap()
}

/// The stream says 48 × 40. Whatever else the container says, no picture of another size comes out, and a huge one is not begun.
#[test]
fn a_size_that_is_not_the_streams_is_refused() {
    for (size, reason) in [([16, 16], "can't be decoded"), ([4096, 4096], "can't be decoded"), ([40_000, 40_000], "40000×40000")] {
        let mut bytes = file("lossless.avif");
        let at = place(&bytes, b"ispe") + 8;
        bytes[at..at + 8].copy_from_slice(&size.map(u32::to_be_bytes).concat());
        assert!(refusal(&bytes).contains(reason), "{size:?}: {}", refusal(&bytes));
    }
}

#[test]
fn files_under_a_general_brand_are_known_by_the_others_and_needs_that_are_unknown_are_named() {
    let mut general = file("lossless.avif");
    general[8..12].copy_from_slice(b"mif1");
    assert_like("mif1", &try_open(&general).unwrap(), &open("rgb.png"), 0, 0.0);
    let mut unknown = file("turned.avif");
    let at = place(&unknown, b"irot");
    unknown[at..at + 4].copy_from_slice(b"ixyz");
    assert!(refusal(&unknown).contains("ixyz"), "{}", refusal(&unknown));
    unknown[at..at + 4].copy_from_slice(b"\xFF\x1Bx ");
    assert!(refusal(&unknown).contains(r"\xff\x1bx"), "{}", refusal(&unknown));
    let mut other = file("lossless.avif");
    let at = place(&other, b"av01");
    other[at..at + 4].copy_from_slice(b"iovl");
    assert!(refusal(&other).contains("iovl"), "{}", refusal(&other));
}

/// The program starts itself: nobody has to tell it how.
#[test]
fn the_program_finds_avif_files_usable_and_cut_ones_not() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("whole.avif"), file("grid.avif")).unwrap();
    let cut = file("alpha.avif");
    std::fs::write(dir.path().join("cut.avif"), &cut[..cut.len() - 40]).unwrap();
    let output = Command::new(VELATURA).arg("doctor").arg(dir.path()).output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(text.contains("cut.avif: ") && text.contains("cut short") && !text.contains("whole.avif: "), "{text}");
}
