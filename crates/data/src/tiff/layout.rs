//! What the fields of a page say about its pixels; kinds that can't be read are refused here, each by its name.

use super::fields::Page;
use crate::decode::admit;
use crate::format::Format;
use anyhow::{Context, Result, bail, ensure};

pub const COLOURS: u16 = 262;
const WIDTH: u16 = 256;
const HEIGHT: u16 = 257;
const BITS: u16 = 258;
const COMPRESSION: u16 = 259;
const SAMPLES: u16 = 277;
const ROWS_PER_STRIP: u16 = 278;
const PALETTE: u16 = 320;
const TILE_WIDTH: u16 = 322;
const TILE_HEIGHT: u16 = 323;
const INK_SET: u16 = 332;
const EXTRA_SAMPLES: u16 = 338;
const SAMPLE_FORMAT: u16 = 339;

/// What the colours of a pixel are.
#[derive(Clone, Debug, PartialEq)]
pub enum Colours {
    Grey { is_white_zero: bool },
    Rgb,
    Palette(Vec<[u8; 3]>),
    Inks,
    Luma,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alpha {
    None,
    Plain,
    /// The colours are multiplied by it.
    Multiplied,
}

pub struct Layout {
    pub size: (u32, u32),
    pub pixels: u64,
    pub bits: u64,
    pub colours: Colours,
    pub alpha: Alpha,
    /// Samples of a pixel as they are decoded: its colours, and what stands beside them.
    pub channels: usize,
    /// Strips or tiles, in JPEG.
    pub is_jpeg: bool,
    /// Width and height of a strip or tile.
    pub chunk: (u64, u64),
}

/// Pixels by which a tile may be larger than its picture: nobody asks for room for it.
const MOST_OVER: u64 = 1 << 24;

/// More samples in a pixel are no picture.
const MOST_SAMPLES: u64 = 32;

impl Layout {
    pub fn of(page: &Page) -> Result<Layout> {
        let (width, height) = (page.number(WIDTH), page.number(HEIGHT));
        let (width, height) = width.zip(height).context("damaged TIFF file: it does not say its size")?;
        let pixels = admit(Format::Tiff, width, height)?;
        let compression = page.number(COMPRESSION).unwrap_or(1);
        admit_compression(compression)?;
        let samples = page.number(SAMPLES).unwrap_or(1);
        let (colours, base) = colours(page)?;
        let extra = page.numbers(EXTRA_SAMPLES).unwrap_or_default();
        let unnamed = samples.checked_sub(extra.len() as u64).and_then(|named| named.checked_sub(base));
        let named = match extra.first() {
            Some(1) => Alpha::Multiplied,
            Some(2) => Alpha::Plain,
            _ => Alpha::None,
        };
        let is_grey = base == 1;
        let alpha = match unnamed {
            Some(0) => named,
            Some(1) if extra.is_empty() && !matches!(colours, Colours::Palette(_)) => Alpha::Plain,
            _ => bail!("{}", unreadable(&format!("of {samples} channels"))),
        };
        ensure!(samples <= if is_grey { 2 } else { MOST_SAMPLES }, "{}", unreadable(&format!("of {samples} channels")));
        // The decoder leaves out what stands beside colours, but not what stands beside grey.
        let channels = if is_grey { samples as usize } else { base as usize + usize::from(alpha != Alpha::None) };
        let bits = page.number(BITS).unwrap_or(1);
        admit_numbers(page, bits, samples == 1, &colours)?;
        let chunk = match page.number(TILE_WIDTH).zip(page.number(TILE_HEIGHT)) {
            Some(tile) => tile,
            None => (width, page.number(ROWS_PER_STRIP).unwrap_or(height).min(height)),
        };
        let fits = (1..=pixels + MOST_OVER).contains(&chunk.0.saturating_mul(chunk.1));
        ensure!(fits, "damaged TIFF file: its tiles have a size that can't be");
        let size = (u32::try_from(width)?, u32::try_from(height)?);
        Ok(Layout { size, pixels, bits, colours, alpha, channels, is_jpeg: compression == 7, chunk })
    }

    /// Bytes of the picture as it is decoded, at most.
    pub fn stored(&self) -> u64 {
        (self.pixels * self.channels as u64 * self.bits).div_ceil(8) + u64::from(self.size.1) * self.channels as u64
    }
}

fn unreadable(what: &str) -> String {
    format!("a TIFF picture {what}, which can't be read here; convert it to PNG")
}

fn admit_compression(number: u64) -> Result<()> {
    let name = match number {
        1 | 4 | 5 | 7 | 8 | 32773 | 32946 => return Ok(()),
        2 | 3 => "as a fax of the older kinds (CCITT RLE, group 3)",
        6 => "as JPEG of the older kind",
        34712 | 33003 | 33005 => "as JPEG 2000",
        34887 => "as LERC",
        34925 => "by LZMA",
        50000 => "by Zstandard",
        50001 => "as WebP",
        50002 | 52546 => "as JPEG XL",
        other => bail!("{}", unreadable(&format!("with the compression {other}"))),
    };
    bail!("{}", unreadable(&format!("compressed {name}")))
}

/// What the colours are, and of how many samples.
fn colours(page: &Page) -> Result<(Colours, u64)> {
    Ok(match page.number(COLOURS) {
        Some(0) => (Colours::Grey { is_white_zero: true }, 1),
        Some(1) => (Colours::Grey { is_white_zero: false }, 1),
        Some(2) => (Colours::Rgb, 3),
        Some(3) => (Colours::Palette(palette(page)?), 1),
        Some(4) => bail!("{}", unreadable("that is only a mask of another")),
        Some(5) => {
            ensure!(page.number(INK_SET).unwrap_or(1) == 1, "{}", unreadable("in inks other than CMYK"));
            (Colours::Inks, 4)
        }
        Some(6) => (Colours::Luma, 3),
        Some(8..=10) => bail!("{}", unreadable("in Lab colours")),
        Some(32803 | 34892) => bail!("{}", unreadable("with the raw data of a camera")),
        Some(32844 | 32845) => bail!("{}", unreadable("in LogLuv colours")),
        Some(other) => bail!("{}", unreadable(&format!("with colours of the kind {other}"))),
        None => bail!("damaged TIFF file: it does not say what its colours are"),
    })
}

/// All reds, all greens, all blues, in 16 bits each.
fn palette(page: &Page) -> Result<Vec<[u8; 3]>> {
    let bits = page.number(BITS).unwrap_or(1);
    let values = page.numbers(PALETTE).unwrap_or_default();
    let count = values.len() / 3;
    ensure!(bits <= 16 && count > 0 && values.len() == 3 << bits, "damaged TIFF file: its palette has not the colours that it should");
    // Some programs wrote eight bits where sixteen belong.
    let step = if values.iter().all(|value| *value < 256) { 1 } else { 257 };
    let level = |value: u64| ((value + step / 2) / step).min(255) as u8;
    Ok((0..count).map(|i| [0, 1, 2].map(|c| level(values[c * count + i]))).collect())
}

fn admit_numbers(page: &Page, bits: u64, is_alone: bool, colours: &Colours) -> Result<()> {
    let format = page.number(SAMPLE_FORMAT).unwrap_or(1);
    let kind = match format {
        1 => "",
        2 => "in signed numbers",
        3 => "in floating point",
        5 | 6 => "in complex numbers",
        _ => "in numbers of an unknown kind",
    };
    let is_known = match (format, colours) {
        (_, Colours::Luma) => format == 1 && bits == 8,
        (_, Colours::Inks) => format == 1 && matches!(bits, 8 | 16),
        (_, Colours::Palette(_)) => format == 1 && matches!(bits, 1 | 2 | 4 | 8 | 16),
        (1, _) => matches!(bits, 8 | 16 | 32 | 64) || is_alone && matches!(bits, 1 | 2 | 4),
        (3, _) => matches!(bits, 16 | 32 | 64),
        _ => false,
    };
    ensure!(is_known, "{}", unreadable(format!("of {bits} bits a sample {kind}").trim_end()));
    Ok(())
}
