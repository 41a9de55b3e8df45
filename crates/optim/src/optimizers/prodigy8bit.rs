//! Prodigy with both moments in blocks of 8 bits.
//!
//! s and p₀ stay in f32: s moves by a thousandth of itself in a step, and ⟨g, p₀ − p⟩ is a difference of nearly equal numbers, so
//! both would drown in the code's rounding. Every 11th element of them is kept (`slice_p`), as `prodigyopt` recommends to save
//! memory: 2.8 bytes for each parameter where `prodigy` takes 16.

use super::adam::Bits;
use super::prodigy::parse;
use super::{Entry, FACTOR};

pub(super) const ENTRY: Entry =
    Entry { name: "prodigy8bit", aliases: &["prodigy8"], rates: FACTOR, version: 1, parse: |hyper| parse(hyper, Bits::Eight, 11) };
