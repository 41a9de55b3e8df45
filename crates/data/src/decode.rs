//! From the bytes of a file to upright 8-bit RGB.
//!
//! Orientation from EXIF is applied; alpha is laid over white; grey becomes three equal channels; 16-bit values are scaled, not
//! clamped. The declared size is checked before anything is allocated. Colour profiles are not applied yet: values are taken as
//! sRGB.

use crate::format::{Kind, cut_short, sniff};
use anyhow::{Result, anyhow, bail, ensure};
use image::codecs::{gif::GifDecoder, png::PngDecoder, webp::WebPDecoder};
use image::metadata::Orientation;
use image::{AnimationDecoder, DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use std::io::Cursor;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Pictures with more pixels are refused: beyond any camera, and what decompression bombs declare.
pub const MOST_PIXELS: u64 = 1 << 27;

/// Width and height of an upright picture in 8-bit RGB, rows from the top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rgb {
    pub width: u32,
    pub height: u32,
    pub pixels: Vec<u8>,
}

/// A picture, and whether its file holds more frames than this first one.
pub struct Decoded {
    pub rgb: Rgb,
    pub animated: bool,
}

/// Decodes a whole file. Every failure is an error that says what is wrong with the file.
pub fn decode(bytes: &[u8]) -> Result<Decoded> {
    let format = match sniff(bytes) {
        Kind::Picture(format) => format,
        Kind::Unreadable(what) => bail!("{what}"),
        Kind::Unknown => bail!("{}", crate::format::describe_unknown(&bytes[..bytes.len().min(crate::format::HEAD)])),
    };
    if let Some(why) = cut_short(format, bytes) {
        bail!("{why}");
    }
    // The decoders are other people's code fed with other people's files: what they get wrong is that file's error.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode_as(format, bytes)));
    decoded.unwrap_or_else(|_| Err(anyhow!("the decoder failed on it (a damaged {} file?)", name(format))))
}

fn decode_as(format: ImageFormat, bytes: &[u8]) -> Result<Decoded> {
    let damaged = |e: image::ImageError| anyhow!("damaged {} file: {e}", name(format));
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MOST_PIXELS * 8 + (1 << 26));
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(damaged)?;
    let (width, height) = decoder.dimensions();
    ensure!(width > 0 && height > 0, "damaged {} file: it declares {width}×{height} pixels", name(format));
    let pixels = u64::from(width) * u64::from(height);
    ensure!(pixels <= MOST_PIXELS, "it declares {width}×{height} pixels, more than the {MOST_PIXELS} that are accepted");
    let orientation = decoder.orientation().unwrap_or(Orientation::NoTransforms);
    let mut image = DynamicImage::from_decoder(decoder).map_err(damaged)?;
    image.apply_orientation(orientation);
    Ok(Decoded { rgb: to_rgb(image), animated: is_animated(format, bytes) })
}

fn name(format: ImageFormat) -> &'static str {
    match format {
        ImageFormat::Png => "PNG",
        ImageFormat::Jpeg => "JPEG",
        ImageFormat::Gif => "GIF",
        ImageFormat::WebP => "WebP",
        ImageFormat::Tiff => "TIFF",
        ImageFormat::Bmp => "BMP",
        _ => "picture",
    }
}

fn to_rgb(image: DynamicImage) -> Rgb {
    let (width, height) = (image.width(), image.height());
    let pixels = if image.color().has_alpha() { over_white(&image.into_rgba8()) } else { image.into_rgb8().into_raw() };
    Rgb { width, height, pixels }
}

/// alpha · colour + (1 − alpha) · white, rounded.
fn over_white(rgba: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(rgba.len() / 4 * 3);
    for pixel in rgba.chunks_exact(4) {
        let alpha = u32::from(pixel[3]);
        out.extend(pixel[..3].iter().map(|c| ((u32::from(*c) * alpha + 255 * (255 - alpha) + 127) / 255) as u8));
    }
    out
}

fn is_animated(format: ImageFormat, bytes: &[u8]) -> bool {
    let cursor = Cursor::new(bytes);
    match format {
        ImageFormat::Png => PngDecoder::new(cursor).is_ok_and(|d| d.is_apng().unwrap_or(false)),
        ImageFormat::WebP => WebPDecoder::new(cursor).is_ok_and(|d| d.has_animation()),
        ImageFormat::Gif => GifDecoder::new(cursor).is_ok_and(|d| d.into_frames().take(2).count() > 1),
        _ => false,
    }
}
