//! `cosine_with_restarts`: falls along half a cosine wave from the base rate to `min_lr`, again and again (Loshchilov & Hutter,
//! "SGDR: Stochastic Gradient Descent with Warm Restarts", 2017, equation 5).
//!
//! `num_cycles` equal cycles fill the run (diffusers, kohya), or the first lasts `T_0` steps and each `T_mult` times as long as the
//! one before (PyTorch's `CosineAnnealingWarmRestarts`).

use super::cosine::half_wave;
use super::{Curve, Entry, Point, Request, Warmup, min_share, steps_or_share};
use crate::hyper::{AT_LEAST_ONE, POSITIVE};
use anyhow::{Result, ensure};

pub(super) const ENTRY: Entry = Entry {
    name: "cosine_with_restarts",
    aliases: &["cosinewithhardrestarts", "cosineannealingwarmrestarts"],
    warmup: Warmup::Steps(0),
    build,
};

struct Restarts {
    min: f64,
    cycles: Cycles,
}

enum Cycles {
    /// So many, of equal length.
    Equal(f64),
    /// The first is `first` steps long, each next one `factor` times as long as the one before.
    Growing { first: u64, factor: u64 },
}

fn build(mut request: Request) -> Result<Box<dyn Curve>> {
    let min = min_share(&mut request)?;
    let length = request.total.saturating_sub(request.warmup).max(1);
    let first = steps_or_share(&mut request, &["T_0", "first_cycle_steps"], POSITIVE, length)?;
    let hyper = request.hyper;
    let counted = hyper.gives(&["num_cycles"]);
    ensure!(first.is_none() || !counted, "num_cycles and T_0 both set the length of the cycles: give one");
    let cycles = match first {
        Some(first) => Cycles::Growing { first: first.max(1), factor: hyper.whole(&["T_mult"], 1, [1, 100])? },
        None => Cycles::Equal(hyper.number(&["num_cycles"], 1.0, AT_LEAST_ONE)?),
    };
    Ok(Box::new(Restarts { min, cycles }))
}

impl Curve for Restarts {
    fn at(&self, point: Point) -> f64 {
        let within = match self.cycles {
            _ if point.step == point.length => 1.0,
            Cycles::Equal(count) => (count * point.progress()).fract(),
            Cycles::Growing { first, factor } => {
                let (mut step, mut length) = (point.step, first);
                while step >= length {
                    step -= length;
                    length = length.saturating_mul(factor);
                }
                step as f64 / length as f64
            }
        };
        self.min + (1.0 - self.min) * half_wave(within)
    }
}
