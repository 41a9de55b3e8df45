//! `rex`: the reflected exponential (Chen et al., "REX: Revisiting Budgeted Training with an Improved Schedule", 2022), from the base
//! rate to `min_lr` along (1 − z)/(1 − d + d(1 − z)), z the progress; `d` is 0.5 in the paper, larger values stay high for longer.

use super::{Curve, Entry, Point, Request, Warmup, min_share};
use crate::hyper::DECAY;
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "rex", aliases: &["rexlr", "rexscheduler"], warmup: Warmup::Steps(0), build };

struct Rex {
    d: f64,
    min: f64,
}

fn build(mut request: Request) -> Result<Box<dyn Curve>> {
    let min = min_share(&mut request)?;
    Ok(Box::new(Rex { d: request.hyper.number(&["d"], 0.5, DECAY)?, min }))
}

impl Curve for Rex {
    fn at(&self, point: Point) -> f64 {
        let left = 1.0 - point.progress();
        self.min + (1.0 - self.min) * left / (1.0 - self.d + self.d * left)
    }
}
