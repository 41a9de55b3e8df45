//! `cosine`: half a cosine wave from the base rate to `min_lr` (Loshchilov & Hutter, "SGDR", 2017, equation 5, one cycle).

use super::{Curve, Entry, Warmup, min_share};

pub(super) const ENTRY: Entry =
    Entry { name: "cosine", default_warmup: Warmup::Steps(0), build: |request| Ok(Box::new(Cosine { min: min_share(request)? })) };

struct Cosine {
    min: f64,
}

impl Curve for Cosine {
    fn at(&self, progress: f64) -> f64 {
        self.min + (1.0 - self.min) * 0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
    }
}
