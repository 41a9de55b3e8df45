//! Lion with its moment in blocks of 8 bits: one byte for each parameter, and a scale for each block of 256.

use super::adam::Bits;
use super::lion::parse;
use super::{ADAM, Entry};

pub(super) const ENTRY: Entry =
    Entry { name: "lion8bit", aliases: &["lion8", "pagedlion8bit"], rates: ADAM, version: 1, parse: |hyper| parse(hyper, Bits::Eight) };
