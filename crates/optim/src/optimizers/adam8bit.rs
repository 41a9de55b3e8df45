//! Adam with both moments in blocks of 8 bits (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022).

use super::adam::{Bits, Decay, parse};
use super::{ADAM, Entry};

pub(super) const ENTRY: Entry = Entry {
    name: "adam8bit",
    aliases: &["adam8", "pagedadam8bit"],
    rates: ADAM,
    version: 1,
    parse: |hyper| parse(hyper, Decay::Coupled, Bits::Eight, 0.0),
};
