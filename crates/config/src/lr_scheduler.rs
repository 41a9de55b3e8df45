//! `train.lr_scheduler` and `train.lr_scheduler_params`. Everything is counted in optimizer steps.

use crate::scalar::Number;
use crate::section::section;
use crate::train::not_negative;
use anyhow::{Result, bail, ensure};
use serde::Serialize;

section! {
    RawSchedulerParams {
        #[serde(alias = "num_warmup_steps")]
        warmup_steps: Number,
        /// Rate at the end of a falling schedule.
        #[serde(alias = "eta_min")]
        min_lr: Number,
    }
    no effect { total_iters: "a schedule is as long as the run", T_max: "a schedule is as long as the run", }
    not yet {}
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduler {
    Constant,
    ConstantWithWarmup,
    Cosine,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SchedulerParams {
    /// Optimizer steps, or a share of all steps if it is below 1.
    pub warmup_steps: f64,
    pub min_lr: f64,
}

impl SchedulerParams {
    /// Warm-up in optimizer steps of a run of `total` steps.
    pub fn warmup(&self, total: u64) -> u64 {
        let steps = if self.warmup_steps < 1.0 { self.warmup_steps * total as f64 } else { self.warmup_steps };
        steps.round() as u64
    }
}

pub(crate) fn resolve(name: Option<&str>, raw: RawSchedulerParams, train_warmup: Option<Number>) -> Result<(Scheduler, SchedulerParams)> {
    let warmup = match (train_warmup, raw.warmup_steps) {
        (Some(_), Some(_)) => bail!("train.lr_warmup_steps and train.lr_scheduler_params.warmup_steps are both given; keep one"),
        (a, b) => not_negative("train.lr_warmup_steps", a.or(b), 0.0)?,
    };
    ensure!(warmup < 1.0 || warmup.fract() == 0.0, "train.lr_warmup_steps: {warmup} is neither a number of steps nor a share below 1");
    let scheduler = match name.unwrap_or("constant") {
        "constant" if warmup > 0.0 => {
            bail!("train.lr_scheduler: constant has no warm-up, but train.lr_warmup_steps is {warmup}; use constant_with_warmup")
        }
        "constant" => Scheduler::Constant,
        "constant_with_warmup" => Scheduler::ConstantWithWarmup,
        "cosine" => Scheduler::Cosine,
        other @ ("linear" | "cosine_with_restarts" | "step" | "polynomial") => {
            bail!("train.lr_scheduler: {other} is not supported yet; constant, constant_with_warmup and cosine are")
        }
        other => bail!("train.lr_scheduler: {other} is unknown; it is constant, constant_with_warmup or cosine"),
    };
    let min_lr = not_negative("train.lr_scheduler_params.min_lr", raw.min_lr, 0.0)?;
    Ok((scheduler, SchedulerParams { warmup_steps: warmup, min_lr }))
}
