//! `linear`: a straight line from the base rate to `min_lr`.

use super::{Curve, Entry, Warmup, min_share};

pub(super) const ENTRY: Entry =
    Entry { name: "linear", default_warmup: Warmup::Steps(0), build: |request| Ok(Box::new(Linear { min: min_share(request)? })) };

struct Linear {
    min: f64,
}

impl Curve for Linear {
    fn at(&self, progress: f64) -> f64 {
        self.min + (1.0 - self.min) * (1.0 - progress)
    }
}
