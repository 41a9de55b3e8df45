//! Colour profiles and inks: what a picture shows must not depend on how its file writes colours down.
#![allow(clippy::unwrap_used)]

use image::codecs::{jpeg::JpegEncoder, png::PngEncoder};
use image::{ExtendedColorType, ImageBuffer, ImageEncoder, Luma, Rgb as Px, RgbImage};
use moxcms::{ColorProfile, DataColorSpace, LutDataType, LutStore, LutType, LutWarehouse, Matrix3d, ProfileClass};
use velatura_data::decode::{Decoded, WHITE, decode};

fn first(decoded: &Decoded) -> [u8; 3] {
    decoded.rgb.pixels[..3].try_into().unwrap()
}

#[track_caller]
fn assert_near(found: [u8; 3], expected: [u8; 3], most: u8) {
    assert!(found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= most), "{found:?} is not {expected:?}");
}

fn png(colour: [u8; 3], profile: Option<&[u8]>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = PngEncoder::new(&mut out);
    profile.into_iter().for_each(|icc| encoder.set_icc_profile(icc.to_vec()).unwrap());
    encoder.write_image(&RgbImage::from_pixel(16, 16, Px(colour)), 16, 16, ExtendedColorType::Rgb8).unwrap();
    out
}

fn jpeg(colour: [u8; 3], profile: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut encoder = JpegEncoder::new_with_quality(&mut out, 100);
    encoder.set_icc_profile(profile.to_vec()).unwrap();
    encoder.write_image(&RgbImage::from_pixel(16, 16, Px(colour)), 16, 16, ExtendedColorType::Rgb8).unwrap();
    out
}

/// sRGB's red and green as they are written in Display P3 and Adobe RGB: published values, not computed here.
#[test]
fn wide_gamut_pictures_with_their_profile_show_the_same_colours_as_srgb_ones() {
    let (p3, adobe) = (ColorProfile::new_display_p3().encode().unwrap(), ColorProfile::new_adobe_rgb().encode().unwrap());
    let rows = [
        (&p3, [234, 51, 35], [255, 0, 0]),
        (&p3, [117, 251, 76], [0, 255, 0]),
        (&adobe, [219, 0, 0], [255, 0, 0]),
        (&adobe, [144, 255, 60], [0, 255, 0]),
        (&p3, [128, 128, 128], [128, 128, 128]),
    ];
    for (profile, written, shown) in rows {
        for bytes in [png(written, Some(profile)), jpeg(written, profile)] {
            let decoded = decode(&bytes, WHITE).unwrap();
            assert!(decoded.warnings.is_empty(), "{:?}", decoded.warnings);
            assert_near(first(&decoded), shown, 6);
        }
    }
}

#[test]
fn sixteen_bit_pictures_go_through_their_profile_in_sixteen_bits() {
    let mut out = Vec::new();
    let mut encoder = PngEncoder::new(&mut out);
    encoder.set_icc_profile(ColorProfile::new_display_p3().encode().unwrap()).unwrap();
    let image = ImageBuffer::<Px<u16>, _>::from_pixel(8, 8, Px([234, 51, 35].map(|v| v * 257)));
    let bytes: Vec<u8> = image.into_raw().into_iter().flat_map(u16::to_ne_bytes).collect();
    encoder.write_image(&bytes, 8, 8, ExtendedColorType::Rgb16).unwrap();
    assert_near(first(&decode(&out, WHITE).unwrap()), [255, 0, 0], 6);
}

#[test]
fn a_grey_profile_is_obeyed() {
    let mut out = Vec::new();
    let mut encoder = PngEncoder::new(&mut out);
    encoder.set_icc_profile(ColorProfile::new_gray_with_gamma(1.0).encode().unwrap()).unwrap();
    let image = ImageBuffer::<Luma<u8>, _>::from_pixel(8, 8, Luma([128]));
    encoder.write_image(&image, 8, 8, ExtendedColorType::L8).unwrap();
    // Half of the light is level 188 of sRGB.
    assert_near(first(&decode(&out, WHITE).unwrap()), [188; 3], 1);
}

#[test]
fn a_profile_that_is_srgb_changes_no_value() {
    let profile = ColorProfile::new_srgb().encode().unwrap();
    for colour in [[1, 2, 3], [200, 100, 7], [254, 255, 0]] {
        assert_eq!(first(&decode(&png(colour, Some(&profile)), WHITE).unwrap()), colour);
    }
}

#[test]
fn a_profile_that_can_not_be_used_gives_a_warning_and_the_raw_pixels() {
    let grey = ColorProfile::new_gray_with_gamma(2.2).encode().unwrap();
    let p3 = ColorProfile::new_display_p3().encode().unwrap();
    for profile in [b"garbage".as_slice(), &grey, &p3[..p3.len() / 3]] {
        let decoded = decode(&png([10, 200, 30], Some(profile)), WHITE).unwrap();
        assert_eq!(first(&decoded), [10, 200, 30]);
        assert!(decoded.warnings[0].contains("colour profile"), "{:?}", decoded.warnings);
    }
    // A chunk that isn't even compressed data, with a wrong sum: the decoder drops it, and the owner is still told.
    let mut bytes = png([10, 200, 30], None);
    bytes.splice(33..33, [b"\0\0\0\x0biCCPname\0\0rubb".as_slice(), &[1, 2, 3, 4, 5]].concat());
    let decoded = decode(&bytes, WHITE).unwrap();
    assert_eq!(first(&decoded), [10, 200, 30]);
    assert!(decoded.warnings[0].contains("colour profile"), "{:?}", decoded.warnings);
}

/// A baseline JPEG of one 8×8 block in four components, each flat: as stored, that is with inverted inks.
fn flat_jpeg(stored: [u8; 4], transform: u8, profile: Option<&[u8]>) -> Vec<u8> {
    let mut out = vec![0xFF, 0xD8];
    let mut segment = |marker: u8, content: &[u8]| {
        out.extend([0xFF, marker]);
        out.extend((content.len() as u16 + 2).to_be_bytes());
        out.extend(content);
    };
    segment(0xEE, &[b"Adobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat());
    profile.into_iter().for_each(|icc| segment(0xE2, &[b"ICC_PROFILE\0\x01\x01".as_slice(), icc].concat()));
    // All steps 8: the first coefficient is 8 × (value − 128), so it is stored as the difference itself.
    segment(0xDB, &[[0].as_slice(), &[8; 64]].concat());
    segment(0xC0, &[8, 0, 8, 0, 8, 4, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0]);
    // First coefficients: 9 categories, each with a code of four bits. Others: only "end of block", one bit.
    let counts = |at: usize, n: u8| (1..=16).map(|i| if i == at { n } else { 0 }).collect::<Vec<u8>>();
    segment(0xC4, &[[0].as_slice(), &counts(4, 9), &(0..9).collect::<Vec<u8>>()].concat());
    segment(0xC4, &[[0x10].as_slice(), &counts(1, 1), &[0]].concat());
    segment(0xDA, &[4, 1, 0, 2, 0, 3, 0, 4, 0, 0, 63, 0]);
    let mut bits = String::new();
    for value in stored {
        let difference = i32::from(value) - 128;
        let category = 32 - difference.unsigned_abs().leading_zeros();
        let code = if difference < 0 { difference + (1 << category) - 1 } else { difference };
        bits += &format!("{category:04b}");
        if category > 0 {
            bits += &format!("{code:0width$b}", width = category as usize);
        }
        bits.push('0');
    }
    while !bits.len().is_multiple_of(8) {
        bits.push('1');
    }
    for byte in bits.as_bytes().chunks(8) {
        let value = u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 2).unwrap();
        out.push(value);
        if value == 0xFF {
            out.push(0);
        }
    }
    out.extend([0xFF, 0xD9]);
    out
}

const CMYK: u8 = 0;
const YCCK: u8 = 2;

#[test]
fn cmyk_and_ycck_jpegs_come_out_in_their_colours() {
    // Full yellow, half magenta, no black.
    assert_near(first(&decode(&flat_jpeg([255, 128, 0, 255], CMYK, None), WHITE).unwrap()), [255, 128, 0], 2);
    // Grey of black ink only.
    assert_near(first(&decode(&flat_jpeg([255, 255, 255, 100], CMYK, None), WHITE).unwrap()), [100; 3], 2);
    // YCCK: the inverse of light [255, 0, 0], that is [0, 255, 255], in JFIF's equations.
    assert_near(first(&decode(&flat_jpeg([179, 171, 0, 255], YCCK, None), WHITE).unwrap()), [255, 0, 0], 3);
}

/// Cyan prints as middle grey, black as black, paper is white: no real press, so that only the profile can lead to it.
fn press() -> Vec<u8> {
    let lightness = |c: usize, k: usize| {
        if k == 1 {
            0.0
        } else if c == 1 {
            50.0
        } else {
            100.0
        }
    };
    let lab = |l: f64| [(l / 100.0 * 65280.0) as u16, 32768, 32768];
    // The last ink changes fastest.
    let grid: Vec<u16> = (0..16).flat_map(|i: usize| lab(lightness(i >> 3 & 1, i & 1))).collect();
    let straight = |channels: usize| LutStore::Store16((0..channels).flat_map(|_| [0, 65535]).collect());
    let lut = || {
        LutWarehouse::Lut(LutDataType {
            num_input_channels: 4,
            num_output_channels: 3,
            num_clut_grid_points: 2,
            matrix: Matrix3d { v: [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]] },
            num_input_table_entries: 2,
            num_output_table_entries: 2,
            input_table: straight(4),
            clut_table: LutStore::Store16(grid.clone()),
            output_table: straight(3),
            lut_type: LutType::Lut16,
        })
    };
    let mut profile = ColorProfile::default();
    (profile.pcs, profile.color_space, profile.profile_class) = (DataColorSpace::Lab, DataColorSpace::Cmyk, ProfileClass::OutputDevice);
    profile.white_point = ColorProfile::new_srgb().white_point;
    (profile.lut_a_to_b_perceptual, profile.lut_a_to_b_colorimetric) = (Some(lut()), Some(lut()));
    profile.encode().unwrap()
}

#[test]
fn cmyk_jpegs_with_a_profile_are_converted_by_it() {
    let press = press();
    for (stored, transform, shown) in [
        ([255, 255, 255, 255], CMYK, [255; 3]),
        ([0, 255, 255, 255], CMYK, [119; 3]),
        ([255, 255, 255, 0], CMYK, [0; 3]),
        // YCCK of full cyan ink: inverted inks [0, 255, 255] are light [255, 0, 0] in JFIF's equations.
        ([76, 85, 255, 255], YCCK, [119; 3]),
    ] {
        let decoded = decode(&flat_jpeg(stored, transform, Some(&press)), WHITE).unwrap();
        assert!(decoded.warnings.is_empty(), "{:?}", decoded.warnings);
        assert_near(first(&decoded), shown, 4);
    }
    let decoded = decode(&flat_jpeg([0, 255, 255, 255], CMYK, Some(&press[..200])), WHITE).unwrap();
    assert!(decoded.warnings[0].contains("colour profile"));
    assert_near(first(&decoded), [0, 255, 255], 2);
}

/// A TIFF of one pixel in inks, with a profile that has as many bytes as those of real presses.
fn ink_tiff(inks: [u16; 4], bits: u16, profile: &[u8]) -> Vec<u8> {
    let mut out = b"II\x2A\0\x08\0\0\0".to_vec();
    let fields = [256u16, 257, 258, 259, 262, 273, 277, 278, 279, 34675];
    let behind = 8 + 2 + 12 * fields.len() as u32 + 4;
    out.extend((fields.len() as u16).to_le_bytes());
    for tag in fields {
        let (kind, count, value): (u16, u32, u32) = match tag {
            258 => (3, 4, behind + 8),
            262 => (3, 1, 5),
            273 => (4, 1, behind),
            277 => (3, 1, 4),
            279 => (4, 1, u32::from(bits / 2)),
            34675 => (7, profile.len() as u32, behind + 16),
            _ => (3, 1, 1),
        };
        out.extend([tag.to_le_bytes(), kind.to_le_bytes()].concat());
        out.extend([count.to_le_bytes(), value.to_le_bytes()].concat());
    }
    out.extend([0; 4]);
    let narrow = |ink: u16| if bits == 8 { vec![(ink >> 8) as u8] } else { ink.to_le_bytes().to_vec() };
    out.extend(inks.into_iter().flat_map(narrow));
    out.resize(behind as usize + 8, 0);
    out.extend([bits; 4].map(u16::to_le_bytes).concat());
    out.extend(profile);
    out
}

#[test]
fn cmyk_tiffs_with_a_profile_are_converted_by_it() {
    let mut press = press();
    press.resize(600_000, 0);
    let size = (press.len() as u32).to_be_bytes();
    press[..4].copy_from_slice(&size);
    for (inks, shown) in [([0; 4], [255; 3]), ([65535, 0, 0, 0], [119; 3]), ([0, 0, 0, 65535], [0; 3])] {
        for bits in [8, 16] {
            let decoded = decode(&ink_tiff(inks, bits, &press), WHITE).unwrap();
            assert!(decoded.warnings.is_empty(), "{:?}", decoded.warnings);
            assert_near(first(&decoded), shown, 4);
        }
    }
    // One for other pictures is not used.
    let decoded = decode(&ink_tiff([65535, 0, 0, 0], 8, &ColorProfile::new_srgb().encode().unwrap()), WHITE).unwrap();
    assert!(decoded.warnings[0].contains("colour profile is not used"), "{:?}", decoded.warnings);
    assert_near(first(&decoded), [0, 255, 255], 1);
}

/// A picture of one colour with chunks in front of its pixels.
fn png_with(colour: [u8; 3], chunks: &[(&[u8; 4], Vec<u8>)]) -> Vec<u8> {
    let mut bytes = png(colour, None);
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0u32, |crc, b| (0..8).fold(crc ^ u32::from(*b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xEDB8_8320 } else { c >> 1 }))
    };
    for (kind, content) in chunks {
        let body = [kind.as_slice(), content].concat();
        let chunk = [(content.len() as u32).to_be_bytes().as_slice(), &body, &crc(&body).to_be_bytes()].concat();
        bytes.splice(33..33, chunk);
    }
    bytes
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

#[test]
fn code_points_of_a_png_are_obeyed_before_all_else_it_says() {
    let grey = ColorProfile::new_gray_with_gamma(1.0).encode().unwrap();
    let p3 = decode(&png_with([234, 51, 35], &[(b"cICP", vec![12, 13, 0, 1]), (b"gAMA", numbers(&[100_000]))]), WHITE).unwrap();
    assert!(p3.warnings.is_empty(), "{:?}", p3.warnings);
    assert_near(first(&p3), [255, 0, 0], 6);
    let mut both = png([10, 200, 30], Some(&grey));
    let plain = png_with([10, 200, 30], &[(b"cICP", vec![1, 13, 0, 1])]);
    both.splice(33..33, plain[33..49].iter().copied());
    for bytes in [both, plain] {
        let decoded = decode(&bytes, WHITE).unwrap();
        assert_eq!((first(&decoded), decoded.warnings.len()), ([10, 200, 30], 0), "{:?}", decoded.warnings);
    }
    for (transfer, name) in [(16, "PQ"), (18, "HLG")] {
        let error = decode(&png_with([9; 3], &[(b"cICP", vec![9, transfer, 0, 1])]), WHITE).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains("HDR"), "{error}");
    }
    for points in [vec![77, 13, 0, 1], vec![9, 99, 0, 1]] {
        let decoded = decode(&png_with([10, 200, 30], &[(b"cICP", points)]), WHITE).unwrap();
        assert_eq!(first(&decoded), [10, 200, 30]);
        assert!(decoded.warnings[0].contains("cICP"), "{:?}", decoded.warnings);
    }
}

#[test]
fn gamma_and_primaries_of_a_png_are_obeyed_where_nothing_else_is_said() {
    const SRGB: [u32; 8] = [31270, 32900, 64000, 33000, 30000, 60000, 15000, 6000];
    const P3: [u32; 8] = [31270, 32900, 68000, 32000, 26500, 69000, 15000, 6000];
    let shown = |colour, chunks: &[(&[u8; 4], Vec<u8>)]| {
        let decoded = decode(&png_with(colour, chunks), WHITE).unwrap();
        assert!(decoded.warnings.is_empty(), "{:?}", decoded.warnings);
        first(&decoded)
    };
    // Half of the light is level 188 of sRGB.
    assert_near(shown([128; 3], &[(b"gAMA", numbers(&[100_000]))]), [188; 3], 1);
    assert_near(shown([234, 51, 35], &[(b"cHRM", numbers(&P3))]), [255, 0, 0], 6);
    assert_near(shown([234, 51, 35], &[(b"cHRM", numbers(&P3)), (b"gAMA", numbers(&[45455]))]), [255, 0, 0], 6);
    // What programs write who mean sRGB.
    assert_eq!(shown([3, 20, 130], &[(b"cHRM", numbers(&SRGB)), (b"gAMA", numbers(&[45455]))]), [3, 20, 130]);
    assert_eq!(shown([3, 20, 130], &[(b"sRGB", vec![0]), (b"gAMA", numbers(&[100_000]))]), [3, 20, 130]);
    for chunks in [(b"gAMA", numbers(&[0])), (b"cHRM", numbers(&[0; 8])), (b"cHRM", numbers(&[1]))] {
        let decoded = decode(&png_with([3, 20, 130], &[chunks]), WHITE).unwrap();
        assert_eq!(first(&decoded), [3, 20, 130]);
        assert!(decoded.warnings[0].contains("not used"), "{:?}", decoded.warnings);
    }
    // Grey pictures have no primaries.
    let mut grey = Vec::new();
    PngEncoder::new(&mut grey).write_image(&[128; 64], 8, 8, ExtendedColorType::L8).unwrap();
    let linear = png_with([0; 3], &[(b"gAMA", numbers(&[100_000]))]);
    grey.splice(33..33, linear[33..49].iter().copied());
    assert_near(first(&decode(&grey, WHITE).unwrap()), [188; 3], 1);
}

#[test]
fn a_picture_that_shows_nothing_gives_a_warning() {
    let warned = |alpha: [u8; 2]| {
        let mut out = Vec::new();
        let pixels: Vec<u8> = alpha.into_iter().flat_map(|alpha| [9, 9, 9, alpha]).collect();
        PngEncoder::new(&mut out).write_image(&pixels, 2, 1, ExtendedColorType::Rgba8).unwrap();
        decode(&out, WHITE).unwrap().warnings.join("; ")
    };
    assert!(warned([0, 0]).contains("transparent"));
    assert_eq!(warned([0, 1]), "");
}
