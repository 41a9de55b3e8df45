//! AdamW: Adam with decoupled weight decay (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2):
//! p ← p·(1 − lr·λ) before Adam's step, which is in `adam.rs`.

use super::adam::{Bits, Decay, parse};
use super::{ADAM, Entry};

pub(super) const ENTRY: Entry = Entry {
    name: "adamw",
    aliases: &["pagedadamw", "pagedadamw32bit", "adamw32bit", "adamwtorchfused", "adamwfused"],
    rates: ADAM,
    version: 1,
    parse: |hyper| parse(hyper, Decay::Decoupled, Bits::Full, 0.01),
};
