//! `linear`: a straight line from the base rate to `min_lr`.

use super::{Curve, Entry, Point, Warmup, min_share};

pub(super) const ENTRY: Entry = Entry {
    name: "linear",
    aliases: &["linearlr"],
    warmup: Warmup::Steps(0),
    build: |mut request| Ok(Box::new(Linear { min: min_share(&mut request)? })),
};

struct Linear {
    min: f64,
}

impl Curve for Linear {
    fn at(&self, point: Point) -> f64 {
        self.min + (1.0 - self.min) * (1.0 - point.progress())
    }
}
