//! `constant`: the base rate throughout.

use super::{Curve, Entry, Warmup};

pub(super) const ENTRY: Entry = Entry { name: "constant", default_warmup: Warmup::Steps(0), build: |_| Ok(Box::new(Constant)) };

pub(super) struct Constant;

impl Curve for Constant {
    fn at(&self, _progress: f64) -> f64 {
        1.0
    }
}
