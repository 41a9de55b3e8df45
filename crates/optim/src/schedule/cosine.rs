//! `cosine`: half a cosine wave from the base rate to `min_lr` (Loshchilov & Hutter, "SGDR", 2017, equation 5, one cycle).

use super::{Curve, Entry, Point, Warmup, min_share};

pub(super) const ENTRY: Entry = Entry {
    name: "cosine",
    aliases: &["cosineannealing", "cosineannealinglr", "cosinewithminlr"],
    warmup: Warmup::Steps(0),
    build: |mut request| Ok(Box::new(Cosine { min: min_share(&mut request)? })),
};

struct Cosine {
    min: f64,
}

impl Curve for Cosine {
    fn at(&self, point: Point) -> f64 {
        self.min + (1.0 - self.min) * half_wave(point.progress())
    }
}

/// From 1 to 0 as `progress` goes from 0 to 1.
pub(super) fn half_wave(progress: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * progress).cos())
}
