//! AdamW with both moments in blocks of 8 bits (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022): two bytes
//! for each parameter, and two scales for each block of 256.

use super::adam::{Bits, Decay, parse};
use super::{ADAM, Entry};

pub(super) const ENTRY: Entry = Entry {
    name: "adamw8bit",
    aliases: &["adamw8", "pagedadamw8bit"],
    rates: ADAM,
    version: 1,
    parse: |hyper| parse(hyper, Decay::Decoupled, Bits::Eight, 0.01),
};
