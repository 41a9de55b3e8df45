//! From samples as they are stored to a picture: numbers to 8 or 16 bits, then palettes, inks and luma to RGB.

use super::layout::{Alpha, Colours, Layout};
use crate::colour;
use crate::samples::{Channels, Samples, picture};
use ::tiff::decoder::DecodingResult;
use anyhow::{Result, bail, ensure};
use image::DynamicImage;
use moxcms::DataColorSpace;

/// A number of 8 or 16 bits.
trait Level: Copy + Into<u32> {
    const MOST: u32;
    fn of(value: u32) -> Self;
}

impl Level for u8 {
    const MOST: u32 = 0xFF;
    fn of(value: u32) -> u8 {
        value.min(Self::MOST) as u8
    }
}

impl Level for u16 {
    const MOST: u32 = 0xFFFF;
    fn of(value: u32) -> u16 {
        value.min(Self::MOST) as u16
    }
}

/// The picture, the profile that its colours still have to go through, and a warning about it.
pub fn picture_of(
    samples: DecodingResult,
    row_bytes: usize,
    planes: usize,
    layout: &Layout,
    icc: Option<Vec<u8>>,
) -> Result<(DynamicImage, Option<Vec<u8>>, Option<String>)> {
    let samples = match numbers(samples, row_bytes, layout)? {
        Samples::Eight(values) => Samples::Eight(arranged(values, planes, layout)),
        Samples::Sixteen(values) => Samples::Sixteen(arranged(values, planes, layout)),
    };
    let has_alpha = layout.alpha != Alpha::None;
    let (samples, colours, icc, warning) = match &layout.colours {
        Colours::Grey { .. } => (samples, 1, icc, None),
        Colours::Rgb => (samples, 3, icc, None),
        Colours::Palette(palette) => (Samples::Eight(looked_up(samples, palette, has_alpha)), 3, icc, None),
        Colours::Luma => (luma(samples, has_alpha), 3, icc, None),
        Colours::Inks => {
            let (samples, warning) = printed(samples, has_alpha, icc.as_deref())?;
            (samples, 3, None, warning)
        }
    };
    Ok((picture(samples, Channels::new(colours, has_alpha), layout.size)?, icc, warning))
}

/// Stored numbers in 8 or 16 bits; places in a palette as they are.
fn numbers(samples: DecodingResult, row_bytes: usize, layout: &Layout) -> Result<Samples> {
    Ok(match samples {
        DecodingResult::U8(values) if layout.bits < 8 => Samples::Eight(unpacked(&values, row_bytes, layout)),
        DecodingResult::U8(values) => Samples::Eight(values),
        DecodingResult::U16(values) => Samples::Sixteen(values),
        DecodingResult::U32(values) => Samples::Sixteen(values.into_iter().map(sixteen).collect()),
        DecodingResult::U64(values) => Samples::Sixteen(values.into_iter().map(|value| sixteen((value >> 32) as u32)).collect()),
        DecodingResult::F16(values) => floats(values.len(), values.iter().map(|value| value.to_f32()))?,
        DecodingResult::F32(values) => floats(values.len(), values.iter().copied())?,
        DecodingResult::F64(values) => floats(values.len(), values.iter().map(|value| *value as f32))?,
        _ => bail!("a TIFF picture in signed numbers, which can't be read here; convert it to PNG"),
    })
}

fn sixteen(value: u32) -> u16 {
    ((u64::from(value) + 0x8000) / 0x1_0001) as u16
}

/// Samples of less than a byte, rows of whole bytes.
fn unpacked(values: &[u8], row_bytes: usize, layout: &Layout) -> Vec<u8> {
    let bits = layout.bits as usize;
    let most = (1u8 << bits) - 1;
    let scale = if matches!(layout.colours, Colours::Palette(_)) { 1 } else { 255 / most };
    let sample = |row: &[u8], x: usize| (row[x * bits / 8] >> (8 - bits - x * bits % 8) & most) * scale;
    values.chunks_exact(row_bytes).flat_map(|row| (0..layout.size.0 as usize).map(move |x| sample(row, x))).collect()
}

/// Only 0 to 1 is known to mean black to white; rounding may carry a value beyond it.
fn floats(count: usize, values: impl Iterator<Item = f32> + Clone) -> Result<Samples> {
    const ROUNDING: f32 = 0.5 / 255.0;
    let (mut least, mut most) = (0f32, 0f32);
    for value in values.clone() {
        ensure!(
            !value.is_nan(),
            "a TIFF picture in floating point with values that are no numbers (NaN), which can't be read here; fill them with some of 0 to 1, \
             or convert it to PNG"
        );
        (least, most) = (least.min(value), most.max(value));
    }
    ensure!(
        least >= -ROUNDING && most <= 1.0 + ROUNDING,
        "a TIFF picture in floating point with values of {least} to {most}, which can't be read here; bring them to 0 to 1, or convert it to \
         PNG"
    );
    let mut samples = Samples::Sixteen(Vec::with_capacity(count));
    values.for_each(|value| samples.push(value));
    Ok(samples)
}

/// Channel beside channel, black at zero, colours not multiplied by alpha, and nothing beside them but alpha.
fn arranged<T: Level>(values: Vec<T>, planes: usize, layout: &Layout) -> Vec<T> {
    let values = if planes > 1 { interleaved(&values, planes) } else { values };
    let is_white_zero = layout.colours == Colours::Grey { is_white_zero: true };
    let has_alpha = layout.alpha != Alpha::None;
    let is_grey_beside = layout.channels == 2 && !has_alpha;
    if !is_white_zero && !is_grey_beside && layout.alpha != Alpha::Multiplied {
        return values;
    }
    let colours = if is_grey_beside { 1 } else { layout.channels - usize::from(has_alpha) };
    let mut out = Vec::with_capacity(values.len());
    for pixel in values.chunks_exact(layout.channels) {
        let alpha = if layout.alpha == Alpha::Multiplied { pixel[colours].into() } else { T::MOST };
        for colour in &pixel[..colours] {
            let divided = ((*colour).into() * T::MOST + alpha / 2).checked_div(alpha).unwrap_or(0).min(T::MOST);
            out.push(T::of(if is_white_zero { T::MOST - divided } else { divided }));
        }
        out.extend(pixel[colours..].iter().take(usize::from(has_alpha)));
    }
    out
}

fn interleaved<T: Copy>(values: &[T], planes: usize) -> Vec<T> {
    let pixels = values.len() / planes;
    (0..pixels).flat_map(|i| (0..planes).map(move |plane| values[plane * pixels + i])).collect()
}

/// The colours of the places in a palette; a place behind its end shows black.
fn looked_up(samples: Samples, palette: &[[u8; 3]], has_alpha: bool) -> Vec<u8> {
    let colour = |place: usize| palette.get(place).copied().unwrap_or_default();
    let step = 1 + usize::from(has_alpha);
    let pixel = |place: usize, alpha: Option<u8>| colour(place).into_iter().chain(alpha);
    match samples {
        Samples::Eight(values) => values.chunks_exact(step).flat_map(|v| pixel(v[0].into(), v.get(1).copied())).collect(),
        Samples::Sixteen(values) => {
            values.chunks_exact(step).flat_map(|v| pixel(v[0].into(), v.get(1).map(|alpha| (alpha >> 8) as u8))).collect()
        }
    }
}

/// Luma and colour differences by the equations of JFIF.
fn luma(samples: Samples, has_alpha: bool) -> Samples {
    let Samples::Eight(mut values) = samples else { return samples };
    for pixel in values.chunks_exact_mut(3 + usize::from(has_alpha)) {
        let light = colour::jfif([pixel[0], pixel[1], pixel[2]]);
        pixel[..3].copy_from_slice(&light);
    }
    Samples::Eight(values)
}

/// Inks by the file's profile, or by the usual conversion, then with a warning if there is one that can't be used.
fn printed(samples: Samples, has_alpha: bool, icc: Option<&[u8]>) -> Result<(Samples, Option<String>)> {
    let by_profile = icc.map(|icc| {
        let profile = colour::read(icc)?;
        let space = profile.color_space;
        ensure!(space == DataColorSpace::Cmyk, "it is for {space:?} pictures, and this one is in CMYK");
        Ok(match &samples {
            Samples::Eight(values) => {
                let inks = split(values, has_alpha);
                Samples::Eight(joined(&colour::from_inks(&inks, &profile)?, values, has_alpha))
            }
            Samples::Sixteen(values) => {
                let inks = split(values, has_alpha);
                Samples::Sixteen(joined(&colour::from_deep_inks(&inks, &profile)?, values, has_alpha))
            }
        })
    });
    let warning = match by_profile {
        Some(Ok(samples)) => return Ok((samples, None)),
        Some(Err(error)) => Some(format!("its colour profile is not used: {error:#}")),
        None => None,
    };
    let samples = match samples {
        Samples::Eight(values) => Samples::Eight(joined(&plain(&values, has_alpha), &values, has_alpha)),
        Samples::Sixteen(values) => Samples::Sixteen(joined(&plain(&values, has_alpha), &values, has_alpha)),
    };
    Ok((samples, warning))
}

/// The inks without alpha.
fn split<T: Copy>(values: &[T], has_alpha: bool) -> Vec<T> {
    values.chunks_exact(4 + usize::from(has_alpha)).flat_map(|pixel| pixel[..4].iter().copied()).collect()
}

/// Colours with the alpha of the pixels that they come from.
fn joined<T: Copy>(rgb: &[T], pixels: &[T], has_alpha: bool) -> Vec<T> {
    let pairs = rgb.chunks_exact(3).zip(pixels.chunks_exact(4 + usize::from(has_alpha)));
    pairs.flat_map(|(rgb, pixel)| rgb.iter().chain(pixel.get(4)).copied()).collect()
}

/// Each ink takes away its light, and black all of it.
fn plain<T: Level>(values: &[T], has_alpha: bool) -> Vec<T> {
    let light = |ink: T| u64::from(T::MOST - ink.into());
    let most = u64::from(T::MOST);
    let shown = |ink: T, black: T| T::of(((light(ink) * light(black) + most / 2) / most) as u32);
    values.chunks_exact(4 + usize::from(has_alpha)).flat_map(|pixel| [0, 1, 2].map(|c| shown(pixel[c], pixel[3]))).collect()
}
