//! `exponential`: each step has `gamma` times the rate of the one before, not below `min_lr` (PyTorch's `ExponentialLR`).
//!
//! Without `gamma` the rate falls to `min_lr` at the end of the run, or to a hundredth of the base rate if that is 0.

use super::{Curve, Entry, Point, Request, Warmup, min_share};
use crate::hyper::DECAY_TO_ONE;
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "exponential", aliases: &["exponentiallr"], warmup: Warmup::Steps(0), build };

struct Exponential {
    gamma: Option<f64>,
    min: f64,
}

fn build(mut request: Request) -> Result<Box<dyn Curve>> {
    let min = min_share(&mut request)?;
    Ok(Box::new(Exponential { gamma: request.hyper.optional(&["gamma"], DECAY_TO_ONE)?, min }))
}

impl Curve for Exponential {
    fn at(&self, point: Point) -> f64 {
        let end = if self.min > 0.0 { self.min } else { 0.01 };
        let fallen = match self.gamma {
            Some(gamma) => gamma.powf(point.step as f64),
            None => end.powf(point.progress()),
        };
        fallen.max(self.min)
    }
}
