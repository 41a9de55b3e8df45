//! From the bytes of a file to upright 8-bit sRGB.
//!
//! Orientation from EXIF is applied; alpha is laid over a colour and kept beside; the rest about colours is in `colour`. The
//! declared size is checked before anything is allocated.

use crate::colour::{self, flatten};
use crate::format::{Format, Kind, is_cut_short, sniff};
pub use crate::gate::LIMIT as MOST_BYTES;

use crate::gate::{DECODING, Room};
use crate::{avif, gif, jpeg, jxl, png, tiff};
use anyhow::{Context, Result, anyhow, bail, ensure};
use image::codecs::webp::WebPDecoder;
use image::error::UnsupportedErrorKind;
use image::metadata::Orientation;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, RgbImage};
use moxcms::DataColorSpace;
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Pictures with more pixels are refused: beyond any camera, and what decompression bombs declare.
pub const MOST_PIXELS: u64 = 1 << 27;

/// What transparent pictures are laid over unless a dataset says otherwise.
pub const WHITE: [u8; 3] = [255; 3];

/// Width and height of an upright picture in 8-bit RGB, rows from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rgb {
    pub width: u32,
    pub height: u32,
    pub pixels: Vec<u8>,
}

/// The first frame of a file.
#[derive(Debug)]
pub struct Decoded {
    pub rgb: Rgb,
    /// `[height, width]`, if the file has transparency.
    pub alpha: Option<Vec<u8>>,
    /// What its owner should know: that there are more frames, that its profile is not used.
    pub warnings: Vec<String>,
    /// Bytes that decoding took at most, with those of the file.
    pub took: u64,
}

/// Decodes a whole file, transparent parts over `background`. Every failure is an error that says what is wrong with the file.
pub fn decode(bytes: &[u8], background: [u8; 3]) -> Result<Decoded> {
    let format = match sniff(bytes) {
        Kind::Picture(format) => format,
        Kind::Unreadable(what) => bail!("{what}"),
        Kind::Unknown => bail!("{}", crate::format::describe_unknown(&bytes[..bytes.len().min(crate::format::HEAD)])),
    };
    ensure!(!is_cut_short(format, bytes), "cut short: the end of the picture is missing");
    // The decoders are other people's code fed with other people's files: what they get wrong is that file's error.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode_as(format, bytes, background)));
    let decoded = decoded.unwrap_or_else(|_| Err(anyhow!("the decoder failed on it (a damaged {} file?)", format.name())));
    // What they say may hold whatever is in the file, at any length.
    let mut decoded = decoded.map_err(|error| anyhow!(in_few_words(format!("{error:#}"))))?;
    decoded.warnings = decoded.warnings.into_iter().map(in_few_words).collect();
    Ok(decoded)
}

/// The beginning of a text that is too long to be read, and its end, which says what to do.
fn in_few_words(text: String) -> String {
    const MOST: usize = 300;
    const END: usize = 60;
    let count = text.chars().count();
    if count <= MOST {
        return text;
    }
    let head: String = text.chars().take(MOST - END).collect();
    let tail: String = text.chars().skip(count - END).collect();
    format!("{head} … {tail}")
}

/// A picture turned upright, in the colours that its file is written in.
pub(crate) struct Upright {
    pub image: DynamicImage,
    /// The profile of these colours; none: they are sRGB's.
    pub icc: Option<Vec<u8>>,
    pub warnings: Vec<String>,
    /// Room for it and for what is made of it.
    pub room: Room<'static>,
}

fn decode_as(format: Format, bytes: &[u8], background: [u8; 3]) -> Result<Decoded> {
    let stored = match format {
        Format::Avif => avif::read(bytes)?,
        Format::JpegXl => jxl::read(bytes)?,
        Format::Bmp => upright(ImageFormat::Bmp, format, bytes)?,
        Format::Gif => upright(ImageFormat::Gif, format, bytes)?,
        Format::Jpeg => upright(ImageFormat::Jpeg, format, bytes)?,
        Format::Png => upright(ImageFormat::Png, format, bytes)?,
        Format::Tiff => tiff::read(bytes)?,
        Format::WebP => upright(ImageFormat::WebP, format, bytes)?,
    };
    let Upright { image, icc, mut warnings, room } = stored;
    let (width, height) = (image.width(), image.height());
    let (mut planes, warning) = colour::planes(image, icc.as_deref());
    warnings.extend(warning);
    if planes.alpha.as_ref().is_some_and(|alpha| alpha.iter().all(|alpha| *alpha == 0)) {
        warnings.push("it is transparent everywhere: nothing of it shows".to_string());
    }
    flatten(&mut planes, background);
    Ok(Decoded { rgb: Rgb { width, height, pixels: planes.rgb }, alpha: planes.alpha, warnings, took: room.wanted + bytes.len() as u64 })
}

/// Refuses sizes that no picture has; those of others are told in pixels.
pub(crate) fn admit(format: Format, width: u64, height: u64) -> Result<u64> {
    ensure!(width > 0 && height > 0, "damaged {} file: it declares {width}×{height} pixels", format.name());
    let pixels = width.saturating_mul(height);
    ensure!(pixels <= MOST_PIXELS, "it declares {width}×{height} pixels, more than the {MOST_PIXELS} that are accepted");
    Ok(pixels)
}

/// A picture that one of the codecs at hand reads.
fn upright(codec: ImageFormat, format: Format, bytes: &[u8]) -> Result<Upright> {
    if format == Format::Jpeg {
        jpeg::admit(bytes)?;
    }
    let declared = declared(format, bytes).map(|(width, height)| admit(format, width, height)).transpose()?;
    let limits = |pixels: u64, pixel_bytes: u64| {
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(pixels * pixel_bytes + (1 << 26));
        limits
    };
    let refused = |error: ImageError| refused(format, error);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), codec);
    reader.limits(limits(declared.unwrap_or(MOST_PIXELS), 8));
    let mut decoder = reader.into_decoder().map_err(refused)?;
    let (width, height) = decoder.dimensions();
    let pixels = admit(format, width.into(), height.into())?;
    decoder.set_limits(limits(pixels, 2 * u64::from(decoder.color_type().bytes_per_pixel()))).map_err(refused)?;
    let passes = if format == Format::Jpeg { jpeg::pass_bytes(bytes) * pixels } else { 0 };
    let pixel_bytes = decoder.color_type().bytes_per_pixel();
    let room = DECODING.enter(held(pixels, pixel_bytes) + passes);
    if format == Format::Jpeg {
        jpeg::check(bytes)?;
    }
    let orientation = orientation(format, bytes, &mut decoder);
    let icc = decoder.icc_profile().ok().flatten();
    let (icc, warning) = if format == Format::Png { png::profile(bytes, icc)? } else { (icc, None) };
    let warnings = frames(format, bytes).into_iter().chain(warning).collect();
    let printed = icc.as_deref().filter(|_| format == Format::Jpeg).and_then(|icc| of_cmyk(bytes, icc, (width, height)));
    let (mut image, icc) = match printed {
        Some(image) => (image, None),
        None => (DynamicImage::from_decoder(decoder).map_err(refused)?, icc),
    };
    image.apply_orientation(orientation);
    Ok(Upright { image, icc, warnings, room })
}

/// Width and height where the first bytes tell them: before anything that could be unpacked on the way to what the decoder tells.
fn declared(format: Format, bytes: &[u8]) -> Option<(u64, u64)> {
    let two = |at: usize| Some(u64::from(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?)));
    match format {
        Format::Png => {
            let header = png::chunk(bytes, *b"IHDR")?;
            let side = |at: usize| Some(u64::from(u32::from_be_bytes(*header.get(at..)?.first_chunk()?)));
            Some((side(0)?, side(4)?))
        }
        Format::Gif => Some((two(6)?, two(8)?)),
        // The oldest header has sides of two bytes; in others a height below 0 has its rows from the top.
        Format::Bmp if bytes.get(14) == Some(&12) => Some((two(18)?, two(20)?)),
        Format::Bmp => {
            let side = |at: usize| Some(u64::from(i32::from_le_bytes(*bytes.get(at..)?.first_chunk()?).unsigned_abs()));
            Some((side(18)?, side(22)?))
        }
        _ => None,
    }
}

/// What a codec says of a file that it doesn't read: a whole one may be of a kind that it doesn't know.
fn refused(format: Format, error: ImageError) -> anyhow::Error {
    let ImageError::Unsupported(unsupported) = &error else { return anyhow!("damaged {} file: {error}", format.name()) };
    let what = match unsupported.kind() {
        UnsupportedErrorKind::GenericFeature(feature) => feature,
        UnsupportedErrorKind::Color(colours) | UnsupportedErrorKind::ColorLayout(colours) => format!("{colours:?}"),
        _ => error.to_string(),
    };
    anyhow!("a {} picture of a kind that can't be read here ({what}); convert it to PNG", format.name())
}

/// Bytes that a picture takes while it is decoded: itself, its colours in 8 bits and its alpha.
pub(crate) fn held(pixels: u64, pixel_bytes: u8) -> u64 {
    pixels * (u64::from(pixel_bytes) + 4)
}

/// A CMYK picture by its profile; nothing if it is none, or if the profile can't be used (then the usual conversion stays).
fn of_cmyk(bytes: &[u8], icc: &[u8], (width, height): (u32, u32)) -> Option<DynamicImage> {
    let profile = colour::read(icc).ok().filter(|profile| profile.color_space == DataColorSpace::Cmyk)?;
    let rgb = colour::cmyk_jpeg(bytes, &profile).ok()?;
    RgbImage::from_raw(width, height, rgb).map(DynamicImage::ImageRgb8)
}

/// How the stored picture has to be turned. In PNG files the block may stand behind the pixels, where the decoder doesn't look, and
/// it knows only numbers of two bytes.
fn orientation(format: Format, bytes: &[u8], decoder: &mut impl ImageDecoder) -> Orientation {
    let found = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    if found != Orientation::NoTransforms {
        return found;
    }
    // An EXIF block is a TIFF file without a picture.
    let exif = if format == Format::Png { png::chunk(bytes, *b"eXIf").map(<[u8]>::to_vec) } else { decoder.exif_metadata().ok().flatten() };
    exif.and_then(|exif| tiff::orientation(&exif)).unwrap_or(found)
}

/// Warnings about what comes after the first frame.
fn frames(format: Format, bytes: &[u8]) -> Vec<String> {
    let cursor = Cursor::new(bytes);
    let animated = match format {
        Format::Png => png::chunk(bytes, *b"acTL").is_some(),
        Format::WebP => WebPDecoder::new(cursor).is_ok_and(|d| d.has_animation()),
        Format::Gif => gif::has_second_frame(bytes),
        _ => false,
    };
    animated.then(|| "animated: only the first frame is used".to_string()).into_iter().collect()
}

/// Reads a picture file and decodes it; the error names the file.
pub fn read(path: &std::path::Path, background: [u8; 3]) -> Result<Decoded> {
    base::fs::read_regular(path, LARGEST_FILE).and_then(|bytes| decode(&bytes, background)).with_context(|| path.display().to_string())
}

/// Larger files are refused before they are read.
pub const LARGEST_FILE: u64 = 1 << 30;
