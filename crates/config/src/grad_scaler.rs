//! `train.grad_scaler:` how the loss of fp16 training is scaled, so that small gradients stay above the smallest number that fp16 holds.

use crate::findings::Findings;
use crate::scalar::{Flag, Number, Whole};
use crate::section::section;
use anyhow::{Result, ensure};
use base::DType;
use serde::Serialize;

section! {
    RawGradScaler {
        /// What the loss is multiplied by at the start.
        init_scale: Number,
        /// What the scale is multiplied by after `growth_interval` steps without an overflow.
        growth_factor: Number,
        /// What the scale is multiplied by after an overflow.
        backoff_factor: Number,
        /// Steps without an overflow after which the scale grows.
        growth_interval: Whole,
        /// The scale never falls below this; what overflows even there counts as a step that is not finite.
        min_scale: Number,
    }
    no effect {
        enabled: Flag => "train.dtype: fp16 switches it on, and no other type needs it",
    }
    not yet {}
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GradScalerConfig {
    pub init_scale: f64,
    pub growth_factor: f64,
    pub backoff_factor: f64,
    pub growth_interval: u64,
    pub min_scale: f64,
}

/// Scales are f32, whose range holds this and its inverse.
const LARGEST: f64 = 1e30;

/// PyTorch's defaults; the floor is DeepSpeed's.
impl Default for GradScalerConfig {
    fn default() -> GradScalerConfig {
        GradScalerConfig { init_scale: 65536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 2000, min_scale: 1.0 }
    }
}

pub(crate) fn resolve(raw: Option<RawGradScaler>, dtype: DType, findings: &mut Findings) -> GradScalerConfig {
    let raw = raw.unwrap_or_default();
    let default = GradScalerConfig::default();
    raw.check_foreign("train.grad_scaler", findings);
    let mut number =
        |key: &str, value: Option<Number>, default: f64, range: [f64; 2]| findings.or(within(key, value, default, range), default);
    let config = GradScalerConfig {
        init_scale: number("init_scale", raw.init_scale, default.init_scale, [1e-30, LARGEST]),
        growth_factor: number("growth_factor", raw.growth_factor, default.growth_factor, [1.0, 1e6]),
        backoff_factor: number("backoff_factor", raw.backoff_factor, default.backoff_factor, [1e-6, 1.0]),
        growth_interval: raw.growth_interval.map_or(default.growth_interval, |n| n.0),
        min_scale: number("min_scale", raw.min_scale, default.min_scale, [1e-30, LARGEST]),
    };
    config.check(findings);
    if dtype != DType::F16 && config != default {
        findings.notice("train.grad_scaler has no effect: only train.dtype: fp16 scales its loss");
    }
    config
}

impl GradScalerConfig {
    fn check(&self, findings: &mut Findings) {
        let GradScalerConfig { init_scale, min_scale, .. } = self;
        let rows = [
            (self.backoff_factor < 1.0, "backoff_factor: 1 would never leave an overflow behind; PyTorch's is 0.5".to_string()),
            (
                self.growth_interval > 0,
                "growth_interval: 0 is no number of steps; growth_factor: 1 keeps the scale from growing".to_string(),
            ),
            (min_scale <= init_scale, format!("min_scale: {min_scale} is more than train.grad_scaler.init_scale: {init_scale}")),
        ];
        rows.iter().filter(|(holds, _)| !holds).for_each(|(_, text)| findings.wrong(format!("train.grad_scaler.{text}")));
    }
}

fn within(key: &str, value: Option<Number>, default: f64, [least, most]: [f64; 2]) -> Result<f64> {
    let value = value.map_or(default, |v| v.0);
    ensure!((least..=most).contains(&value), "train.grad_scaler.{key}: {value} is not from {least:e} to {most:e}");
    Ok(value)
}
