//! `train.ema_config:` the moving average of the adapters, which is then what is saved and sampled.

use crate::findings::Findings;
use crate::scalar::{Flag, Number};
use crate::section::section;
use anyhow::{Result, ensure};
use serde::Serialize;

section! {
    RawEma {
        /// Whether there is one.
        use_ema: Flag,
        /// Share of the average that stays in each step.
        ema_decay: Number,
        /// Whether decay begins small and grows, so that the average is not made of the first steps.
        warmup: Flag,
    }
    no effect {}
    not yet { use_feedback: false, param_multiplier: 1.0, }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EmaConfig {
    pub use_ema: bool,
    pub ema_decay: f64,
    pub warmup: bool,
}

pub(crate) fn resolve(raw: Option<RawEma>, findings: &mut Findings) -> EmaConfig {
    let raw = raw.unwrap_or_default();
    raw.check_foreign("train.ema_config", findings);
    let ema_decay = findings.or(decay(raw.ema_decay), 0.999);
    EmaConfig { use_ema: raw.use_ema.is_some_and(|f| f.0), ema_decay, warmup: raw.warmup.is_none_or(|f| f.0) }
}

fn decay(decay: Option<Number>) -> Result<f64> {
    let decay = decay.map_or(0.999, |d| d.0);
    ensure!((0.0..1.0).contains(&decay), "train.ema_config.ema_decay: {decay} is not from 0 up to (not including) 1");
    Ok(decay)
}
