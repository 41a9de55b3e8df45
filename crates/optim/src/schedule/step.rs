//! `step`: the rate is multiplied by `gamma` after every `step_size` steps, not below `min_lr` (PyTorch's `StepLR`).
//! `step_size` below 1 is a share of the run after the warm-up.

use super::{Curve, Entry, Point, Request, Warmup, min_share, steps_or_share};
use crate::hyper::{POSITIVE, SHARE};
use anyhow::{Context, Result};

pub(super) const ENTRY: Entry = Entry { name: "step", aliases: &["steplr"], warmup: Warmup::Steps(0), build };

struct Step {
    size: u64,
    gamma: f64,
    min: f64,
}

fn build(mut request: Request) -> Result<Box<dyn Curve>> {
    let min = min_share(&mut request)?;
    let length = request.total.saturating_sub(request.warmup).max(1);
    let size = steps_or_share(&mut request, &["step_size"], POSITIVE, length)?;
    let size = size.context("learning-rate schedule step: step_size is missing: after how many steps the rate is multiplied by gamma")?;
    Ok(Box::new(Step { size: size.max(1), gamma: request.hyper.number(&["gamma"], 0.1, SHARE)?, min }))
}

impl Curve for Step {
    fn at(&self, point: Point) -> f64 {
        self.gamma.powf((point.step / self.size) as f64).max(self.min)
    }
}
