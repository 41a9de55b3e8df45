//! TIFF: its pages (`fields`), what they are made of (`layout`), and their samples as a picture (`colours`).
//!
//! The decoder takes strips and tiles apart. Everything around them is read here: it knows no palettes and no transparency beside
//! grey, and looks at the first page, which may be a small copy of the picture.

mod colours;
mod fields;
mod layout;

use crate::decode::Upright;
use crate::gate::DECODING;
use crate::jpeg;
use ::tiff::TiffError;
use ::tiff::decoder::{Decoder, DecodingResult, Limits};
use anyhow::{Context, Result, anyhow, ensure};
use colours::picture_of;
use fields::{Page, pages};
use image::metadata::Orientation;
use layout::{Colours, Layout};
use std::io::{Cursor, Read, Result as IoResult, Seek, SeekFrom};

const KIND_OF_PAGE: u16 = 254;
const OLD_KIND_OF_PAGE: u16 = 255;
const ORIENTATION: u16 = 274;
const STRIPS: [u16; 2] = [273, 279];
const TILES: [u16; 2] = [324, 325];
const JPEG_TABLES: u16 = 347;
const PROFILE: u16 = 34675;

/// Larger profiles are not used: those of presses have a few million bytes.
const MOST_PROFILE: usize = 1 << 24;

pub fn read(bytes: &[u8]) -> Result<Upright> {
    let pages = pages(bytes);
    let whole: Vec<&Page> = pages.iter().filter(|page| !is_reduced(page)).collect();
    let page = whole.first().copied().or(pages.first()).context("damaged TIFF file: it has no whole page")?;
    let layout = Layout::of(page)?;
    let room = DECODING.enter(held(&layout));
    if layout.is_jpeg {
        check_jpeg(bytes, page, &layout)?;
    }
    let (samples, row_bytes, planes) = decode(bytes, page, &layout)?;
    let icc = page.bytes(PROFILE).filter(|icc| icc.len() <= MOST_PROFILE).map(<[u8]>::to_vec);
    let is_profile_lost = icc.is_none() && page.has(PROFILE);
    let (mut image, icc, warning) = picture_of(samples, row_bytes, planes, &layout, icc)?;
    image.apply_orientation(turned(page).unwrap_or(Orientation::NoTransforms));
    let mut warnings: Vec<String> = warning.into_iter().collect();
    if is_profile_lost {
        warnings.push("its colour profile is not used: it is damaged or larger than 16 MiB".to_string());
    }
    if whole.len() > 1 {
        warnings.push("it has several pages: only the first is used".to_string());
    }
    Ok(Upright { image, icc, warnings, room })
}

/// How the picture of a file, or of the file that an EXIF block is from, has to be turned.
pub fn orientation(bytes: &[u8]) -> Option<Orientation> {
    turned(pages(bytes).first()?)
}

fn turned(page: &Page) -> Option<Orientation> {
    Orientation::from_exif(u8::try_from(page.number(ORIENTATION)?).ok()?)
}

/// A small copy of another page, or a mask for it.
fn is_reduced(page: &Page) -> bool {
    page.number(KIND_OF_PAGE).is_some_and(|kind| kind & 0b101 > 0) || page.number(OLD_KIND_OF_PAGE) == Some(2)
}

/// Bytes that it takes: as it is decoded (twice, where a JPEG is inside), in 8 or 16 bits, as a picture, and what is made of it.
fn held(layout: &Layout) -> u64 {
    let deep = if layout.bits > 8 { 2 } else { 1 };
    let inside = if layout.is_jpeg { layout.stored() + 9 * layout.pixels } else { 0 };
    layout.stored() + inside + layout.pixels * (deep * (layout.channels as u64 + 4) + 4)
}

/// The samples, the bytes of a row, and in how many planes they are.
fn decode(bytes: &[u8], page: &Page, layout: &Layout) -> Result<(DecodingResult, usize, usize)> {
    let mut patches = page.alone().to_vec();
    if matches!(layout.colours, Colours::Grey { .. } | Colours::Palette(_)) {
        const BLACK_IS_ZERO: u64 = 1;
        patches.extend(page.with_number(layout::COLOURS, BLACK_IS_ZERO));
    }
    let mut limits = Limits::default();
    limits.decoding_buffer_size = usize::try_from(layout.stored())?;
    limits.intermediate_buffer_size = bytes.len().max(1 << 26);
    limits.ifd_value_size = 1 << 26;
    let decoder = Decoder::new(Patched { file: Cursor::new(bytes), patches }).map_err(refused)?;
    let mut samples = DecodingResult::U8(Vec::new());
    let found = decoder.with_limits(limits).read_image_to_buffer(&mut samples).map_err(refused)?;
    let row_bytes = found.row_stride.map_or(0, usize::from);
    ensure!(row_bytes > 0 && samples.as_buffer(0).byte_len() >= found.complete_len, "damaged TIFF file: its planes are not whole");
    Ok((samples, row_bytes, found.planes))
}

fn refused(error: TiffError) -> anyhow::Error {
    match error {
        TiffError::UnsupportedError(what) => anyhow!("a TIFF picture of a kind that can't be read here ({what}); convert it to PNG"),
        error => anyhow!("damaged TIFF file: {error}"),
    }
}

/// Every strip or tile in JPEG must be whole and no larger than its place, which its decoder doesn't look at.
fn check_jpeg(bytes: &[u8], page: &Page, layout: &Layout) -> Result<()> {
    let [places, lengths] = if page.has(TILES[0]) { TILES } else { STRIPS };
    let (places, lengths) = (page.numbers(places).unwrap_or_default(), page.numbers(lengths).unwrap_or_default());
    let tables = page.bytes(JPEG_TABLES);
    let most = layout.chunk.0.next_multiple_of(64) * layout.chunk.1.next_multiple_of(64);
    for (place, length) in places.into_iter().zip(lengths) {
        let (place, length) = (usize::try_from(place)?, usize::try_from(length)?);
        let part = bytes.get(place..).map(|rest| &rest[..length.min(rest.len())]).unwrap_or_default();
        // The tables are a JPEG without a picture: its end, and the picture's beginning, are two bytes each.
        let stream = match tables {
            Some(tables) => [tables.get(..tables.len().saturating_sub(2)).unwrap_or_default(), part.get(2..).unwrap_or_default()].concat(),
            None => part.to_vec(),
        };
        jpeg::admit(&stream)?;
        let declared = jpeg::size(&stream).map_or(0, |(width, height)| u64::from(width) * u64::from(height));
        ensure!(declared <= most, "damaged TIFF file: a JPEG in it is larger than its place");
        jpeg::check(&stream)?;
    }
    Ok(())
}

/// A file with other bytes in some places.
struct Patched<'a> {
    file: Cursor<&'a [u8]>,
    patches: Vec<(usize, Vec<u8>)>,
}

impl Read for Patched<'_> {
    fn read(&mut self, out: &mut [u8]) -> IoResult<usize> {
        let start = self.file.position() as usize;
        let count = self.file.read(out)?;
        for (at, patch) in &self.patches {
            for (place, byte) in (*at..).zip(patch).filter(|(place, _)| (start..start + count).contains(place)) {
                out[place - start] = *byte;
            }
        }
        Ok(count)
    }
}

impl Seek for Patched<'_> {
    fn seek(&mut self, to: SeekFrom) -> IoResult<u64> {
        self.file.seek(to)
    }
}
