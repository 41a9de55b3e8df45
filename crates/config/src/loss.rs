//! The loss keys of `train:` what error is measured, and how items and timesteps weigh.

use crate::findings::Findings;
use crate::scalar::Number;
use crate::train::{RawTrain, not_negative};
use anyhow::{Result, bail, ensure};
use serde::Serialize;

/// The error of a predicted number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossType {
    /// d²
    Mse,
    /// |d|
    Mae,
    /// 2c (√(d² + c²) − c), as sd-scripts' `huber`.
    Huber,
    /// 2 (√(d² + c²) − c), as sd-scripts' `smooth_l1`.
    SmoothL1,
    /// √(d² + c²) − c, as ai-toolkit's `pseudo_huber`.
    PseudoHuber,
}

/// How c depends on the timestep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HuberSchedule {
    Constant,
    Exponential,
    Snr,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossConfig {
    pub loss_type: LossType,
    pub huber_schedule: HuberSchedule,
    pub huber_c: f64,
    pub huber_scale: f64,
    /// 0: off.
    pub min_snr_gamma: f64,
    /// 0: off.
    pub soft_min_snr_gamma: f64,
    pub debiased_estimation_loss: bool,
    pub scale_v_pred_loss_like_noise_pred: bool,
    /// ai-toolkit's bell of weights over the timesteps, and its form that falls on the noisy side only.
    pub linear_timesteps: bool,
    pub linear_timesteps2: bool,
    /// Weight of the items of datasets with `is_reg`.
    pub reg_weight: f64,
    pub diff_output_preservation: bool,
    pub diff_output_preservation_multiplier: f64,
    pub diff_output_preservation_class: String,
}

pub(crate) fn resolve(raw: &RawTrain, findings: &mut Findings) -> LossConfig {
    let loss_type = findings.or(loss_type(raw.loss_type.as_deref().unwrap_or("mse")), LossType::Mse);
    let (schedule, c) = if loss_type == LossType::PseudoHuber { ("constant", 0.01) } else { ("snr", 0.1) };
    let huber_schedule = findings.or(schedule_of(raw.huber_schedule.as_deref().unwrap_or(schedule)), HuberSchedule::Constant);
    let mut number = |read: fn(&str, Option<Number>, f64) -> Result<f64>, key: &str, value: Option<Number>, default: f64| {
        findings.or(read(&format!("train.{key}"), value, default), default)
    };
    let config = LossConfig {
        loss_type,
        huber_schedule,
        huber_c: number(positive, "huber_c", raw.huber_c, c),
        huber_scale: number(positive, "huber_scale", raw.huber_scale, 1.0),
        min_snr_gamma: number(not_negative, "min_snr_gamma", raw.min_snr_gamma, 0.0),
        soft_min_snr_gamma: number(not_negative, "soft_min_snr_gamma", raw.soft_min_snr_gamma, 0.0),
        debiased_estimation_loss: raw.debiased_estimation_loss.is_some_and(|f| f.0),
        scale_v_pred_loss_like_noise_pred: raw.scale_v_pred_loss_like_noise_pred.is_some_and(|f| f.0),
        linear_timesteps: raw.linear_timesteps.is_some_and(|f| f.0),
        linear_timesteps2: raw.linear_timesteps2.is_some_and(|f| f.0),
        reg_weight: number(not_negative, "reg_weight", raw.reg_weight, 1.0),
        diff_output_preservation: raw.diff_output_preservation.is_some_and(|f| f.0),
        diff_output_preservation_multiplier: number(
            not_negative,
            "diff_output_preservation_multiplier",
            raw.diff_output_preservation_multiplier,
            1.0,
        ),
        diff_output_preservation_class: raw.diff_output_preservation_class.as_deref().unwrap_or_default().trim().to_string(),
    };
    config.check(findings);
    config
}

impl LossConfig {
    fn check(&self, findings: &mut Findings) {
        let by_snr = [
            ("min_snr_gamma", self.min_snr_gamma > 0.0),
            ("soft_min_snr_gamma", self.soft_min_snr_gamma > 0.0),
            ("debiased_estimation_loss", self.debiased_estimation_loss),
        ];
        findings.check(one_of(&by_snr));
        findings.check(one_of(&[("linear_timesteps", self.linear_timesteps), ("linear_timesteps2", self.linear_timesteps2)]));
        // Above 1 the schedules would rise where they are meant to fall.
        if self.huber_schedule != HuberSchedule::Constant && self.huber_c > 1.0 {
            findings.wrong(format!("train.huber_c: {} is more than 1, which only huber_schedule: constant can use", self.huber_c));
        }
        if self.diff_output_preservation && self.diff_output_preservation_class.is_empty() {
            findings.wrong(
                "train.diff_output_preservation: true needs train.diff_output_preservation_class: the word that takes the trigger word's \
                 place (for a person's name: person)"
                    .to_string(),
            );
        }
    }

    /// The key that weighs timesteps by their signal-to-noise ratio, if one does.
    pub(crate) fn snr_key(&self) -> Option<&'static str> {
        let keys = [self.min_snr_gamma > 0.0, self.soft_min_snr_gamma > 0.0, self.debiased_estimation_loss];
        let names = ["min_snr_gamma", "soft_min_snr_gamma", "debiased_estimation_loss"];
        keys.iter().position(|on| *on).map(|i| names[i])
    }
}

/// At most one of several keys may be on.
pub(crate) fn one_of(keys: &[(&str, bool)]) -> Result<()> {
    let on: Vec<&str> = keys.iter().filter(|(_, on)| *on).map(|(key, _)| *key).collect();
    match on[..] {
        [first, second, ..] => bail!("train.{first} and train.{second} exclude each other; keep one"),
        _ => Ok(()),
    }
}

fn loss_type(name: &str) -> Result<LossType> {
    Ok(match name.trim().to_ascii_lowercase().as_str() {
        "mse" | "l2" => LossType::Mse,
        "mae" | "l1" => LossType::Mae,
        "huber" => LossType::Huber,
        "smooth_l1" => LossType::SmoothL1,
        "pseudo_huber" => LossType::PseudoHuber,
        known @ ("wavelet" | "stepped" | "pixelspace" | "mean_flow") => {
            bail!("train.loss_type: {known} is not supported; it is mse, mae, huber, smooth_l1 or pseudo_huber")
        }
        other => bail!("train.loss_type: {other} is unknown; it is mse, mae, huber, smooth_l1 or pseudo_huber"),
    })
}

fn schedule_of(name: &str) -> Result<HuberSchedule> {
    Ok(match name.trim() {
        "constant" => HuberSchedule::Constant,
        "exponential" => HuberSchedule::Exponential,
        "snr" => HuberSchedule::Snr,
        other => bail!("train.huber_schedule: {other} is unknown; it is constant, exponential or snr"),
    })
}

fn positive(key: &str, value: Option<Number>, default: f64) -> Result<f64> {
    let value = value.unwrap_or(Number(default));
    ensure!(value.0 > 0.0, "{key}: {value} must be more than 0");
    value.within_reason(key)
}
