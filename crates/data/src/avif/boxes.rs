//! The boxes of an ISO base media file, and numbers in them. Nothing is trusted: whatever would reach past its box is an error.

use anyhow::{Context, Result, bail, ensure};

/// The four letters that name a box, an item, a reference or a brand.
pub type Kind = [u8; 4];

/// How a kind is told.
pub fn name(kind: Kind) -> String {
    kind.trim_ascii_end().escape_ascii().to_string()
}

/// Bytes that are read from their front.
#[derive(Clone, Copy)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, length: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length).context("damaged AVIF file: a box ends too early")?;
        self.0 = rest;
        Ok(taken)
    }

    /// A number of up to eight bytes, the highest first.
    pub fn number(&mut self, length: usize) -> Result<u64> {
        Ok(self.take(length)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    pub fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub fn two(&mut self) -> Result<u16> {
        Ok(self.number(2)? as u16)
    }

    pub fn four(&mut self) -> Result<u32> {
        Ok(self.number(4)? as u32)
    }

    pub fn kind(&mut self) -> Result<Kind> {
        Ok(self.take(4)?.try_into()?)
    }

    /// Version and flags, which begin many boxes.
    pub fn version(&mut self) -> Result<(u8, u32)> {
        let word = self.four()?;
        Ok(((word >> 24) as u8, word & 0xFF_FFFF))
    }

    /// The next box: its kind and content.
    pub fn next_box(&mut self) -> Result<(Kind, Reader<'a>)> {
        let all = self.0.len() as u64;
        let (short, kind) = (self.number(4)?, self.kind()?);
        let size = match short {
            0 => all,
            1 => self.number(8)?,
            size => size,
        };
        let head = all - self.0.len() as u64;
        ensure!(size >= head, "damaged AVIF file: the box {} is shorter than its head", name(kind));
        if size > all {
            bail!("cut short: the end of the box {} is missing", name(kind));
        }
        Ok((kind, Reader(self.take((size - head) as usize)?)))
    }
}
