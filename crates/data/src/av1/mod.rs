//! AV1 pictures, decoded in a process of its own.
//!
//! The decoder (rav1d) is entered and works through `extern "C"` functions, in which Rust turns a panic into the end of the process.
//! So it runs in a child: this very program, started again with a hidden command (`client`, `server`). What a damaged file does to
//! the decoder is an error about that file, and what it may take of memory and time is bounded by the system.
//!
//! On the pipes, for each picture: a [`Request`] and the stream, then a [`Reply`] and the planes, row by row without gaps, 8-bit
//! samples in one byte and deeper ones in two. Both sides compute sizes from what was declared, and believe nothing else.

mod client;
mod server;

pub use client::{Decoder, use_program};
pub use server::serve;

use anyhow::{Context, Result, ensure};

/// The hidden command that makes this program a decoder.
pub const COMMAND: &str = "av1";

/// How colours are sampled beside luma.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    Grey,
    /// Halves in both directions.
    Quarters,
    /// Halves across.
    Halves,
    Full,
}

impl Layout {
    /// In the order of their codes.
    const ALL: [Layout; 4] = [Layout::Grey, Layout::Quarters, Layout::Halves, Layout::Full];

    fn from_code(code: u8) -> Result<Layout> {
        Layout::ALL.get(usize::from(code)).copied().with_context(|| format!("unknown sampling {code}"))
    }

    pub fn planes(self) -> usize {
        if self == Layout::Grey { 1 } else { 3 }
    }

    /// Width and height of a plane of a picture of this size.
    pub fn plane(self, plane: usize, (width, height): (usize, usize)) -> (usize, usize) {
        match self {
            _ if plane == 0 => (width, height),
            Layout::Quarters => (width.div_ceil(2), height.div_ceil(2)),
            Layout::Halves => (width.div_ceil(2), height),
            Layout::Full | Layout::Grey => (width, height),
        }
    }
}

/// What is asked of the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    pub width: u32,
    pub height: u32,
    pub operating_point: u8,
    /// Bytes of the stream.
    pub length: u32,
}

impl Request {
    const BYTES: usize = 13;

    fn to_bytes(self) -> [u8; Request::BYTES] {
        let mut bytes = [0; Request::BYTES];
        bytes[..4].copy_from_slice(&self.width.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.height.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12] = self.operating_point;
        bytes
    }

    fn from_bytes(bytes: [u8; Request::BYTES]) -> Request {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Request { width: number(0), height: number(4), length: number(8), operating_point: bytes[12] }
    }
}

/// What the stream says of its picture. Its size is the one that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    pub layout: Layout,
    /// Bits of a sample: 8, 10 or 12.
    pub depth: u8,
    /// Code points of ITU-T H.273.
    pub primaries: u8,
    pub transfer: u8,
    pub matrix: u8,
    pub is_full_range: bool,
}

impl Reply {
    const BYTES: usize = 6;

    fn to_bytes(self) -> [u8; Reply::BYTES] {
        [self.layout as u8, self.depth, self.primaries, self.transfer, self.matrix, self.is_full_range.into()]
    }

    fn from_bytes([layout, depth, primaries, transfer, matrix, is_full_range]: [u8; Reply::BYTES]) -> Result<Reply> {
        ensure!([8, 10, 12].contains(&depth), "samples of {depth} bits");
        Ok(Reply { layout: Layout::from_code(layout)?, depth, primaries, transfer, matrix, is_full_range: is_full_range != 0 })
    }

    pub fn sample_bytes(&self) -> usize {
        if self.depth == 8 { 1 } else { 2 }
    }

    /// Bytes of all planes of a picture of this size.
    pub fn bytes(&self, size: (usize, usize)) -> usize {
        let samples = |plane| {
            let (width, height) = self.layout.plane(plane, size);
            width * height
        };
        (0..self.layout.planes()).map(samples).sum::<usize>() * self.sample_bytes()
    }
}

/// A decoded picture: luma (or grey), and the two planes of colour behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    pub width: usize,
    pub height: usize,
    pub reply: Reply,
    pub samples: Vec<u8>,
}

impl Picture {
    /// A row of a plane, in bytes.
    pub fn row(&self, plane: usize, y: usize) -> &[u8] {
        let range = self.range(plane, y);
        &self.samples[range]
    }

    pub fn row_mut(&mut self, plane: usize, y: usize) -> &mut [u8] {
        let range = self.range(plane, y);
        &mut self.samples[range]
    }

    fn range(&self, plane: usize, y: usize) -> std::ops::Range<usize> {
        let (layout, size, bytes) = (self.reply.layout, (self.width, self.height), self.reply.sample_bytes());
        let before: usize = (0..plane).map(|plane| layout.plane(plane, size)).map(|(width, height)| width * height).sum();
        let (width, _) = layout.plane(plane, size);
        let start = (before + y * width) * bytes;
        start..start + width * bytes
    }
}
