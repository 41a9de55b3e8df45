//! `polynomial`: from the base rate to `min_lr` along (1 − progress)^`power` (diffusers' `get_polynomial_decay_schedule_with_warmup`).

use super::{Curve, Entry, Point, Request, Warmup, min_share};
use crate::hyper::POSITIVE;
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "polynomial", aliases: &["polynomiallr"], warmup: Warmup::Steps(0), build };

struct Polynomial {
    power: f64,
    min: f64,
}

fn build(mut request: Request) -> Result<Box<dyn Curve>> {
    let min = min_share(&mut request)?;
    Ok(Box::new(Polynomial { power: request.hyper.number(&["power"], 1.0, POSITIVE)?, min }))
}

impl Curve for Polynomial {
    fn at(&self, point: Point) -> f64 {
        self.min + (1.0 - self.min) * (1.0 - point.progress()).powf(self.power)
    }
}
