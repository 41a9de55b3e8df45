//! From whatever a file holds to 8-bit sRGB: colour profiles, bit depths, grey, CMYK.
//!
//! An embedded ICC profile is obeyed; one that can't be used gives a warning and the raw values. Profiles that come to sRGB within
//! one level leave every value as it is. 16-bit values go through the profile in 16 bits and are scaled afterwards, not clamped.

use anyhow::{Context, Result, bail, ensure};
use image::DynamicImage;
use moxcms::{ColorProfile, DataColorSpace, Layout, TransformOptions};

/// An upright picture: `[height, width, 3]` and, if the file has one, `[height, width]` of alpha.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planes {
    pub rgb: Vec<u8>,
    pub alpha: Option<Vec<u8>>,
}

/// Takes a decoded picture apart and brings its colours to sRGB; the text is a warning about its profile.
pub fn planes(image: DynamicImage, icc: Option<&[u8]>) -> (Planes, Option<String>) {
    let alpha = alpha(&image);
    let converted = icc.map(|icc| through_profile(&image, icc));
    let (rgb, warning) = match converted {
        Some(Ok(Some(rgb))) => (rgb, None),
        Some(Err(error)) => (image.into_rgb8().into_raw(), Some(format!("its colour profile is not used: {error:#}"))),
        Some(Ok(None)) | None => (image.into_rgb8().into_raw(), None),
    };
    (Planes { rgb, alpha }, warning)
}

/// Alpha in 8 bits, without a copy of the colours.
fn alpha(image: &DynamicImage) -> Option<Vec<u8>> {
    match image {
        DynamicImage::ImageLumaA8(image) => Some(image.pixels().map(|pixel| pixel.0[1]).collect()),
        DynamicImage::ImageRgba8(image) => Some(image.pixels().map(|pixel| pixel.0[3]).collect()),
        DynamicImage::ImageLumaA16(image) => Some(image.pixels().map(|pixel| eight_bits(pixel.0[1])).collect()),
        DynamicImage::ImageRgba16(image) => Some(image.pixels().map(|pixel| eight_bits(pixel.0[3])).collect()),
        image => image.color().has_alpha().then(|| image.to_rgba8().pixels().map(|pixel| pixel.0[3]).collect()),
    }
}

fn eight_bits(value: u16) -> u8 {
    ((u32::from(value) + 128) / 257) as u8
}

/// The colours in sRGB, or nothing if the profile is sRGB's already.
fn through_profile(image: &DynamicImage, icc: &[u8]) -> Result<Option<Vec<u8>>> {
    let profile = read(icc)?;
    match profile.color_space {
        DataColorSpace::Rgb if is_srgb(&profile)? => Ok(None),
        DataColorSpace::Rgb => convert(image, &profile, Layout::Rgb).map(Some),
        DataColorSpace::Gray => {
            ensure!(!image.color().has_color(), "it is for grey pictures, and this one has colours");
            convert(image, &profile, Layout::Gray).map(Some)
        }
        other => bail!("it is for {other:?} pictures, and this one is read as RGB"),
    }
}

/// Reads a profile.
pub fn read(icc: &[u8]) -> Result<ColorProfile> {
    ColorProfile::new_from_slice(icc).map_err(|error| anyhow::anyhow!("it is damaged ({error})"))
}

/// Pixels that are brought to sRGB at a time: what stands between the picture and its colours in 8 bits stays small.
const STRIP: u32 = 1 << 15;

fn convert(image: &DynamicImage, profile: &ColorProfile, layout: Layout) -> Result<Vec<u8>> {
    let (width, height) = (image.width(), image.height());
    let rows = (STRIP / width.max(1)).max(1);
    let strips = (0..height).step_by(rows as usize).map(|top| image.crop_imm(0, top, width, rows.min(height - top)));
    let mut rgb = Vec::with_capacity(width as usize * height as usize * 3);
    let values = |strip: &DynamicImage| strip.width() as usize * strip.height() as usize * 3;
    let (srgb, options, is_grey) = (ColorProfile::new_srgb(), TransformOptions::default(), layout == Layout::Gray);
    if image.color().bytes_per_pixel() / image.color().channel_count() > 1 {
        let transform = profile.create_transform_16bit(layout, &srgb, Layout::Rgb, options).context("no way to sRGB")?;
        for strip in strips {
            let count = values(&strip);
            let source = if is_grey { strip.into_luma16().into_raw() } else { strip.into_rgb16().into_raw() };
            let mut out = vec![0; count];
            transform.transform(&source, &mut out).context("it can't be applied")?;
            rgb.extend(out.into_iter().map(eight_bits));
        }
    } else {
        let transform = profile.create_transform_8bit(layout, &srgb, Layout::Rgb, options).context("no way to sRGB")?;
        for strip in strips {
            let at = rgb.len();
            rgb.resize(at + values(&strip), 0);
            let source = if is_grey { strip.into_luma8().into_raw() } else { strip.into_rgb8().into_raw() };
            transform.transform(&source, &mut rgb[at..]).context("it can't be applied")?;
        }
    }
    Ok(rgb)
}

/// Does an RGB profile leave a lattice of colours within one level of where they are?
fn is_srgb(profile: &ColorProfile) -> Result<bool> {
    let level = |i: usize| (i * 51) as u8;
    let lattice: Vec<u8> = (0..216).flat_map(|i| [level(i / 36), level(i / 6 % 6), level(i % 6)]).collect();
    let options = TransformOptions::default();
    let transform =
        profile.create_transform_8bit(Layout::Rgb, &ColorProfile::new_srgb(), Layout::Rgb, options).context("no way to sRGB")?;
    let mut out = vec![0; lattice.len()];
    transform.transform(&lattice, &mut out).context("it can't be applied")?;
    Ok(lattice.iter().zip(&out).all(|(a, b)| a.abs_diff(*b) <= 1))
}

/// A JPEG in CMYK or YCCK, by its own CMYK profile: `[height, width, 3]` in sRGB.
pub fn cmyk_jpeg(bytes: &[u8], profile: &ColorProfile) -> Result<Vec<u8>> {
    from_inks(&inks(bytes)?, profile)
}

/// Four inks by their profile, 255 is full ink, to three colours of sRGB.
pub fn from_inks(inks: &[u8], profile: &ColorProfile) -> Result<Vec<u8>> {
    let options = TransformOptions::default();
    // Four channels of ink share the layout of four channels of light.
    let transform =
        profile.create_transform_8bit(Layout::Rgba, &ColorProfile::new_srgb(), Layout::Rgb, options).context("no way to sRGB")?;
    let mut out = vec![0; inks.len() / 4 * 3];
    transform.transform(inks, &mut out).context("it can't be applied")?;
    Ok(out)
}

/// The same in 16 bits.
pub fn from_deep_inks(inks: &[u16], profile: &ColorProfile) -> Result<Vec<u16>> {
    let options = TransformOptions::default();
    let transform =
        profile.create_transform_16bit(Layout::Rgba, &ColorProfile::new_srgb(), Layout::Rgb, options).context("no way to sRGB")?;
    let mut out = vec![0; inks.len() / 4 * 3];
    transform.transform(inks, &mut out).context("it can't be applied")?;
    Ok(out)
}

/// From luma and colour differences to light, by JFIF's equations.
pub fn jfif(pixel: [u8; 3]) -> [u8; 3] {
    let [y, cb, cr] = pixel.map(f32::from);
    let light = [y + 1.402 * (cr - 128.0), y - 0.344_136 * (cb - 128.0) - 0.714_136 * (cr - 128.0), y + 1.772 * (cb - 128.0)];
    light.map(|value| value.round().clamp(0.0, 255.0) as u8)
}

/// `[height, width, 4]` of cyan, magenta, yellow and black; 255 is full ink. Files hold them inverted, as Adobe does.
fn inks(bytes: &[u8]) -> Result<Vec<u8>> {
    use zune_jpeg::JpegDecoder;
    use zune_jpeg::zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions};
    let options = DecoderOptions::default().set_strict_mode(false).set_max_width(usize::MAX).set_max_height(usize::MAX);
    let damaged = |error| anyhow::anyhow!("damaged JPEG file: {error:?}");
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(damaged)?;
    let space = decoder.input_colorspace().context("damaged JPEG file: no colour space")?;
    ensure!(matches!(space, ColorSpace::CMYK | ColorSpace::YCCK), "the picture is in {space:?}");
    decoder.set_options(options.jpeg_set_out_colorspace(space));
    let mut values = decoder.decode().map_err(damaged)?;
    for pixel in values.chunks_exact_mut(4) {
        if space == ColorSpace::YCCK {
            // Light is 255 minus Adobe's inverted cyan, magenta, yellow.
            let light = jfif([pixel[0], pixel[1], pixel[2]]);
            (0..3).for_each(|c| pixel[c] = 255 - light[c]);
        }
        pixel.iter_mut().for_each(|v| *v = 255 - *v);
    }
    Ok(values)
}

/// Lays a picture over a colour: α · picture + (1 − α) · background, rounded.
pub fn flatten(planes: &mut Planes, background: [u8; 3]) {
    for (pixel, alpha) in planes.rgb.chunks_exact_mut(3).zip(planes.alpha.iter().flatten()) {
        let alpha = u32::from(*alpha);
        for (value, below) in pixel.iter_mut().zip(background) {
            *value = ((u32::from(*value) * alpha + u32::from(below) * (255 - alpha) + 127) / 255) as u8;
        }
    }
}
