//! TIFF files of many kinds, written here field by field.
#![allow(clippy::unwrap_used)]

use moxcms::{ColorProfile, ToneReprCurve};
use velatura_data::decode::{Decoded, WHITE, decode};

#[derive(Clone)]
enum Value {
    Bytes(Vec<u8>),
    Short(Vec<u16>),
    Long(Vec<u32>),
}

use Value::{Bytes, Long, Short};

#[derive(Clone)]
struct Page {
    data: Vec<u8>,
    fields: Vec<(u16, Value)>,
}

const NEW_SUBFILE_TYPE: u16 = 254;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const COLOURS: u16 = 262;
const ORIENTATION: u16 = 274;
const SAMPLES: u16 = 277;
const ROWS_PER_STRIP: u16 = 278;
const PLANAR: u16 = 284;
const PALETTE: u16 = 320;
const EXTRA_SAMPLES: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;
const PROFILE: u16 = 34675;

const WHITE_IS_ZERO: u16 = 0;
const GREY: u16 = 1;
const RGB: u16 = 2;
const INDEXED: u16 = 3;
const CMYK: u16 = 5;
const YCBCR: u16 = 6;

const FLOAT: u16 = 3;

impl Page {
    /// A picture in one strip.
    fn new((width, height): (u32, u32), bits: u16, samples: u16, colours: u16, data: Vec<u8>) -> Page {
        let fields = vec![
            (256, Long(vec![width])),
            (257, Long(vec![height])),
            (BITS, Short(vec![bits; samples.into()])),
            (COMPRESSION, Short(vec![1])),
            (COLOURS, Short(vec![colours])),
            (SAMPLES, Short(vec![samples])),
            (ROWS_PER_STRIP, Long(vec![height])),
        ];
        Page { data, fields }
    }

    /// All pixels alike.
    fn flat(bits: u16, colours: u16, pixel: &[u8]) -> Page {
        let samples = pixel.len() * 8 / usize::from(bits);
        Page::new((8, 8), bits, samples as u16, colours, pixel.repeat(64))
    }

    fn with(mut self, tag: u16, value: Value) -> Page {
        self.fields.retain(|field| field.0 != tag);
        self.fields.push((tag, value));
        self
    }
}

/// Little-endian; with 64-bit offsets if it is big.
fn tiff(pages: &[Page], is_big: bool) -> Vec<u8> {
    let offset = |number: usize| if is_big { (number as u64).to_le_bytes().to_vec() } else { (number as u32).to_le_bytes().to_vec() };
    let wide = if is_big { 8 } else { 4 };
    let mut out = if is_big { b"II\x2B\0\x08\0\0\0".to_vec() } else { b"II\x2A\0".to_vec() };
    let mut link = out.len();
    out.extend(offset(0));
    for page in pages {
        let strip = out.len();
        out.extend(&page.data);
        let mut fields = page.fields.clone();
        if !fields.iter().any(|field| field.0 == 273) {
            fields.extend([(273, Long(vec![strip as u32])), (279, Long(vec![page.data.len() as u32]))]);
        }
        fields.sort_by_key(|field| field.0);
        let mut entries = Vec::new();
        for (tag, value) in fields {
            let (kind, count, bytes) = match value {
                Bytes(bytes) => (7u16, bytes.len(), bytes),
                Short(numbers) => (3, numbers.len(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect()),
                Long(numbers) => (4, numbers.len(), numbers.iter().flat_map(|n| n.to_le_bytes()).collect()),
            };
            entries.extend(tag.to_le_bytes());
            entries.extend(kind.to_le_bytes());
            entries.extend(offset(count));
            if bytes.len() > wide {
                entries.extend(offset(out.len()));
                out.extend(bytes);
            } else {
                entries.extend(bytes.iter().copied().chain(std::iter::repeat(0)).take(wide));
            }
        }
        let start = offset(out.len());
        out[link..link + wide].copy_from_slice(&start);
        let count = entries.len() / (4 + 2 * wide);
        out.extend(if is_big { (count as u64).to_le_bytes().to_vec() } else { (count as u16).to_le_bytes().to_vec() });
        out.extend(entries);
        link = out.len();
        out.extend(offset(0));
    }
    out
}

fn read(page: Page) -> Decoded {
    decode(&tiff(&[page], false), WHITE).unwrap()
}

fn refused(page: Page) -> String {
    decode(&tiff(&[page], false), WHITE).map(|_| ()).unwrap_err().to_string()
}

fn first(decoded: &Decoded) -> [u8; 3] {
    decoded.rgb.pixels[..3].try_into().unwrap()
}

#[track_caller]
fn assert_near(found: [u8; 3], expected: [u8; 3], most: u8) {
    assert!(found.iter().zip(expected).all(|(a, b)| a.abs_diff(b) <= most), "{found:?} is not {expected:?}");
}

/// Display P3 with its curves as tables of so many steps.
fn p3(steps: usize) -> Vec<u8> {
    let mut profile = ColorProfile::new_display_p3();
    let level = |i: usize| (((i as f64 / (steps - 1) as f64 + 0.055) / 1.055).powf(2.4) * 65535.0) as u16;
    let curve = ToneReprCurve::Lut((0..steps).map(level).collect());
    (profile.red_trc, profile.green_trc, profile.blue_trc) = (Some(curve.clone()), Some(curve.clone()), Some(curve));
    profile.encode().unwrap()
}

#[test]
fn profiles_of_any_size_are_obeyed() {
    for steps in [256, 900, 4096, 30000] {
        let profile = p3(steps);
        let decoded = read(Page::flat(8, RGB, &[234, 51, 35]).with(PROFILE, Bytes(profile.clone())));
        assert!(decoded.warnings.is_empty(), "{:?}", decoded.warnings);
        assert_near(first(&decoded), [255, 0, 0], 6);
    }
}

#[test]
fn a_profile_that_is_not_there_or_too_large_gives_a_warning() {
    let mut cut = tiff(&[Page::flat(8, RGB, &[234, 51, 35]).with(PROFILE, Bytes(p3(900)))], false);
    let field = cut.windows(4).rposition(|four| four == [0x73, 0x87, 7, 0]).unwrap();
    for (at, number) in [(8, u32::MAX - 8), (4, 1 << 30)] {
        let whole = cut.clone();
        cut[field + at..field + at + 4].copy_from_slice(&number.to_le_bytes());
        let decoded = decode(&cut, WHITE).unwrap();
        assert!(decoded.warnings[0].contains("colour profile is not used"), "{:?}", decoded.warnings);
        assert_eq!(first(&decoded), [234, 51, 35]);
        cut = whole;
    }
}

#[test]
fn colours_that_are_multiplied_by_their_alpha_are_divided_by_it() {
    for (kind, shown) in [(1, 255), (2, 191)] {
        let rgb = read(Page::flat(8, RGB, &[128; 4]).with(EXTRA_SAMPLES, Short(vec![kind])));
        assert_eq!((first(&rgb), rgb.alpha.as_deref().map(|alpha| alpha[0])), ([shown; 3], Some(128)));
        let deep = read(Page::flat(16, RGB, &[128; 8]).with(EXTRA_SAMPLES, Short(vec![kind])));
        assert_eq!(first(&deep), [shown; 3]);
        let grey = read(Page::flat(8, GREY, &[128; 2]).with(EXTRA_SAMPLES, Short(vec![kind])));
        assert_eq!((first(&grey), grey.alpha.as_deref().map(|alpha| alpha[0])), ([shown; 3], Some(128)));
    }
}

#[test]
fn whole_numbers_of_any_width_are_scaled() {
    for shade in [0u8, 7, 128, 255] {
        assert_eq!(first(&read(Page::flat(32, RGB, &[shade; 12]))), [shade; 3]);
        assert_eq!(first(&read(Page::flat(32, GREY, &[shade; 4]))), [shade; 3]);
        assert_eq!(first(&read(Page::flat(64, RGB, &[shade; 24]))), [shade; 3]);
        assert_eq!(first(&read(Page::flat(16, WHITE_IS_ZERO, &[shade; 2]))), [255 - shade; 3]);
        assert_eq!(first(&read(Page::new((8, 8), 4, 1, GREY, vec![shade & 0xF0 | shade >> 4; 32]))), [(shade >> 4) * 17; 3]);
    }
    let signed = refused(Page::flat(16, RGB, &[1; 6]).with(SAMPLE_FORMAT, Short(vec![2; 3])));
    assert!(signed.contains("signed") && signed.contains("convert it to PNG"), "{signed}");
}

#[test]
fn floats_beyond_white_are_refused_with_their_range() {
    let page =
        |value: f32| Page::flat(32, RGB, &[0.5, value, 0.25].map(f32::to_le_bytes).concat()).with(SAMPLE_FORMAT, Short(vec![FLOAT; 3]));
    assert_eq!(first(&read(page(1.0))), [128, 255, 64]);
    let doubles: Vec<u8> = [0.5f64, 1.0, 0.25].map(f64::to_le_bytes).concat();
    assert_eq!(first(&read(Page::flat(64, RGB, &doubles).with(SAMPLE_FORMAT, Short(vec![FLOAT; 3])))), [128, 255, 64]);
    for (value, told) in [(255.0, "255"), (-2.0, "-2"), (f32::NAN, "NaN"), (f32::INFINITY, "inf")] {
        let error = refused(page(value));
        assert!(error.contains(told) && error.contains("0 to 1"), "{error}");
    }
}

#[test]
fn palettes_are_looked_up() {
    // Red, green and blue of entries 0 to 3, at 16 bits.
    let palette = Short([[255, 0, 10, 1], [0, 255, 20, 2], [0, 0, 30, 3]].concat().iter().map(|v| v * 257).collect());
    let page = |bits, data| Page::new((4, 1), bits, 1, INDEXED, data);
    let expected = [255, 0, 0, 0, 255, 0, 10, 20, 30, 1, 2, 3];
    assert_eq!(read(page(2, vec![0b0001_1011]).with(PALETTE, palette)).rgb.pixels, expected);
    let long = |c: usize| (0..256).map(move |i| if i < 4 { u16::from(expected[3 * i + c]) * 257 } else { 0 });
    let palette = Short((0..3).flat_map(long).collect());
    for is_big in [false, true] {
        let bytes = tiff(&[page(8, vec![0, 1, 2, 3]).with(PALETTE, palette.clone())], is_big);
        assert_eq!(decode(&bytes, WHITE).unwrap().rgb.pixels, expected);
    }
    let error = refused(page(8, vec![0, 1, 2, 3]).with(PALETTE, Short(vec![0; 9])));
    assert!(error.contains("damaged TIFF") && error.contains("palette"), "{error}");
}

#[test]
fn planes_inks_and_big_files_are_read() {
    let planes = Page::new((2, 1), 8, 3, RGB, vec![1, 2, 3, 4, 5, 6])
        .with(PLANAR, Short(vec![2]))
        .with(273, Long(vec![8, 10, 12]))
        .with(279, Long(vec![2; 3]));
    assert_eq!(read(planes).rgb.pixels, [1, 3, 5, 2, 4, 6]);
    assert_near(first(&read(Page::flat(8, CMYK, &[0, 127, 255, 0]))), [255, 128, 0], 1);
    assert_near(first(&read(Page::flat(16, CMYK, &[255, 255, 0, 0, 0, 0, 255, 127]))), [0, 128, 128], 1);
    let big = tiff(&[Page::flat(8, RGB, &[9, 8, 7])], true);
    assert_eq!(first(&decode(&big, WHITE).unwrap()), [9, 8, 7]);
}

/// A JPEG in a strip: as it stands, in luma and differences.
#[test]
fn jpeg_strips_are_read_and_must_be_whole() {
    let image = image::RgbImage::from_fn(64, 64, |x, y| image::Rgb([200, (x * 3) as u8, (y * 3) as u8]));
    let mut jpeg = Vec::new();
    image::codecs::jpeg::JpegEncoder::new_with_quality(&mut jpeg, 95).encode_image(&image).unwrap();
    let page = |data: &[u8]| Page::new((64, 64), 8, 3, YCBCR, data.to_vec()).with(COMPRESSION, Short(vec![7]));
    let decoded = read(page(&jpeg));
    for (found, expected) in decoded.rgb.pixels.chunks(3).zip(image.pixels()) {
        assert_near(found.try_into().unwrap(), expected.0, 12);
    }
    let cut = [&jpeg[..jpeg.len() / 2], &[0xFF, 0xD9]].concat();
    assert!(refused(page(&cut)).contains("cut short"));
    // It says that it is larger than its strip.
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    let mut huge = jpeg.clone();
    huge[frame + 5..frame + 9].fill(0xF0);
    assert!(refused(page(&huge)).contains("damaged TIFF"));
}

#[test]
fn a_reduced_page_in_front_is_passed_over() {
    let (small, large) = (Page::flat(8, RGB, &[1, 1, 1]), Page::new((16, 16), 8, 3, RGB, [9, 8, 7].repeat(256)));
    let small = small.with(NEW_SUBFILE_TYPE, Long(vec![1]));
    let decoded = decode(&tiff(&[small.clone(), large.clone()], false), WHITE).unwrap();
    assert_eq!((decoded.rgb.width, first(&decoded)), (16, [9, 8, 7]));
    assert!(decoded.warnings.is_empty(), "{:?}", decoded.warnings);
    let decoded = decode(&tiff(&[large.clone(), small.clone(), large], true), WHITE).unwrap();
    assert!(decoded.rgb.width == 16 && decoded.warnings[0].contains("several pages"), "{:?}", decoded.warnings);
    assert_eq!(decode(&tiff(&[small], false), WHITE).unwrap().rgb.width, 8);
    // A chain of pages that ends in itself.
    let mut circle = tiff(&[Page::flat(8, RGB, &[9, 8, 7])], false);
    let (start, end) = (circle[4..8].to_vec(), circle.len());
    circle[end - 4..].copy_from_slice(&start);
    assert_eq!(first(&decode(&circle, WHITE).unwrap()), [9, 8, 7]);
}

#[test]
fn orientation_may_be_written_in_two_or_four_bytes() {
    for value in [Short(vec![6]), Long(vec![6])] {
        let decoded = read(Page::new((2, 1), 8, 1, GREY, vec![10, 20]).with(ORIENTATION, value));
        assert_eq!((decoded.rgb.width, decoded.rgb.height, decoded.rgb.pixels[0]), (1, 2, 10));
    }
}

#[test]
fn kinds_that_can_not_be_read_are_named_in_few_words() {
    let rgb = || Page::flat(8, RGB, &[1, 2, 3]);
    for (page, told) in [
        (rgb().with(COLOURS, Short(vec![8])), "Lab"),
        (rgb().with(COLOURS, Short(vec![32803])), "camera"),
        (rgb().with(COMPRESSION, Short(vec![50000])), "Zstandard"),
        (rgb().with(COMPRESSION, Short(vec![34925])), "LZMA"),
        (rgb().with(COMPRESSION, Short(vec![7777])), "7777"),
        (Page::flat(8, GREY, &[1; 5]), "5 channels"),
        (Page::new((8, 8), 12, 1, GREY, vec![0; 96]), "12 bits"),
        (rgb().with(SAMPLES, Short(vec![60000])).with(BITS, Short(vec![8; 60000])), "60000 channels"),
    ] {
        let error = refused(page);
        assert!(error.contains(told) && error.contains("can't be read here") && error.contains("convert it to PNG"), "{error}");
        assert!(error.len() < 400 && !error.contains("Unknown"), "{error}");
    }
}
