//! Whether a JPEG holds its whole picture.
//!
//! Decoders fill what is missing with grey and say nothing, and a file that was cut may end in a proper mark all the same. So the coded
//! data are read through here, without making a picture of them: every block of every pass must be there. What stands behind the
//! end-of-image marker doesn't matter. Files of kinds that are not known here are left to the decoder to judge.

mod bits;
mod scan;

use anyhow::{Context, Result, bail, ensure};
use bits::cut_short;
use scan::{Scan, Tables};

/// As many passes as the decoder takes.
const MOST_SCANS: usize = 100;

/// A coefficient of which nothing was sent.
const NOTHING: u8 = u8::MAX;

/// A colour (or grey), in blocks of 8×8.
struct Component {
    id: u8,
    /// Blocks of a unit, across and down.
    blocks: [usize; 2],
    /// Blocks of a row, up to whole units.
    row: usize,
    /// The coefficients of each block that are not 0; empty where that doesn't matter.
    known: Vec<u64>,
    /// The lowest bit that was sent of each coefficient.
    sent: [u8; 64],
}

impl Component {
    fn known(&mut self, block: usize) -> Result<&mut u64> {
        self.known.get_mut(block).context("damaged JPEG file: it has more blocks than its size")
    }
}

/// What the picture is made of.
struct Frame {
    size: [usize; 2],
    is_progressive: bool,
    components: Vec<Component>,
}

impl Frame {
    /// None if it is of a kind that is not known here.
    fn of(marker: u8, segment: &[u8]) -> Option<Frame> {
        let [precision, h1, h0, w1, w0, count] = *segment.first_chunk()?;
        let size = [[w1, w0], [h1, h0]].map(|side| usize::from(u16::from_be_bytes(side)));
        let rows = segment.get(6..6 + 3 * usize::from(count))?;
        let is_progressive = marker == 0xC2;
        let component = |row: &[u8]| {
            let blocks = [row[1] >> 4, row[1] & 15].map(usize::from);
            Component { id: row[0], blocks, row: 0, known: Vec::new(), sent: [NOTHING; 64] }
        };
        let mut frame = Frame { size, is_progressive, components: rows.chunks_exact(3).map(component).collect() };
        let sampled = frame.components.iter().flat_map(|component| component.blocks).all(|blocks| (1..=4).contains(&blocks));
        if precision != 8 || !sampled || size.contains(&0) || !(1..=4).contains(&count) || !matches!(marker, 0xC0..=0xC2) {
            return None;
        }
        let (across, down) = frame.units();
        for component in &mut frame.components {
            component.row = across * component.blocks[0];
            component.known = vec![0; if is_progressive { component.row * down * component.blocks[1] } else { 0 }];
        }
        Some(frame)
    }

    /// Blocks of a unit, over all components.
    fn most(&self) -> [usize; 2] {
        [0, 1].map(|axis| self.components.iter().map(|component| component.blocks[axis]).max().unwrap_or(1))
    }

    /// Units across and down where components are mixed.
    fn units(&self) -> (usize, usize) {
        let [wide, high] = self.most();
        (self.size[0].div_ceil(8 * wide), self.size[1].div_ceil(8 * high))
    }

    /// Blocks across and down of a component that stands alone.
    fn own_blocks(&self, component: usize) -> (usize, usize) {
        let (most, own) = (self.most(), self.components[component].blocks);
        let blocks = |axis: usize| (self.size[axis] * own[axis]).div_ceil(most[axis]).div_ceil(8);
        (blocks(0), blocks(1))
    }

    /// Was everything sent that can be?
    fn is_complete(&self) -> bool {
        self.components.iter().all(|component| component.sent == [0; 64])
    }

    /// Was everything sent that must be, and what was begun to its last bit?
    fn is_whole(&self) -> bool {
        self.components.iter().all(|component| component.sent[0] != NOTHING && component.sent.iter().all(|bit| matches!(*bit, 0 | NOTHING)))
    }
}

/// Refuses whole files of kinds that no decoder here knows, as what they are.
pub fn admit(bytes: &[u8]) -> Result<()> {
    let mut at = 0;
    while let Some((marker, segment)) = segment(bytes, &mut at) {
        let kind = match (marker, segment.first()) {
            (0xC3 | 0xC7 | 0xCB | 0xCF, _) => "a lossless JPEG picture",
            (0xC9 | 0xCA | 0xCD | 0xCE, _) => "a JPEG picture in arithmetic coding",
            (0xC5 | 0xC6, _) => "a hierarchical JPEG picture",
            (0xC0..=0xC2, Some(12)) => "a JPEG picture of 12 bits",
            (0xC0..=0xC2 | 0xDA, _) => return Ok(()),
            _ => continue,
        };
        bail!("{kind}, which can't be read here; convert it to PNG");
    }
    Ok(())
}

/// Width and height.
pub fn size(bytes: &[u8]) -> Option<(u16, u16)> {
    let mut at = 0;
    while let Some((marker, segment)) = segment(bytes, &mut at) {
        if matches!(marker, 0xC0..=0xC2) {
            let [_, h1, h0, w1, w0] = *segment.first_chunk()?;
            return Some((u16::from_be_bytes([w1, w0]), u16::from_be_bytes([h1, h0])));
        }
    }
    None
}

/// Bytes for each pixel that reading a file takes beside its picture: coefficients, where several passes make the picture, and what
/// [`check`] knows of them.
pub fn pass_bytes(bytes: &[u8]) -> u64 {
    let (mut at, mut components) = (0, 0);
    while let Some((marker, segment)) = segment(bytes, &mut at) {
        match marker {
            0xC0 | 0xC1 => components = segment.get(5).copied().unwrap_or(0),
            0xC2 => return 9,
            0xDA => return if segment.first().is_some_and(|count| *count < components) { 9 } else { 0 },
            _ => {}
        }
    }
    0
}

/// An error if the file holds less than its picture. Its size must have been admitted.
pub fn check(bytes: &[u8]) -> Result<()> {
    let (mut tables, mut frame, mut interval, mut scans, mut at) = (Tables::default(), None, 0, 0, 0);
    loop {
        let Some((marker, segment)) = segment(bytes, &mut at) else {
            // Only the mark of the end is missing.
            ensure!(frame.as_ref().is_some_and(Frame::is_complete), cut_short());
            return Ok(());
        };
        match (marker, frame.as_mut()) {
            (0xD9, Some(frame)) => {
                ensure!(Frame::is_whole(frame), cut_short());
                return Ok(());
            }
            (0xC4, _) => tables.define(segment)?,
            (0xDD, _) => interval = segment.first_chunk().map_or(0, |number| usize::from(u16::from_be_bytes(*number))),
            (0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF, _) => match Frame::of(marker, segment) {
                Some(found) if frame.is_none() => frame = Some(found),
                Some(_) => bail!("damaged JPEG file: it says twice what its picture is like"),
                None => return Ok(()),
            },
            (0xDA, Some(frame)) if scans < MOST_SCANS => match Scan::of(segment, frame) {
                Some(scan) => at = scan.read(frame, &tables, interval, bytes, at)?,
                None => return Ok(()),
            },
            (0xDA | 0xD9, _) => return Ok(()),
            _ => {}
        }
        scans += usize::from(marker == 0xDA);
    }
}

/// The next marker and what belongs to it; `at` moves behind it.
fn segment<'a>(bytes: &'a [u8], at: &mut usize) -> Option<(u8, &'a [u8])> {
    *at += bytes.get(*at..)?.iter().position(|b| *b == 0xFF)?;
    *at += bytes[*at..].iter().position(|b| *b != 0xFF)?;
    let marker = bytes[*at];
    *at += 1;
    // Start and end of the picture, restarts, and two of no meaning have nothing behind them.
    if matches!(marker, 0 | 0x01 | 0xD0..=0xD9) {
        return Some((marker, &[]));
    }
    let length = usize::from(u16::from_be_bytes(*bytes.get(*at..)?.first_chunk()?)).max(2);
    let segment = bytes.get(*at + 2..*at + length)?;
    *at += length;
    Some((marker, segment))
}
