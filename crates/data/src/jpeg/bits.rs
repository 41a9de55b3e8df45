//! The entropy-coded data of a JPEG, bit by bit, and the codes in them.

use anyhow::{Result, anyhow, bail, ensure};

/// Length and symbol of the code that sixteen bits begin with; a length of 0: they begin with none.
pub struct Table(Vec<(u8, u8)>);

impl Table {
    /// By the number of codes of each length, and their symbols in order.
    pub fn new(counts: &[u8], symbols: &[u8]) -> Result<Table> {
        let mut codes = vec![(0, 0); 1 << 16];
        let (mut at, mut symbols) = (0, symbols.iter());
        for (length, count) in (1u8..).zip(counts) {
            for symbol in symbols.by_ref().take(usize::from(*count)) {
                let width = 1 << (16 - length);
                let Some(places) = codes.get_mut(at..at + width) else { bail!("damaged JPEG file: a table of codes is overfull") };
                places.fill((length, *symbol));
                at += width;
            }
        }
        Ok(Table(codes))
    }
}

/// Zeros in front of the end and behind it that are no coincidence.
const ZEROS: usize = 16;

/// Coded data up to the next marker, in which 0xFF is followed by 0.
pub struct Bits<'a> {
    bytes: &'a [u8],
    start: usize,
    /// The next byte that is taken.
    at: usize,
    /// What was taken and not used, from the highest bit on.
    taken: u64,
    count: u32,
}

pub fn cut_short() -> anyhow::Error {
    anyhow!("cut short: the end of the picture is missing")
}

impl<'a> Bits<'a> {
    pub fn new(bytes: &'a [u8], start: usize) -> Bits<'a> {
        Bits { bytes, start, at: start, taken: 0, count: 0 }
    }

    fn fill(&mut self) {
        while self.count <= 56 {
            let byte = match (self.bytes.get(self.at), self.bytes.get(self.at + 1)) {
                (Some(0xFF), Some(0)) => 0xFF,
                (Some(0xFF), Some(0xFF)) => {
                    self.at += 1;
                    continue;
                }
                (Some(0xFF), _) | (None, _) => return,
                (Some(byte), _) => *byte,
            };
            self.at += if byte == 0xFF { 2 } else { 1 };
            self.taken |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
    }

    pub fn skip(&mut self, bits: u8) -> Result<()> {
        if u32::from(bits) > self.count {
            self.fill();
            ensure!(u32::from(bits) <= self.count, cut_short());
        }
        self.taken <<= bits;
        self.count -= u32::from(bits);
        Ok(())
    }

    /// Up to sixteen bits as a number.
    pub fn number(&mut self, bits: u8) -> Result<u32> {
        if self.count < 16 {
            self.fill();
        }
        let number = if bits == 0 { 0 } else { (self.taken >> (64 - u32::from(bits))) as u32 };
        self.skip(bits).map(|()| number)
    }

    pub fn symbol(&mut self, table: &Table) -> Result<u8> {
        if self.count < 16 {
            self.fill();
        }
        let (length, symbol) = table.0[(self.taken >> 48) as usize];
        // Behind the end zeros were read, which may be no code.
        ensure!(length > 0 || self.count >= 16, cut_short());
        ensure!(length > 0, "damaged JPEG file: the data of its picture make no sense from byte {} on", self.place());
        self.skip(length).map(|()| symbol)
    }

    /// The first whole byte that is not used.
    fn place(&self) -> usize {
        self.at - (self.count / 8) as usize
    }

    /// Ends a stretch of data whose blocks are all read; gives the place of the marker behind it. What encoders fill up with in front of
    /// a marker is no matter, but zeros that began among the blocks stand where others should.
    pub fn end(&self) -> Result<usize> {
        let place = self.place();
        let mut end = self.at;
        while end + 1 < self.bytes.len() && (self.bytes[end] != 0xFF || matches!(self.bytes[end + 1], 0 | 0xFF)) {
            end += 1;
        }
        let zeros = |from: usize, to: usize| self.bytes[from..to].iter().all(|byte| *byte == 0);
        let began = place >= self.start + ZEROS && zeros(place - ZEROS, place);
        ensure!(!began || end == place || !zeros(place, end), "damaged JPEG file: zeros where the rest of its picture should be");
        Ok(end)
    }

    /// Goes on behind a restart marker, which must come next.
    pub fn restart(&mut self) -> Result<()> {
        let end = self.end()?;
        ensure!(matches!(self.bytes.get(end + 1), Some(0xD0..=0xD7)), cut_short());
        *self = Bits::new(self.bytes, end + 2);
        Ok(())
    }
}
