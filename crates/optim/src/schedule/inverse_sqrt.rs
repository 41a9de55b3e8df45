//! `inverse_sqrt`: √(timescale/(t + timescale)), t steps after the warm-up, not below `min_lr` (Vaswani et al., "Attention Is All You
//! Need", 2017, section 5.3; transformers' `get_inverse_sqrt_schedule`). `timescale` is the warm-up's length unless given, 10 000
//! without one.

use super::{Curve, Entry, Point, Request, Warmup, min_share};
use crate::hyper::POSITIVE;
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "inverse_sqrt", aliases: &["inversesquareroot"], warmup: Warmup::Steps(0), build };

struct InverseSqrt {
    timescale: f64,
    min: f64,
}

fn build(mut request: Request) -> Result<Box<dyn Curve>> {
    let min = min_share(&mut request)?;
    let default = if request.warmup > 0 { request.warmup as f64 } else { 10_000.0 };
    let timescale = request.hyper.optional(&["timescale"], POSITIVE)?.unwrap_or(default);
    Ok(Box::new(InverseSqrt { timescale, min }))
}

impl Curve for InverseSqrt {
    fn at(&self, point: Point) -> f64 {
        (self.timescale / (point.step as f64 + self.timescale)).sqrt().max(self.min)
    }
}
