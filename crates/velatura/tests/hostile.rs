//! Files that mean harm, or met with it: thousands of damaged forms of sound files go through every reader of users' files. Each is
//! read or refused; none panics, and none takes more memory than its reader may, which an allocator counts.
//!
//! The damage is drawn from a seed: a failure prints its reader and round, and comes again.
#![allow(clippy::unwrap_used)]

use base::Rng;
use config::import::Source;
use data::decode::{MOST_PIXELS, WHITE};
use image::{DynamicImage, ImageFormat, RgbImage, Rgba, RgbaImage};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Cursor;
use std::path::Path;

thread_local! {
    /// Bytes that this thread holds, and the most that it held.
    static HELD: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, which counts by thread: tests beside each other don't meet.
struct Counting;

#[global_allocator]
static MEMORY: Counting = Counting;

fn count(bytes: isize) {
    let held = HELD.get() + bytes;
    HELD.set(held);
    MOST.set(MOST.get().max(held));
}

/// What `work` holds at its peak beyond what was held before. It may not use other threads.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = HELD.get();
    MOST.set(before);
    let result = work();
    (result, (MOST.get() - before) as usize)
}

// SAFETY: every call goes to the system's allocator as it came; counting allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        unsafe { System.dealloc(block, layout) }
    }
}

const SEED: u64 = 31;
const MIB: usize = 1 << 20;

/// A reader of users' files, sound files for it, and what it may hold of memory.
struct Reader<'a> {
    name: &'static str,
    sound: Vec<Vec<u8>>,
    /// Bytes that mean something to it.
    signs: &'static [u8],
    rounds: u64,
    most_bytes: usize,
    read: &'a dyn Fn(&[u8]),
}

impl Reader<'_> {
    fn check(&self) {
        for (sort, sound) in self.sound.iter().enumerate() {
            for round in 0..self.rounds {
                let mut rng = Rng::new(SEED, self.name, &[sort as u64, round]);
                let bytes = damaged(sound, &self.sound, self.signs, &mut rng);
                let read = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.read)(&bytes)));
                let (done, held) = peak(read);
                let place = format!("{}, sound file {sort}, round {round}", self.name);
                assert!(done.is_ok(), "{place}: a panic on {} bytes", bytes.len());
                assert!(held <= self.most_bytes, "{place}: {held} bytes were held, {} are allowed", self.most_bytes);
            }
        }
    }
}

/// One to four changes: bytes, numbers, stretches left out, repeated, put in, or taken from another file; and now and then the end cut off.
fn damaged(sound: &[u8], others: &[Vec<u8>], signs: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = sound.to_vec();
    for _ in 0..=rng.below(4) {
        let at = rng.below(bytes.len().max(1) as u64) as usize;
        let end = (at + 1 + rng.below(16) as usize).min(bytes.len());
        match rng.below(8) {
            0 | 1 if at < bytes.len() => bytes[at] = rng.next_u32() as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            3 => bytes[at..end].fill([0, 0x7F, 0x80, 0xFF][rng.below(4) as usize]),
            4 => drop(bytes.drain(at..end)),
            5 => bytes = [&bytes[..end], &bytes[at..]].concat(),
            6 => bytes.insert(at, signs[rng.below(signs.len() as u64) as usize]),
            _ => {
                let other = &others[rng.below(others.len() as u64) as usize];
                let (from, to) = (at.min(other.len()), end.min(other.len()));
                drop(bytes.splice(at..end, other[from..to].iter().copied()));
            }
        }
    }
    if rng.below(4) == 0 {
        bytes.truncate(rng.below(1 + bytes.len() as u64) as usize);
    }
    bytes
}

fn encoded(image: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut out = Cursor::new(Vec::new());
    image.write_to(&mut out, format).unwrap();
    out.into_inner()
}

fn rgb() -> DynamicImage {
    DynamicImage::ImageRgb8(RgbImage::from_fn(24, 20, |x, y| image::Rgb([(x * 37 + y * 91) as u8, (x * y) as u8, 9])))
}

/// Files of a format that no crate here writes.
fn kept(folder: &str, names: &[&str]) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/tests").join(folder);
    names.iter().map(|name| std::fs::read(folder.join(name)).unwrap()).collect()
}

/// A picture in every format that is read.
fn pictures() -> Vec<Vec<u8>> {
    let rgba = DynamicImage::ImageRgba8(RgbaImage::from_fn(16, 9, |x, y| Rgba([x as u8, y as u8, 70, (x * 16) as u8])));
    let formats = [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Gif, ImageFormat::Tiff];
    let alpha = [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Tiff].map(|format| encoded(&rgba, format));
    let made = formats.iter().map(|format| encoded(&rgb(), *format)).chain(alpha);
    let jxl = ["lossless.jxl", "lossless_container.jxl", "alpha_lossy.jxl", "grey_lossy.jxl", "photo.jxl", "animated.jxl", "icc.jxl"];
    made.chain(kept("jxl", &jxl)).collect()
}

#[test]
fn damaged_pictures_are_read_or_refused_within_the_memory_that_a_picture_may_take() {
    let read = |bytes: &[u8]| {
        if let Ok(decoded) = data::decode::decode(bytes, WHITE) {
            let pixels = decoded.rgb.width as usize * decoded.rgb.height as usize;
            assert_eq!((decoded.rgb.pixels.len(), decoded.alpha.map_or(pixels, |alpha| alpha.len())), (pixels * 3, pixels));
        }
    };
    let most_bytes = MOST_PIXELS as usize * 8 + 64 * MIB;
    Reader { name: "pictures", sound: pictures(), signs: &[0, 1, 0xFF, 0xD8, 0xD9], rounds: 250, most_bytes, read: &read }.check();
}

/// Their streams are decoded in processes of their own, which end when a decoder does: this one hears of it as an error.
#[test]
fn damaged_avif_files_are_read_or_refused_whatever_becomes_of_their_decoders() {
    data::av1::use_program(env!("CARGO_BIN_EXE_velatura").into());
    let names = ["full_420.avif", "alpha.avif", "grid.avif", "animated.avif", "all_three.avif", "p3_icc.avif", "twelve.avif"];
    let read = |bytes: &[u8]| drop(data::decode::decode(bytes, WHITE));
    let most_bytes = MOST_PIXELS as usize * 8 + 64 * MIB;
    Reader { name: "AVIF", sound: kept("avif", &names), signs: &[0, 1, 0x0A, 0x12, 0x32, 0xFF], rounds: 120, most_bytes, read: &read }
        .check();
}

/// Width and height of a sound file, put up to what its format can say.
fn declared_huge() -> Vec<(&'static str, Vec<u8>)> {
    let file = |format| encoded(&rgb(), format);
    let (mut png, mut jpeg, mut bmp, mut gif, mut tiff) =
        (file(ImageFormat::Png), file(ImageFormat::Jpeg), file(ImageFormat::Bmp), file(ImageFormat::Gif), file(ImageFormat::Tiff));
    png[16..24].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let crc = png_crc(&png[12..29]).to_be_bytes();
    png[29..33].copy_from_slice(&crc);
    let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    jpeg[frame + 5..frame + 9].fill(0xFE);
    bmp[18..26].copy_from_slice(&[0x60, 0xEA, 0, 0, 0x60, 0xEA, 0, 0]);
    gif[6..10].fill(0xFF);
    let fields = u32::from_le_bytes(tiff[4..8].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes([tiff[fields], tiff[fields + 1]]));
    for field in (0..count).map(|i| fields + 2 + 12 * i) {
        if matches!(u16::from_le_bytes([tiff[field], tiff[field + 1]]), 256 | 257) {
            tiff[field + 8..field + 12].copy_from_slice(&60_000u32.to_le_bytes());
        }
    }
    let mut webp = file(ImageFormat::WebP);
    // Fourteen bits each, behind the signature of a lossless picture.
    let size = webp.windows(4).position(|four| four == b"VP8L").unwrap() + 9;
    webp[size..size + 3].fill(0xFF);
    // The bits of a size, the lowest first: not small; 31 bits of height, of which 30 are written; as wide as high; no more metadata.
    let bits = 0b110 | 0x3FFF_FFFF << 3 | 1u64 << 33 | 1 << 36;
    let jxl = [&[0xFF, 0x0A][..], &bits.to_le_bytes(), &[0; 64]].concat();
    let mut avif = kept("avif", &["lossless.avif"]).remove(0);
    let size = avif.windows(4).position(|four| four == b"ispe").unwrap() + 8;
    avif[size..size + 8].fill(0x7F);
    vec![("AVIF", avif), ("JPEG XL", jxl), ("PNG", png), ("JPEG", jpeg), ("BMP", bmp), ("GIF", gif), ("TIFF", tiff), ("WebP", webp)]
}

fn png_crc(bytes: &[u8]) -> u32 {
    !bytes
        .iter()
        .fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| if crc & 1 == 1 { 0xEDB8_8320 ^ crc >> 1 } else { crc >> 1 }))
}

#[test]
fn pictures_that_declare_a_huge_size_are_refused_before_memory_is_taken() {
    for (name, bytes) in declared_huge() {
        let (decoded, held) = peak(|| data::decode::decode(&bytes, WHITE).map(|decoded| (decoded.rgb.width, decoded.rgb.height)));
        decoded.expect_err(name);
        assert!(held < MIB, "{name}: {held} bytes were held for a file of {}", bytes.len());
    }
}

/// An animated WebP file with two frames of 8×8 on a square canvas.
fn tiny_frame_webp(side: u32) -> Vec<u8> {
    let chunk = |name: &[u8; 4], content: &[u8]| [name.as_slice(), &(content.len() as u32).to_le_bytes(), content].concat();
    let three = |number: u32| number.to_le_bytes()[..3].to_vec();
    let still = encoded(&DynamicImage::ImageRgb8(RgbImage::from_pixel(8, 8, image::Rgb([9, 8, 7]))), ImageFormat::WebP);
    let frame = chunk(b"ANMF", &[three(0), three(0), three(7), three(7), three(100), vec![0], still[12..].to_vec()].concat());
    let canvas = chunk(b"VP8X", &[vec![2, 0, 0, 0], three(side - 1), three(side - 1)].concat());
    let body = [b"WEBP".as_slice(), &canvas, &chunk(b"ANIM", &[0; 6]), &frame, &frame].concat();
    [b"RIFF".as_slice(), &(body.len() as u32).to_le_bytes(), &body].concat()
}

/// A large picture in every format, also where the file is small: what is held is a matter of its size, whatever is in it.
#[test]
fn decoding_holds_a_few_bytes_for_each_declared_pixel() {
    const SIDE: u32 = 2048;
    let flat = DynamicImage::ImageRgb8(RgbImage::from_pixel(SIDE, SIDE, image::Rgb([9, 8, 7])));
    let (alpha, deep) = (DynamicImage::ImageRgba8(flat.to_rgba8()), DynamicImage::ImageRgba16(flat.to_rgba16()));
    let mut gif = Vec::new();
    {
        let frame = |left: u16| {
            image::Frame::from_parts(
                RgbaImage::from_pixel(8, 8, Rgba([left as u8, 2, 3, 255])),
                left.into(),
                0,
                image::Delay::from_numer_denom_ms(1, 1),
            )
        };
        let mut encoder = image::codecs::gif::GifEncoder::new(&mut gif);
        encoder.encode_frames([frame(0), frame(9)]).unwrap();
    }
    gif[6..8].copy_from_slice(&(SIDE as u16).to_le_bytes());
    gif[8..10].copy_from_slice(&(SIDE as u16).to_le_bytes());
    let mut files = vec![("GIF, a tiny frame", gif, 8), ("WebP, a tiny frame", tiny_frame_webp(SIDE), 8)];
    for (name, image, bytes) in [("RGB", &flat, 7), ("RGBA", &alpha, 8), ("RGBA of 16 bits", &deep, 12)] {
        for format in [ImageFormat::Png, ImageFormat::Jpeg, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff] {
            let mut out = Cursor::new(Vec::new());
            if image.write_to(&mut out, format).is_ok() {
                // A TIFF is whole twice when it is decoded.
                files.push((name, out.into_inner(), if format == ImageFormat::Tiff { bytes.max(2 * (bytes - 4)) } else { bytes }));
            }
        }
    }
    let profile = moxcms::ColorProfile::new_display_p3().encode().unwrap();
    for (name, image, bytes) in [("RGB in P3", &flat, 7), ("RGBA of 16 bits in P3", &deep, 12)] {
        let mut out = Vec::new();
        let mut encoder = image::codecs::png::PngEncoder::new(&mut out);
        image::ImageEncoder::set_icc_profile(&mut encoder, profile.clone()).unwrap();
        image.write_with_encoder(encoder).unwrap();
        files.push((name, out, bytes));
    }
    let pixels = (SIDE * SIDE) as usize;
    let mut beyond = Vec::new();
    for (name, bytes, most) in files {
        let (decoded, held) = peak(|| data::decode::decode(&bytes, WHITE).map(|decoded| (decoded.rgb.width, decoded.took)));
        let head = String::from_utf8_lossy(&bytes[..8]).into_owned();
        let (width, took) = decoded.unwrap_or_else(|error| panic!("{name} {head:?}: {error:#}"));
        assert_eq!(width, SIDE);
        // What runs plan with.
        assert!(held + bytes.len() <= took as usize + 6 * MIB, "{name} {head:?}: {held} of {took}");
        if held > pixels * most + MIB {
            beyond.push(format!("{name} {head:?}: {:.1} bytes for each pixel", held as f64 / pixels as f64));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}

/// A small PNG whose colour profile unpacks to half a gigabyte takes what a small picture may take.
#[test]
fn a_colour_profile_that_unfolds_without_end_is_refused_within_its_memory() {
    let mut bytes = Vec::new();
    let mut encoder = image::codecs::png::PngEncoder::new(&mut bytes);
    image::ImageEncoder::set_icc_profile(&mut encoder, vec![0; 1 << 29]).unwrap();
    rgb().write_with_encoder(encoder).unwrap();
    let (result, most) = peak(|| data::decode::decode(&bytes, WHITE));
    assert!(most < 160 * MIB, "{} MiB", most / MIB);
    let text = result.map_or_else(|error| format!("{error:#}"), |picture| picture.warnings.join("; "));
    assert!(text.contains("profile") || text.contains("limit"), "{text}");
}

/// A file that is longer than its reader takes is refused before it is read.
#[test]
fn a_file_beyond_the_limit_takes_no_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("long.png");
    std::fs::File::create(&path).unwrap().set_len(4 << 30).unwrap();
    let (result, most) = peak(|| data::decode::read(&path, WHITE));
    let error = format!("{:#}", result.map(|_| ()).expect_err("four gigabytes are refused"));
    assert!(error.contains("larger than") && most < MIB, "{error}, {} MiB", most / MIB);
}

#[test]
fn damaged_captions_and_lists_are_text_or_an_error() {
    let text = "a café, 猫が座る, кот\r\nsecond line, \"quoted\"\n";
    let units = |make: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(make).collect::<Vec<u8>>();
    let utf16 = [&[0xFF, 0xFE][..], &units(u16::to_le_bytes)].concat();
    let captions =
        vec![text.as_bytes().to_vec(), utf16, units(u16::to_be_bytes), b"caf\xE9, na\xEFve".to_vec(), b"\x93\xFA\x96\x7B".to_vec()];
    let signs = b"\0\n\r\xEF\xBB\xBF\xFF\xFE,\"";
    let read = |bytes: &[u8]| drop(data::text::decode(bytes, data::text::Pages::default()));
    Reader { name: "captions", sound: captions, signs, rounds: 1500, most_bytes: MIB, read: &read }.check();

    let dir = tempfile::tempdir().unwrap();
    let lists = [
        (
            "l.jsonl",
            "{\"file_name\": \"a.png\", \"text\": \"a cat\", \"n\": [1, {\"x\": null}]}\n\n{\"image\": \"b.png\", \"tags\": [\"a\", \"b\"]}\n",
        ),
        ("l.csv", "file_name,text\na.png,\"a \"\"cat\"\", two\nlines\"\nb.png,x\n"),
        ("l.json", "[{\"file\": \"a.png\", \"caption\": \"x\"}, {\"path\": \"b\\u0041.png\"}]"),
    ];
    for (name, list) in lists {
        let path = dir.path().join(name);
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            drop(data::list::read(&path, None, None));
        };
        let sound = vec![list.as_bytes().to_vec()];
        Reader { name: "lists", sound, signs: b"{}[],:\"\\\n\t\0", rounds: 300, most_bytes: MIB, read: &read }.check();
    }
}

const NATIVE: &str = "name: a\nmodel: {path: m}\ndatasets:\n  - folder_path: x\n    resolution: [512, 768x1152]\ntrain:\n  optimizer_params: \
                      {betas: [0.9, 0.99]}\n  lr: 1e-4\nsample: {prompts: ['a --w 64 --n b', &x b, *x]}\n";
const JOB: &str = "job: extension\nconfig:\n  name: a\n  process:\n    - type: sd_trainer\n      training_folder: out\n      model: {name_or_path: \
                   m}\n      datasets: [{folder_path: x, mask_path: y}]\n      train: {steps: 10, dtype: bf16}\nmeta: {name: '[name]'}\n";
const TOML: &str = "pretrained_model_name_or_path = \"m\"\nresolution = \"512,768\"\ntrain_data_dir = \"d\"\nnetwork_args = [\"conv_dim=8\"]\n\
                    optimizer_args = [ \"betas=0.9,0.99\", ]\nlearning_rate = 1e-4\n[[datasets]]\n[[datasets.subsets]]\nimage_dir = 'x'\n";
const SCRIPT: &str = "accelerate launch train_network.py --pretrained_model_name_or_path=\"m\" \\\n --train_data_dir d --resolution 512,512 \
                      --network_args 'conv_dim=8' --lr_scheduler_args \"a=(1, 2)\" && echo $HOME\n";

#[test]
fn damaged_configs_are_configs_or_an_error() {
    let signs = b"{}[]:-\n\t#&*!|>'\"%@`,\0\xFF 09<";
    let yaml = [NATIVE, JOB].map(|text| text.as_bytes().to_vec()).to_vec();
    let read = |bytes: &[u8]| drop(config::load(bytes, "c.yaml", &[]));
    Reader { name: "configs", sound: yaml, signs, rounds: 500, most_bytes: 16 * MIB, read: &read }.check();

    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("a.toml", TOML), ("a.sh", SCRIPT)] {
        let path = dir.path().join(name);
        let read = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            drop(config::import::import(&[Source::File(path.clone())]));
        };
        let sound = vec![text.as_bytes().to_vec()];
        Reader { name: "imports", sound, signs: b"'\"\\$%[]={}\n\t#.-,\0\xFF", rounds: 400, most_bytes: 16 * MIB, read: &read }.check();
    }
}

/// Aliases of aliases: a few hundred bytes that stand for billions.
#[test]
fn a_config_that_unfolds_without_end_is_refused_within_its_memory() {
    let folds: String = (1..30).map(|i| format!("b{i}: &b{i} [*b{0}, *b{0}, *b{0}, *b{0}]\n", i - 1)).collect();
    let deep = format!("name: {}", "[".repeat(100_000));
    for bomb in [format!("b0: &b0 [x, x, x, x]\n{folds}"), deep] {
        let (loaded, held) = peak(|| config::load(bomb.as_bytes(), "c.yaml", &[]).map(drop));
        assert!(loaded.is_err() && held < 64 * MIB, "{held} bytes");
    }
}

#[test]
fn damaged_safetensors_are_read_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let header = r#"{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}}"#;
    let sound = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[7; 32]].concat();
    let path = dir.path().join("a.safetensors");
    let read = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        std::hint::black_box(read_tensors(&path));
    };
    let signs = b"0123456789[]{},:\"-e\0";
    Reader { name: "safetensors", sound: vec![sound], signs, rounds: 3000, most_bytes: MIB, read: &read }.check();
}

/// All numbers of a file.
fn read_tensors(path: &Path) -> Option<f32> {
    let file = weights::safetensors::File::open(path).ok()?;
    let tensors = file.names().filter_map(|name| file.tensor(name).ok());
    Some(tensors.filter_map(|tensor| tensor.to_f32().ok()).flatten().sum())
}
