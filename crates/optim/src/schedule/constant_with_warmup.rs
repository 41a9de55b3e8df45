//! `constant_with_warmup`: rises to the base rate and stays there. 1000 warm-up steps unless given, ai-toolkit's default.

use super::constant::Constant;
use super::{Entry, Warmup};

pub(super) const ENTRY: Entry =
    Entry { name: "constant_with_warmup", default_warmup: Warmup::Steps(1000), build: |_| Ok(Box::new(Constant)) };
