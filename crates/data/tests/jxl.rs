//! JPEG XL files of cjxl, beside what djxl makes of them (`jxl/README.md` says how they were made).
#![allow(clippy::unwrap_used)]

mod like;

use like::assert_like;
use velatura_data::decode::{Decoded, WHITE, decode};

fn file(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/jxl").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Over a grey, so that transparency shows.
fn open(name: &str) -> Decoded {
    decode(&file(name), [90, 90, 90]).unwrap_or_else(|error| panic!("{name}: {error:#}"))
}

#[test]
fn lossless_files_are_read_to_the_bit() {
    let pairs = [
        ("lossless.jxl", "rgb.png"),
        ("lossless_container.jxl", "rgb.png"),
        ("alpha.jxl", "rgba.png"),
        ("grey.jxl", "grey.png"),
        ("grey_alpha.jxl", "grey_alpha.png"),
        ("deep.jxl", "deep.png"),
    ];
    for (name, reference) in pairs {
        let found = open(name);
        assert!(found.warnings.is_empty(), "{name}: {:?}", found.warnings);
        assert_like(name, &found, &open(reference), 0, 0.0);
    }
}

#[test]
fn lossy_files_are_read_as_the_reference_decoder_reads_them() {
    for name in ["lossy", "alpha_lossy", "grey_lossy", "deep_lossy", "photo"] {
        assert_like(name, &open(&format!("{name}.jxl")), &open(&format!("{name}.png")), 1, 0.4);
    }
}

#[test]
fn colours_that_were_multiplied_by_their_transparency_are_divided_again() {
    let (found, plain) = (open("premultiplied.jxl"), open("rgba.png"));
    // Laid over a background, what was rounded when it was multiplied is at most a level away.
    assert_like("premultiplied", &found, &plain, 1, 0.5);
}

#[test]
fn the_header_turns_a_picture_upright() {
    let (found, stored) = (open("turned.jxl"), open("rgb.png"));
    let (width, height) = (stored.rgb.width as usize, stored.rgb.height as usize);
    assert_eq!((found.rgb.width as usize, found.rgb.height as usize), (height, width));
    for (x, y) in [(0, 0), (height - 1, 0), (0, width - 1), (height - 1, width - 1), (11, 29)] {
        // A quarter turn with the clock: what was at the left is at the top.
        let (there, here) = ((height - 1 - x) * width + y, y * height + x);
        assert_eq!(found.rgb.pixels[here * 3..][..3], stored.rgb.pixels[there * 3..][..3], "{x},{y}");
    }
}

#[test]
fn colours_of_another_space_come_to_srgb_by_name_and_by_profile() {
    for name in ["p3.jxl", "p3_lossy.jxl", "icc.jxl"] {
        let found = open(name);
        assert!(found.warnings.is_empty(), "{name}: {:?}", found.warnings);
        // Red of sRGB, as it is written in Display P3.
        let [r, g, b] = found.rgb.pixels[..3].try_into().unwrap();
        assert!(r >= 250 && g <= 5 && b <= 5, "{name}: {:?}", [r, g, b]);
    }
}

#[test]
fn the_first_frame_of_an_animation_is_used_with_a_warning() {
    let found = open("animated.jxl");
    assert_eq!(found.warnings, ["animated: only the first frame is used"]);
    assert_like("animated", &found, &open("rgb.png"), 0, 0.0);
}

#[test]
fn what_is_cut_short_or_in_high_dynamic_range_is_refused_in_words() {
    for name in ["lossless.jxl", "lossy.jxl", "lossless_container.jxl", "photo.jxl", "deep.jxl", "animated.jxl"] {
        let whole = file(name);
        for part in [3, 6, 9] {
            let length = if name == "animated.jxl" { whole.len() / 30 * part } else { whole.len() / 10 * part };
            let error = decode(&whole[..length], WHITE).unwrap_err().to_string();
            assert!(error.contains("cut short") || error.contains("damaged JPEG XL"), "{name}, {length} bytes: {error}");
        }
    }
    for (name, curve) in [("pq.jxl", "PQ"), ("hlg.jxl", "HLG")] {
        let error = decode(&file(name), WHITE).unwrap_err().to_string();
        assert!(error.contains("HDR") && error.contains(curve), "{name}: {error}");
    }
}
