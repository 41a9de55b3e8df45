//! Whole folders of pictures, good and bad, made here.

// The lint's exception for tests covers test functions, not the helpers beside them.
#![allow(clippy::unwrap_used)]

use image::codecs::{gif::GifEncoder, jpeg::JpegEncoder, png::PngEncoder};
use image::{
    DynamicImage, ExtendedColorType, Frame, ImageBuffer, ImageEncoder, ImageFormat, Luma, LumaA, Rgb as Px, RgbImage, Rgba, RgbaImage,
};
use std::io::Cursor;
use std::path::Path;
use velatura_data::bucket::{Bucket, Scheme};
use velatura_data::dataset::{Dataset, DatasetOptions, OnBadImage};
use velatura_data::decode::{Decoded, Rgb, WHITE};
use velatura_data::pixels::{to_bucket, to_f32};
use velatura_data::scan::scan;

fn decode(bytes: &[u8]) -> anyhow::Result<Decoded> {
    velatura_data::decode::decode(bytes, WHITE)
}

fn encode(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).unwrap();
    out.into_inner()
}

/// Red, green, blue and yellow quarters, from the top left in reading order.
fn quarters(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| match (x < width / 2, y < height / 2) {
        (true, true) => Px([255, 0, 0]),
        (false, true) => Px([0, 255, 0]),
        (true, false) => Px([0, 0, 255]),
        (false, false) => Px([255, 255, 0]),
    })
}

/// An EXIF block whose only field is the orientation.
fn exif(orientation: u8) -> Vec<u8> {
    let mut exif = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([orientation, 0, 0, 0, 0, 0, 0, 0]);
    exif
}

/// A WebP file in the extended layout, with an EXIF chunk behind the picture.
fn webp_with_exif(image: &RgbImage, orientation: u8) -> Vec<u8> {
    let simple = encode(&DynamicImage::ImageRgb8(image.clone()), ImageFormat::WebP);
    let chunk = |name: &[u8; 4], content: &[u8]| {
        let mut out = [name.as_slice(), (content.len() as u32).to_le_bytes().as_slice(), content].concat();
        out.resize(out.len().next_multiple_of(2), 0);
        out
    };
    const HAS_EXIF: u8 = 8;
    let size = |side: u32| (side - 1).to_le_bytes()[..3].to_vec();
    let canvas = [[HAS_EXIF, 0, 0, 0].as_slice(), &size(image.width()), &size(image.height())].concat();
    let body = [b"WEBP".as_slice(), &chunk(b"VP8X", &canvas), &simple[12..], &chunk(b"EXIF", &exif(orientation))].concat();
    [b"RIFF".as_slice(), &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// A PNG file whose EXIF chunk stands behind the pixels, as some tools put it.
fn png_with_late_exif(image: &RgbImage, orientation: u8) -> Vec<u8> {
    let mut out = encode(&DynamicImage::ImageRgb8(image.clone()), ImageFormat::Png);
    let end = out.split_off(out.len() - 12);
    let body = [b"eXIf".as_slice(), &exif(orientation)].concat();
    out.extend((body.len() as u32 - 4).to_be_bytes());
    out.extend(&body);
    out.extend(crc32(&body).to_be_bytes());
    out.extend(end);
    out
}

fn with_exif(image: &RgbImage, orientation: u8, format: ImageFormat) -> Vec<u8> {
    let mut out = Vec::new();
    let (w, h) = image.dimensions();
    if format == ImageFormat::Jpeg {
        let mut encoder = JpegEncoder::new_with_quality(&mut out, 98);
        encoder.set_exif_metadata(exif(orientation)).unwrap();
        encoder.write_image(image, w, h, ExtendedColorType::Rgb8).unwrap();
    } else {
        let mut encoder = PngEncoder::new(&mut out);
        encoder.set_exif_metadata(exif(orientation)).unwrap();
        encoder.write_image(image, w, h, ExtendedColorType::Rgb8).unwrap();
    }
    out
}

fn at(rgb: &Rgb, x: u32, y: u32) -> [u8; 3] {
    let i = ((y * rgb.width + x) * 3) as usize;
    [rgb.pixels[i], rgb.pixels[i + 1], rgb.pixels[i + 2]]
}

fn near(a: [u8; 3], b: [u8; 3]) -> bool {
    a.iter().zip(b).all(|(a, b)| a.abs_diff(b) <= 12)
}

fn options(folder: &Path) -> DatasetOptions {
    DatasetOptions::new(folder, 64, 8)
}

#[test]
fn sixteen_bit_ramps_are_scaled_to_eight_bits_in_three_equal_channels() {
    let grey = ImageBuffer::<Luma<u16>, _>::from_fn(256, 2, |x, _| Luma([(x * 257) as u16]));
    let alpha = ImageBuffer::<LumaA<u16>, _>::from_fn(256, 2, |x, _| LumaA([(x * 257) as u16, 65535]));
    let rgb = ImageBuffer::<Px<u16>, _>::from_fn(256, 2, |x, _| Px([(x * 257) as u16; 3]));
    for image in [DynamicImage::ImageLuma16(grey), DynamicImage::ImageLumaA16(alpha), DynamicImage::ImageRgb16(rgb)] {
        let decoded = decode(&encode(&image, ImageFormat::Png)).unwrap().rgb;
        for x in 0..256 {
            assert_eq!(at(&decoded, x, 1), [x as u8; 3]);
        }
    }
}

#[test]
fn alpha_is_laid_over_white() {
    let image = RgbaImage::from_fn(4, 1, |x, _| Rgba([200, 0, 0, [0, 255, 128, 64][x as usize]]));
    let decoded = decode(&encode(&DynamicImage::ImageRgba8(image), ImageFormat::Png)).unwrap().rgb;
    assert_eq!((at(&decoded, 0, 0), at(&decoded, 1, 0), at(&decoded, 2, 0)), ([255; 3], [200, 0, 0], [227, 127, 127]));
}

#[test]
fn alpha_is_laid_over_the_colour_that_is_asked_for_and_kept_beside() {
    let image = RgbaImage::from_fn(3, 1, |x, _| Rgba([200, 0, 100, [0, 255, 128][x as usize]]));
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Tiff] {
        let decoded = velatura_data::decode::decode(&encode(&DynamicImage::ImageRgba8(image.clone()), format), [10, 20, 30]).unwrap();
        assert_eq!([0, 1, 2].map(|x| at(&decoded.rgb, x, 0)), [[10, 20, 30], [200, 0, 100], [105, 10, 65]], "{format:?}");
        assert_eq!(decoded.alpha.as_deref(), Some([0, 255, 128].as_slice()), "{format:?}");
    }
    assert!(decode(&encode(&DynamicImage::ImageRgb8(quarters(4, 4)), ImageFormat::Png)).unwrap().alpha.is_none());
}

#[test]
fn one_bit_palette_and_grey_pictures_come_out_in_three_equal_channels() {
    // A 1-bit and a palette PNG, written by hand: the encoder at hand makes neither.
    let png = |depth: u8, colour: u8, palette: &[u8], rows: &[u8]| {
        let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
        let mut put = |kind: &[u8; 4], content: &[u8]| {
            let body = [kind.as_slice(), content].concat();
            out.extend((content.len() as u32).to_be_bytes());
            out.extend(&body);
            out.extend(crc32(&body).to_be_bytes());
        };
        put(b"IHDR", &[0, 0, 0, 8, 0, 0, 0, 1, depth, colour, 0, 0, 0]);
        if !palette.is_empty() {
            put(b"PLTE", palette);
        }
        // One stored deflate block, and its Adler-32 sum.
        let (a, b) = rows.iter().fold((1u32, 0u32), |(a, b), v| ((a + u32::from(*v)) % 65521, (b + a + u32::from(*v)) % 65521));
        let length = rows.len() as u16;
        put(
            b"IDAT",
            &[&[0x78, 1, 1], length.to_le_bytes().as_slice(), (!length).to_le_bytes().as_slice(), rows, &(b << 16 | a).to_be_bytes()]
                .concat(),
        );
        put(b"IEND", &[]);
        out
    };
    let bits = decode(&png(1, 0, &[], &[0, 0b1010_0110])).unwrap().rgb;
    assert_eq!([0, 1, 2, 5].map(|x| at(&bits, x, 0)), [[255; 3], [0; 3], [255; 3], [255; 3]]);
    let palette = decode(&png(8, 3, &[9, 8, 7, 200, 100, 50], &[0, 1, 0, 1, 1, 0, 0, 0, 0])).unwrap().rgb;
    assert_eq!([0, 1, 2].map(|x| at(&palette, x, 0)), [[200, 100, 50], [9, 8, 7], [200, 100, 50]]);
}

#[test]
fn exif_orientation_turns_pictures_upright_in_jpeg_png_and_webp() {
    let upright = quarters(48, 32);
    let dynamic = DynamicImage::ImageRgb8(upright.clone());
    type Write = fn(&RgbImage, u8) -> Vec<u8>;
    let kinds: [(&str, Write); 4] = [
        ("JPEG", |image, tag| with_exif(image, tag, ImageFormat::Jpeg)),
        ("PNG", |image, tag| with_exif(image, tag, ImageFormat::Png)),
        ("PNG with EXIF at its end", png_with_late_exif),
        ("WebP", webp_with_exif),
    ];
    for (format, with_exif) in kinds {
        // What a camera stores so that a viewer that obeys the tag sees `upright`.
        for (tag, stored) in
            [(1, dynamic.clone()), (3, dynamic.rotate180()), (6, dynamic.rotate270()), (8, dynamic.rotate90()), (2, dynamic.fliph())]
        {
            let decoded = decode(&with_exif(&stored.to_rgb8(), tag)).unwrap().rgb;
            assert_eq!((decoded.width, decoded.height), (48, 32), "{format:?} {tag}");
            for (x, y) in [(8, 8), (40, 8), (8, 24), (40, 24)] {
                assert!(near(at(&decoded, x, y), upright.get_pixel(x, y).0), "{format:?} tag {tag} at {x},{y}: {:?}", at(&decoded, x, y));
            }
        }
    }
}

#[test]
fn portraits_stay_portraits_and_keep_all_four_corners() {
    for (w, h) in [(96, 135), (135, 96)] {
        let chosen = velatura_data::bucket::bucket(Scheme::Ratio, (w, h), 64.into(), 8);
        let decoded = decode(&encode(&DynamicImage::ImageRgb8(quarters(w, h)), ImageFormat::Png)).unwrap().rgb;
        let out = to_bucket(&decoded, chosen, false).unwrap();
        assert_eq!((out.width, out.height, out.width > out.height), (chosen.width, chosen.height, w > h));
        let (right, bottom) = (out.width - 2, out.height - 2);
        let corners = [at(&out, 1, 1), at(&out, right, 1), at(&out, 1, bottom), at(&out, right, bottom)];
        for (corner, colour) in corners.into_iter().zip([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]]) {
            assert!(near(corner, colour), "{w}×{h}: {corners:?}");
        }
    }
}

#[test]
fn a_wide_picture_loses_equal_parts_left_and_right_and_a_mirrored_one_is_its_mirror() {
    let ramp = RgbImage::from_fn(200, 100, |x, _| Px([x as u8; 3]));
    let decoded = decode(&encode(&DynamicImage::ImageRgb8(ramp), ImageFormat::Png)).unwrap().rgb;
    let out = to_bucket(&decoded, Bucket::new(100, 100), false).unwrap();
    assert_eq!((at(&out, 0, 50)[0], at(&out, 99, 50)[0]), (50, 149));
    let mirrored = to_bucket(&decoded, Bucket::new(100, 100), true).unwrap();
    assert_eq!((at(&mirrored, 0, 50)[0], at(&mirrored, 99, 50)[0]), (149, 50));
    let values = to_f32(&Rgb { width: 1, height: 1, pixels: vec![0, 255, 51] });
    assert_eq!(values, [-1.0, 1.0, 51.0 / 127.5 - 1.0]);
}

/// One scan finds every file that can't be used, and says of each what it is.
#[test]
fn unusable_files_are_listed_with_reasons_and_the_folder_stays_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let noisy = RgbImage::from_fn(64, 64, |x, y| Px([(x * 37 + y * 91) as u8, (x * y) as u8, (x * 5) as u8]));
    let noisy = DynamicImage::ImageRgb8(noisy);
    let (png, jpeg, webp) = (encode(&noisy, ImageFormat::Png), encode(&noisy, ImageFormat::Jpeg), encode(&noisy, ImageFormat::WebP));
    let (bmp, tiff) = (encode(&noisy, ImageFormat::Bmp), encode(&noisy, ImageFormat::Tiff));
    let cut = |bytes: &[u8]| bytes[..bytes.len() * 6 / 10].to_vec();
    let mut bad_sum = png.clone();
    let middle = bad_sum.len() / 2;
    bad_sum[middle] ^= 0x55;
    let mut no_width = bmp.clone();
    no_width[18..22].fill(0);
    let mut bomb = bmp.clone();
    bomb[18..22].copy_from_slice(&60_000_u32.to_le_bytes());
    bomb[22..26].copy_from_slice(&60_000_u32.to_le_bytes());
    let bad: Vec<(&str, Vec<u8>, &str)> = vec![
        ("a cut.jpg", cut(&jpeg), "cut short"),
        ("b/cut.png", cut(&png), "damaged PNG"),
        ("b/cut.webp", cut(&webp), "cut short"),
        ("b/cut.bmp", cut(&bmp), "damaged BMP"),
        ("b/cut.tif", cut(&tiff), "damaged TIFF"),
        ("c empty.png", vec![], "empty"),
        ("d sum.png", bad_sum, "damaged PNG"),
        ("e svg.png", b"<?xml version=\"1.0\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"/>".to_vec(), "SVG"),
        ("f page.jpg", b"<!DOCTYPE html><html></html>".to_vec(), "web page"),
        ("g lfs.png", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n".to_vec(), "git-lfs"),
        ("h zeros.png", vec![0; 4000], "zeros"),
        ("i photo.avif", b"\0\0\0\x20ftypavif\0\0\0\0".to_vec(), "cut short"),
        ("j photo.heic", b"\0\0\0\x20ftypheic\0\0\0\0".to_vec(), "HEIC"),
        ("k photo.jxl", b"\xFF\x0A\0\0".to_vec(), "cut short"),
        ("l clip.mp4", b"\0\0\0\x20ftypisom\0\0\0\0".to_vec(), "video"),
        ("m width.bmp", no_width, "BMP"),
        ("n bomb.bmp", bomb, "60000"),
        ("o text.png", b"hello there".to_vec(), "not a picture"),
    ];
    bad.iter().for_each(|(name, bytes, _)| put(name, bytes));
    put("猫 1.5%#x.PNG.dat", &png);
    put("good.jpeg", &webp);
    put("deep/er/good.png", &png);
    put("notes.md", b"# notes");
    put("data.safetensors", b"xxxxxxxx{}");
    for hidden in [".hidden.png", "Thumbs.db", "__MACOSX/._good.png", ".ipynb_checkpoints/good.png", "_latent_cache/good.png"] {
        put(hidden, &png);
    }
    // What a run drew must not be learnt by the next one.
    for (name, bytes) in [("my run/data.json", &b"{}"[..]), ("my run/config.yaml", b"name: x"), ("my run/samples/0.png", &png)] {
        put(name, bytes);
    }
    let before = listing(dir.path());
    let found = scan(dir.path(), true).unwrap();
    assert_eq!(found.pictures.iter().map(|p| p.file.as_str()).collect::<Vec<_>>(), ["deep/er/good.png", "good.jpeg", "猫 1.5%#x.PNG.dat"]);
    for (name, _, reason) in &bad {
        let rejected = found.rejected.iter().find(|r| r.file == *name).unwrap_or_else(|| panic!("{name} is not listed"));
        assert!(rejected.reason.contains(reason), "{name}: {}", rejected.reason);
    }
    assert_eq!(found.rejected.len(), bad.len());
    assert_eq!(found.others.values().sum::<usize>(), 2);
    assert_eq!(scan(dir.path(), false).unwrap().pictures.len(), 2);
    assert_eq!(listing(dir.path()), before);
}

fn listing(folder: &Path) -> Vec<(String, u64)> {
    let entries = walkdir::WalkDir::new(folder).sort_by_file_name().into_iter().map(Result::unwrap);
    entries.filter(|e| e.file_type().is_file()).map(|e| (e.path().display().to_string(), e.metadata().unwrap().len())).collect()
}

#[test]
fn a_repaired_picture_is_used_by_the_next_scan() {
    let dir = tempfile::tempdir().unwrap();
    let png = encode(&DynamicImage::ImageRgb8(quarters(32, 32)), ImageFormat::Png);
    std::fs::write(dir.path().join("a.png"), &png).unwrap();
    std::fs::write(dir.path().join("b.png"), &png[..60]).unwrap();
    assert_eq!(scan(dir.path(), true).unwrap().rejected.len(), 1);
    std::fs::write(dir.path().join("b.png"), &png).unwrap();
    assert_eq!(scan(dir.path(), true).unwrap().pictures.len(), 2);
}

#[test]
fn a_folder_without_pictures_is_an_error_that_says_what_was_seen() {
    let dir = tempfile::tempdir().unwrap();
    let says = |recursive| format!("{:#}", scan(dir.path(), recursive).unwrap_err());
    assert!(says(true).contains("there are no files"));
    std::fs::write(dir.path().join("a.txt"), "x").unwrap();
    std::fs::write(dir.path().join("b.png"), "").unwrap();
    let message = says(false);
    for part in [&dir.path().display().to_string(), "recursive is false", "1 file can't be used", "1 txt", "b.png: empty"] {
        assert!(message.contains(part), "{message}");
    }
    assert!(format!("{:#}", scan(&dir.path().join("none"), true).unwrap_err()).contains("none"));
    assert!(format!("{:#}", scan(&dir.path().join("a.txt"), true).unwrap_err()).contains("is a file"));
}

#[test]
#[cfg(unix)]
fn links_are_followed_without_going_round_in_circles_and_a_folder_that_is_read_only_works() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set");
    std::fs::create_dir_all(set.join("sub")).unwrap();
    std::fs::create_dir_all(dir.path().join("elsewhere")).unwrap();
    let png = encode(&DynamicImage::ImageRgb8(quarters(32, 32)), ImageFormat::Png);
    std::fs::write(dir.path().join("elsewhere/a.png"), &png).unwrap();
    symlink(dir.path().join("elsewhere"), set.join("linked")).unwrap();
    symlink(&set, set.join("sub/back")).unwrap();
    symlink(dir.path().join("gone.png"), set.join("dangling.png")).unwrap();
    std::fs::set_permissions(&set, std::fs::Permissions::from_mode(0o555)).unwrap();
    let found = scan(&set, true).unwrap();
    std::fs::set_permissions(&set, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(found.pictures.iter().map(|p| p.file.as_str()).collect::<Vec<_>>(), ["linked/a.png"]);
    assert!(found.rejected.iter().any(|r| r.file == "sub/back" && r.reason.contains("back")), "{:?}", found.rejected);
    assert!(found.rejected.iter().any(|r| r.file.contains("dangling")), "{:?}", found.rejected);
}

#[test]
fn huge_metadata_is_skipped_and_animations_give_their_first_frame_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let png = encode(&DynamicImage::ImageRgb8(quarters(32, 32)), ImageFormat::Png);
    let mut fat = png[..33].to_vec();
    let text = [b"iTXt".as_slice(), b"workflow\0\0\0\0\0", &vec![b'x'; 4_000_000]].concat();
    fat.extend((text.len() as u32 - 4).to_be_bytes());
    fat.extend(&text);
    fat.extend(crc32(&text).to_be_bytes());
    fat.extend(&png[33..]);
    std::fs::write(dir.path().join("fat.png"), fat).unwrap();
    let mut gif = Vec::new();
    let mut encoder = GifEncoder::new(&mut gif);
    let clear = RgbaImage::from_pixel(16, 16, Rgba([0, 0, 0, 0]));
    let red = RgbaImage::from_pixel(16, 16, Rgba([255, 0, 0, 255]));
    encoder.encode_frames([clear, red].map(Frame::new)).unwrap();
    drop(encoder);
    std::fs::write(dir.path().join("moving.gif"), &gif).unwrap();
    let found = scan(dir.path(), true).unwrap();
    assert_eq!(found.pictures.len(), 2, "{:?}", found.rejected);
    assert!(found.pictures[0].warning.is_none() && found.pictures[1].warning.as_deref().unwrap().contains("first frame"));
    assert_eq!(at(&decode(&gif).unwrap().rgb, 5, 5), [255; 3]);
}

/// A PNG file with a second frame that shows the first one's rows again.
fn animated_png(image: &RgbImage) -> Vec<u8> {
    let still = encode(&DynamicImage::ImageRgb8(image.clone()), ImageFormat::Png);
    let chunk = |kind: &[u8; 4], content: &[u8]| {
        let body = [kind.as_slice(), content].concat();
        [(content.len() as u32).to_be_bytes().as_slice(), &body, &crc32(&body).to_be_bytes()].concat()
    };
    let control = |sequence: u32| {
        let numbers = [sequence, image.width(), image.height(), 0, 0].map(u32::to_be_bytes).concat();
        chunk(b"fcTL", &[numbers.as_slice(), &[0, 1, 0, 10, 0, 0]].concat())
    };
    let data = velatura_data::png::chunk(&still, *b"IDAT").unwrap();
    let frames = chunk(b"acTL", &[2u32.to_be_bytes(), 0u32.to_be_bytes()].concat());
    let second = chunk(b"fdAT", &[2u32.to_be_bytes().as_slice(), data].concat());
    [&still[..33], &frames, &control(0), &chunk(b"IDAT", data), &control(1), &second, &chunk(b"IEND", &[])].concat()
}

/// A WebP file of two frames.
fn animated_webp(frames: [&RgbImage; 2]) -> Vec<u8> {
    let chunk = |name: &[u8; 4], content: &[u8]| [name.as_slice(), &(content.len() as u32).to_le_bytes(), content].concat();
    let three = |number: u32| number.to_le_bytes()[..3].to_vec();
    let size = [three(frames[0].width() - 1), three(frames[0].height() - 1)].concat();
    const ANIMATED: u8 = 2;
    let canvas = chunk(b"VP8X", &[[ANIMATED, 0, 0, 0].as_slice(), &size].concat());
    let frame = |image: &RgbImage| {
        // Of the simple file only the chunk with the picture is wanted, whose length is even as it stands there.
        let still = encode(&DynamicImage::ImageRgb8(image.clone()), ImageFormat::WebP);
        chunk(b"ANMF", &[three(0), three(0), size.clone(), three(100), vec![0], still[12..].to_vec()].concat())
    };
    let body = [b"WEBP".as_slice(), &canvas, &chunk(b"ANIM", &[0; 6]), &frame(frames[0]), &frame(frames[1])].concat();
    [b"RIFF".as_slice(), &(body.len() as u32).to_le_bytes(), &body].concat()
}

#[test]
fn every_format_of_moving_pictures_gives_its_first_frame_and_the_same_warning() {
    let (first, second) = (quarters(16, 16), RgbImage::from_pixel(16, 16, Px([9; 3])));
    let mut gif = Vec::new();
    let frames = [&first, &second].map(|frame| Frame::new(DynamicImage::ImageRgb8(frame.clone()).into_rgba8()));
    GifEncoder::new(&mut gif).encode_frames(frames).unwrap();
    for (format, bytes) in [("GIF", gif), ("PNG", animated_png(&first)), ("WebP", animated_webp([&first, &second]))] {
        let decoded = decode(&bytes).unwrap_or_else(|e| panic!("{format}: {e:#}"));
        assert_eq!(decoded.warnings, ["animated: only the first frame is used"], "{format}");
        for (x, y) in [(2, 2), (13, 2), (2, 13), (13, 13)] {
            assert!(near(at(&decoded.rgb, x, y), first.get_pixel(x, y).0), "{format} at {x},{y}: {:?}", at(&decoded.rgb, x, y));
        }
    }
}

#[test]
fn what_can_not_be_read_is_counted_in_the_summary_and_listed_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..3 {
        std::fs::write(dir.path().join(format!("{i}.png")), encode(&DynamicImage::ImageRgb8(quarters(32, 32)), ImageFormat::Png)).unwrap();
    }
    for (name, head) in [("a.psd", b"8BPS".as_slice()), ("b.heic", b"\0\0\0\x20ftypheic\0\0\0\0"), ("c.jp2", b"\0\0\0\x0CjP  ")] {
        std::fs::write(dir.path().join(name), head).unwrap();
    }
    let summary = Dataset::build(&[options(dir.path())]).unwrap().summary();
    assert!(summary[0].starts_with("3 pictures") && summary[0].contains("3 files not used"), "{summary:?}");
    for name in ["a.psd", "b.heic", "c.jp2"] {
        assert!(summary.iter().any(|line| line.starts_with(&format!("not used: {name}: ")) && line.contains("convert it")), "{summary:?}");
    }
}

#[test]
fn pictures_of_kinds_that_nothing_here_knows_are_listed_by_their_extension() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("0.png"), encode(&DynamicImage::ImageRgb8(quarters(32, 32)), ImageFormat::Png)).unwrap();
    let unknown =
        [("a.pgm", &b"P5\n2 2\n255\n\0\x01\x02\x03"[..]), ("b.DDS", b"DDS \x7c"), ("c.xcf", b"gimp xcf v011\0"), ("d.jxr", b"II\xBC\x01")];
    for (name, bytes) in unknown {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    std::fs::write(dir.path().join("notes.md"), "no picture").unwrap();
    let summary = Dataset::build(&[options(dir.path())]).unwrap().summary();
    assert!(summary[0].contains("4 files not used"), "{summary:?}");
    for (name, _) in unknown {
        assert!(summary.iter().any(|line| line.starts_with(&format!("not used: {name}: "))), "{summary:?}");
    }
}

#[test]
fn with_bad_images_stop_every_bad_file_is_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("good.png"), encode(&DynamicImage::ImageRgb8(quarters(32, 32)), ImageFormat::Png)).unwrap();
    (0..15).for_each(|i| std::fs::write(dir.path().join(format!("{i:02}.png")), "").unwrap());
    let mut options = options(dir.path());
    options.on_bad_image = OnBadImage::Stop;
    let stopped = format!("{:#}", Dataset::build(&[options]).unwrap_err());
    let unnamed: Vec<String> = (0..15).map(|i| format!("{i:02}.png")).filter(|name| !stopped.contains(name)).collect();
    assert!(unnamed.is_empty(), "{unnamed:?} are missing in: {stopped}");
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, b| (0..8).fold(crc ^ u32::from(*b), |c, _| if c & 1 == 1 { c >> 1 ^ 0xEDB8_8320 } else { c >> 1 }))
}

#[test]
fn a_dataset_is_a_list_of_items_that_can_be_printed() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| std::fs::write(dir.path().join(name), bytes).unwrap();
    put("a.b.png", &encode(&DynamicImage::ImageRgb8(quarters(128, 64)), ImageFormat::Png));
    put("a.b.txt", "[trigger], a tag\r\n".as_bytes());
    put("c.png", &encode(&DynamicImage::ImageRgb8(quarters(64, 64)), ImageFormat::Png));
    put("d.png", b"");
    put("e.png", &encode(&DynamicImage::ImageRgb8(quarters(64, 64)), ImageFormat::Png));
    put("e.txt", b"caf\xE9\0");
    let mut options = options(dir.path());
    options.caption.trigger_word = Some("sks".into());
    options.caption.caption_dropout_rate = 0.1;
    options.resolutions = vec![64.into(), 32.into()];
    options.repeats = 3;
    options.flip = true;
    let dataset = Dataset::build(&[options.clone(), options.clone()]).unwrap();
    assert_eq!((dataset.entries.len(), dataset.items.len(), dataset.views().len(), dataset.rejected.len()), (4, 8, 16, 4));
    assert_eq!(dataset.texts().unwrap(), ["sks", "sks, a tag"]);
    let rows = serde_json::to_value(dataset.rows()).unwrap();
    let first = &rows[0];
    assert_eq!(
        (&first["file"], &first["used"], &first["bucket"], &first["repeats"]),
        (&"a.b.png".into(), &true.into(), &[96, 40].as_slice().into(), &3.into())
    );
    assert_eq!(first["caption"], "sks, a tag");
    let unused: Vec<&serde_json::Value> = rows.as_array().unwrap().iter().filter(|r| r["used"] == false).collect();
    assert!(unused[0]["file"] == "d.png" && unused[0]["reason"].as_str().unwrap().contains("empty"));
    assert!(unused[1]["file"] == "e.png" && unused[1]["reason"].as_str().unwrap().contains("e.txt"), "{unused:?}");
    let pixels = dataset.pixels(0, true).unwrap();
    assert!(near(at(&pixels, 2, 2), [0, 255, 0]));
    assert_eq!(dataset.tag_frequency(0, 10)[0], ("sks".to_string(), 2));
    assert!(dataset.summary().iter().any(|l| l.contains("2 missing")));
    let schedule = velatura_data::Schedule::new(&dataset, 1, 2, 1);
    assert_eq!(schedule.pictures_per_epoch(), 24);

    std::fs::remove_file(dir.path().join("c.png")).unwrap();
    assert!(format!("{:#}", dataset.pixels(2, false).unwrap_err()).contains("c.png"));
    options.on_bad_image = OnBadImage::Stop;
    let stopped = format!("{:#}", Dataset::build(&[options]).unwrap_err());
    assert!(stopped.contains("datasets[0]") && stopped.contains("d.png") && stopped.contains("e.png"), "{stopped}");
}

/// A TIFF with another number in one of its fields.
fn tiff_with(tag: u16, number: u32) -> Vec<u8> {
    let mut tiff = encode(&DynamicImage::ImageRgb8(quarters(16, 16)), ImageFormat::Tiff);
    let fields = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes([tiff[fields], tiff[fields + 1]]));
    let field = (0..count).map(|i| fields + 2 + 12 * i).find(|at| tiff[*at..*at + 2] == tag.to_le_bytes()).unwrap();
    tiff[field + 8..field + 12].copy_from_slice(&number.to_le_bytes());
    tiff
}

#[test]
fn whole_files_of_a_kind_that_can_not_be_read_are_not_called_damaged() {
    let jpeg = encode(&DynamicImage::ImageRgb8(quarters(16, 16)), ImageFormat::Jpeg);
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    let jpeg_with = |at: usize, byte: u8| {
        let mut jpeg = jpeg.clone();
        jpeg[frame + at] = byte;
        jpeg
    };
    const COMPRESSION: u16 = 259;
    const COLOURS: u16 = 262;
    for (name, bytes) in [
        ("JPEG 2000 in TIFF", tiff_with(COMPRESSION, 34712)),
        ("old JPEG in TIFF", tiff_with(COMPRESSION, 6)),
        ("Lab in TIFF", tiff_with(COLOURS, 8)),
        ("twelve bits", jpeg_with(4, 12)),
        ("arithmetic JPEG", jpeg_with(1, 0xC9)),
        ("lossless JPEG", jpeg_with(1, 0xC3)),
    ] {
        let error = decode(&bytes).map(|_| ()).unwrap_err().to_string();
        assert!(
            error.contains("can't be read here") && error.contains("convert it to PNG") && !error.contains("damaged"),
            "{name}: {error}"
        );
    }
    let mut flat = encode(&DynamicImage::ImageRgb8(quarters(16, 16)), ImageFormat::Bmp);
    flat[22..26].fill(0);
    let error = decode(&flat).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("16×0"), "{error}");
}

#[test]
fn a_picture_that_changed_since_the_scan_is_not_taken_for_the_one_that_was_scanned() {
    let dir = tempfile::tempdir().unwrap();
    let put = |shade: u8| RgbImage::from_pixel(32, 32, Px([shade; 3])).save(dir.path().join("a.png")).unwrap();
    put(1);
    let dataset = Dataset::build(&[options(dir.path())]).unwrap();
    put(2);
    let error = format!("{:#}", dataset.pixels(0, false).unwrap_err());
    assert!(error.contains("a.png") && error.contains("changed since it was scanned"), "{error}");
}

/// Orientation in EXIF is two bytes; some programs write four.
#[test]
fn orientation_in_four_bytes_is_obeyed() {
    for (big, kind) in [(false, 3u16), (false, 4), (true, 3), (true, 4)] {
        let two = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let four = |n: u32| if big { n.to_be_bytes() } else { n.to_le_bytes() };
        let value = if kind == 3 { [two(6), [0; 2]].concat() } else { four(6).to_vec() };
        let order = if big { b"MM" } else { b"II" };
        let field = [two(0x112), two(kind)].concat();
        let block = [order.as_slice(), &two(42), &four(8), &two(1), &field, &four(1), &value, &four(0)].concat();
        let mut jpeg = Vec::new();
        let mut encoder = JpegEncoder::new_with_quality(&mut jpeg, 98);
        encoder.set_exif_metadata(block.clone()).unwrap();
        encoder.write_image(&quarters(32, 16), 32, 16, ExtendedColorType::Rgb8).unwrap();
        let mut png = Vec::new();
        let mut encoder = PngEncoder::new(&mut png);
        encoder.set_exif_metadata(block).unwrap();
        encoder.write_image(&quarters(32, 16), 32, 16, ExtendedColorType::Rgb8).unwrap();
        for bytes in [jpeg, png] {
            let decoded = decode(&bytes).unwrap().rgb;
            assert_eq!((decoded.width, decoded.height), (16, 32), "{big} {kind}");
            assert!(near(at(&decoded, 2, 2), [0, 0, 255]), "{:?}", at(&decoded, 2, 2));
        }
    }
}

#[test]
fn what_a_decoder_says_is_told_in_a_few_lines() {
    let mut tiff = encode(&DynamicImage::ImageRgb8(quarters(16, 16)), ImageFormat::Tiff);
    // Numbers of two kinds, which the decoder lists.
    let (format, short) = (339u16.to_le_bytes(), 3u16.to_le_bytes());
    let fields = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    let field = (0..30).map(|i| fields + 2 + 12 * i).find(|at| tiff[*at..*at + 2] == format).unwrap();
    let place = tiff.len() as u32;
    tiff.splice(field..field + 12, [[format, short].concat(), [30_000, place].map(u32::to_le_bytes).concat()].concat());
    tiff.extend((0..30_000u16).flat_map(|i| (1 + i % 2).to_le_bytes()));
    let error = format!("{:#}", decode(&tiff).unwrap_err());
    assert!(error.len() < 600, "{} bytes", error.len());
    assert!(error.contains("TIFF") && error.ends_with("convert it to PNG"), "{error}");
}
