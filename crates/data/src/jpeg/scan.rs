//! One pass over a JPEG's picture: which blocks it holds in which order, and how each is coded (ITU-T T.81, F and G).

use super::bits::{Bits, Table, cut_short};
use super::{Component, Frame};
use anyhow::{Context, Result};

/// The tables that are defined so far.
#[derive(Default)]
pub struct Tables {
    dc: [Option<Table>; 4],
    ac: [Option<Table>; 4],
}

impl Tables {
    pub fn define(&mut self, mut segment: &[u8]) -> Result<()> {
        while let Some((place, rest)) = segment.split_first() {
            let (counts, rest) = rest.split_at_checked(16).ok_or_else(cut_short)?;
            let symbols: usize = counts.iter().map(|count| usize::from(*count)).sum();
            let (symbols, rest) = rest.split_at_checked(symbols).ok_or_else(cut_short)?;
            let tables = if place >> 4 == 0 { &mut self.dc } else { &mut self.ac };
            tables[usize::from(place & 3)] = Some(Table::new(counts, symbols)?);
            segment = rest;
        }
        Ok(())
    }
}

fn used(table: &Option<Table>) -> Result<&Table> {
    table.as_ref().context("damaged JPEG file: a table of codes is missing")
}

/// A component of a scan, and its tables.
struct Part {
    component: usize,
    dc: usize,
    ac: usize,
}

/// What a scan's header says.
pub struct Scan {
    parts: Vec<Part>,
    /// The first and the last coefficient.
    band: [usize; 2],
    /// The bits that are sent, and whether higher ones were before.
    low: u8,
    refines: bool,
}

impl Scan {
    /// None if it fits no frame: whether such a file can be read is its decoder's matter.
    pub fn of(segment: &[u8], frame: &Frame) -> Option<Scan> {
        let (count, rest) = segment.split_first()?;
        let (parts, rest) = rest.split_at_checked(usize::from(*count) * 2)?;
        let [first, last, bits] = *rest.first_chunk()?;
        let part = |pair: &[u8]| {
            let component = frame.components.iter().position(|component| component.id == pair[0])?;
            Some(Part { component, dc: usize::from(pair[1] >> 4 & 3), ac: usize::from(pair[1] & 3) })
        };
        let parts = parts.chunks_exact(2).map(part).collect::<Option<Vec<_>>>()?;
        let band = if frame.is_progressive { [first, last].map(usize::from) } else { [0, 63] };
        let fits = !parts.is_empty() && band[0] <= band[1] && band[1] < 64 && (band[0] == 0 || parts.len() == 1);
        let (low, refines) = if frame.is_progressive { (bits & 15, bits >> 4 > 0) } else { (0, false) };
        fits.then_some(Scan { parts, band, low, refines })
    }

    /// Reads all blocks of the scan, whose data begin at `start`; gives the place behind them.
    pub fn read(&self, frame: &mut Frame, tables: &Tables, interval: usize, bytes: &[u8], start: usize) -> Result<usize> {
        let mut bits = Bits::new(bytes, start);
        let alone = self.parts.len() == 1;
        let (across, down) = if alone { frame.own_blocks(self.parts[0].component) } else { frame.units() };
        let mut run = 0;
        for unit in 0..across * down {
            if interval > 0 && unit > 0 && unit % interval == 0 {
                bits.restart()?;
                run = 0;
            }
            let (x, y) = (unit % across, unit / across);
            for part in &self.parts {
                let component = &mut frame.components[part.component];
                let [wide, high] = if alone { [1, 1] } else { component.blocks };
                for block in 0..wide * high {
                    let place = (y * high + block / wide) * component.row + x * wide + block % wide;
                    self.block(&mut bits, component, place, part, tables, (frame.is_progressive, &mut run))?;
                }
            }
        }
        for part in &self.parts {
            frame.components[part.component].sent[self.band[0]..=self.band[1]].fill(self.low);
        }
        bits.end()
    }

    fn block(
        &self,
        bits: &mut Bits,
        component: &mut Component,
        place: usize,
        part: &Part,
        tables: &Tables,
        (is_progressive, run): (bool, &mut u32),
    ) -> Result<()> {
        let (dc, ac) = (&tables.dc[part.dc], &tables.ac[part.ac]);
        if !is_progressive {
            return whole(bits, used(dc)?, used(ac)?);
        }
        match (self.band[0], self.refines) {
            (0, true) => bits.skip(1),
            (0, false) => first(bits, used(dc)?),
            (_, true) => refined(bits, used(ac)?, self.band, run, component.known(place)?),
            (_, false) => begun(bits, used(ac)?, self.band, run, component.known(place)?),
        }
    }
}

/// The mean of a block.
fn first(bits: &mut Bits, dc: &Table) -> Result<()> {
    let size = bits.symbol(dc)?;
    bits.skip(size.min(16))
}

/// Zeros, and the size of the number behind them.
fn pair(bits: &mut Bits, ac: &Table) -> Result<(usize, u8)> {
    let symbol = bits.symbol(ac)?;
    Ok((usize::from(symbol >> 4), symbol & 15))
}

/// A block of a file with one pass.
fn whole(bits: &mut Bits, dc: &Table, ac: &Table) -> Result<()> {
    first(bits, dc)?;
    let mut k = 1;
    while k < 64 {
        match pair(bits, ac)? {
            (15, 0) => k += 16,
            (_, 0) => break,
            (zeros, size) => {
                bits.skip(size)?;
                k += zeros + 1;
            }
        }
    }
    Ok(())
}

/// The first bits of a band. `known` are the coefficients that are not 0; `run` counts blocks that end where they begin.
fn begun(bits: &mut Bits, ac: &Table, [mut k, last]: [usize; 2], run: &mut u32, known: &mut u64) -> Result<()> {
    if *run > 0 {
        *run -= 1;
        return Ok(());
    }
    while k <= last {
        match pair(bits, ac)? {
            (15, 0) => k += 16,
            (length, 0) => {
                *run = (1 << length) - 1 + bits.number(length as u8)?;
                break;
            }
            (zeros, size) => {
                bits.skip(size)?;
                k += zeros;
                *known |= 1u64.checked_shl(k as u32).unwrap_or(0);
                k += 1;
            }
        }
    }
    Ok(())
}

/// One more bit of a band: one for each coefficient that is known, and those that become so.
fn refined(bits: &mut Bits, ac: &Table, [mut k, last]: [usize; 2], run: &mut u32, known: &mut u64) -> Result<()> {
    while *run == 0 && k <= last {
        let (mut zeros, size) = pair(bits, ac)?;
        if size == 0 && zeros < 15 {
            *run = (1 << zeros) + bits.number(zeros as u8)?;
            break;
        }
        bits.skip(u8::from(size > 0))?;
        while k <= last {
            if *known >> k & 1 == 1 {
                bits.skip(1)?;
            } else if zeros == 0 {
                break;
            } else {
                zeros -= 1;
            }
            k += 1;
        }
        if size > 0 && k <= last {
            *known |= 1 << k;
        }
        k += 1;
    }
    if *run > 0 {
        let rest = (k..=last).filter(|k| *known >> k & 1 == 1).count();
        (0..rest).try_for_each(|_| bits.skip(1))?;
        *run -= 1;
    }
    Ok(())
}
