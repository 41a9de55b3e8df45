//! `one_cycle`: up to the base rate and down again within one run (Smith & Topin, "Super-Convergence", 2018), as PyTorch's
//! `OneCycleLR` has it.
//!
//! The rate begins at rate/`div_factor`, reaches its height at `pct_start` of the run, and ends at the beginning's value divided by
//! `final_div_factor`; with `three_phase` it is back at the beginning's value at twice `pct_start`. `anneal_strategy`: `cos`, `linear`.

use super::cosine::half_wave;
use super::{Curve, Entry, Point, Request, Warmup};
use crate::hyper::{AT_LEAST_ONE, SHARE};
use anyhow::{Result, ensure};

pub(super) const ENTRY: Entry =
    Entry { name: "one_cycle", aliases: &["onecyclelr"], warmup: Warmup::Never("its rise is pct_start of the run"), build };

struct OneCycle {
    /// Share of the run at which a phase ends, and the steps that PyTorch takes off (1 or 2, as it counts from 0).
    ends: Vec<[f64; 2]>,
    /// Shares of the base rate at the phases' borders: one more than there are phases.
    heights: Vec<f64>,
    straight: bool,
}

fn build(request: Request) -> Result<Box<dyn Curve>> {
    let hyper = request.hyper;
    let pct_start = hyper.number(&["pct_start"], 0.3, SHARE)?;
    let begin = 1.0 / hyper.number(&["div_factor"], 25.0, AT_LEAST_ONE)?;
    let end = begin / hyper.number(&["final_div_factor"], 1e4, AT_LEAST_ONE)?;
    let straight = hyper.choice(&["anneal_strategy"], &["cos", "linear"])? == "linear";
    let cycle = match hyper.flag(&["three_phase"], false)? {
        false => OneCycle { ends: vec![[pct_start, 1.0], [1.0, 1.0]], heights: vec![begin, 1.0, end], straight },
        true => {
            ensure!(pct_start <= 0.5, "learning-rate schedule one_cycle: with three_phase, pct_start must be at most 0.5");
            let ends = vec![[pct_start, 1.0], [2.0 * pct_start, 2.0], [1.0, 1.0]];
            OneCycle { ends, heights: vec![begin, 1.0, begin, end], straight }
        }
    };
    Ok(Box::new(cycle))
}

impl Curve for OneCycle {
    fn at(&self, point: Point) -> f64 {
        let step = point.step.min(point.length - 1) as f64;
        let mut begin = 0.0;
        for (phase, [share, less]) in self.ends.iter().enumerate() {
            let end = share * point.length as f64 - less;
            if step <= end || phase + 1 == self.ends.len() {
                let progress = if end > begin { ((step - begin) / (end - begin)).min(1.0) } else { 1.0 };
                let left = if self.straight { 1.0 - progress } else { half_wave(progress) };
                return self.heights[phase + 1] + (self.heights[phase] - self.heights[phase + 1]) * left;
            }
            begin = end;
        }
        1.0
    }
}
