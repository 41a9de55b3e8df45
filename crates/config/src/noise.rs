//! The noise keys of `train:` what is mixed into latents, and at which timesteps.

use crate::findings::Findings;
use crate::loss::one_of;
use crate::scalar::{Number, Whole};
use crate::train::{RawTrain, not_negative};
use anyhow::{Result, bail, ensure};
use serde::Serialize;

/// How timesteps are spread over their range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimestepType {
    Uniform,
    /// σ of a normal number: more in the middle.
    Sigmoid,
}

/// Which end of the timesteps is favoured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentOrStyle {
    Balanced,
    /// The noisy end, where layout is decided.
    Content,
    /// The other end, where details are decided.
    Style,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NoiseConfig {
    pub noise_offset: f64,
    /// What a channel's mean adds to the offset; 0: nothing.
    pub adaptive_noise_scale: f64,
    /// 0: off.
    pub multires_noise_iterations: usize,
    pub multires_noise_discount: f64,
    /// 0: off.
    pub ip_noise_gamma: f64,
    pub zero_terminal_snr: bool,
    pub timestep_type: TimestepType,
    pub logit_mean: f64,
    pub logit_std: f64,
    pub content_or_style: ContentOrStyle,
    /// The same for datasets with `is_reg`.
    pub content_or_style_reg: ContentOrStyle,
    /// First and last (inclusive) timestep that is trained.
    pub min_timestep: usize,
    pub max_timestep: usize,
}

/// Levels of pyramid noise beyond this are all one pixel large, whatever the latent.
const MOST_ITERATIONS: u64 = 20;

/// The last timestep.
const LAST: u64 = 999;

pub(crate) fn resolve(raw: &RawTrain, findings: &mut Findings) -> NoiseConfig {
    let timesteps = range(raw, findings);
    let [min_timestep, max_timestep] = findings.or(timesteps, [0, LAST]);
    let balanced = ContentOrStyle::Balanced;
    let content_or_style = findings.or(end("train.content_or_style", raw.content_or_style.as_deref(), balanced), balanced);
    let of_reg = end("train.content_or_style_reg", raw.content_or_style_reg.as_deref(), content_or_style);
    let config = NoiseConfig {
        noise_offset: findings.or(not_negative("train.noise_offset", raw.noise_offset, 0.0), 0.0),
        adaptive_noise_scale: findings.or(adaptive_scale(raw), 0.0),
        multires_noise_iterations: findings.or(iterations(raw.multires_noise_iterations), 0),
        multires_noise_discount: findings.or(discount(raw.multires_noise_discount), 0.3),
        ip_noise_gamma: findings.or(not_negative("train.ip_noise_gamma", raw.ip_noise_gamma, 0.0), 0.0),
        zero_terminal_snr: raw.zero_terminal_snr.is_some_and(|f| f.0),
        timestep_type: findings.or(timestep_type(raw.timestep_type.as_deref().unwrap_or("uniform")), TimestepType::Uniform),
        logit_mean: findings.or(raw.logit_mean.unwrap_or(Number(0.0)).within_reason("train.logit_mean"), 0.0),
        logit_std: findings.or(logit_std(raw.logit_std), 1.0),
        content_or_style,
        content_or_style_reg: findings.or(of_reg, content_or_style),
        min_timestep: min_timestep as usize,
        max_timestep: max_timestep as usize,
    };
    let favoured = config.content_or_style != ContentOrStyle::Balanced || config.content_or_style_reg != ContentOrStyle::Balanced;
    let both = [("timestep_type: sigmoid", config.timestep_type == TimestepType::Sigmoid), ("content_or_style", favoured)];
    findings.check(one_of(&both));
    config
}

fn iterations(number: Option<Whole>) -> Result<usize> {
    let number = number.map_or(0, |n| n.0);
    ensure!(number <= MOST_ITERATIONS, "train.multires_noise_iterations: {number} is more than {MOST_ITERATIONS}; 6 to 10 are usual");
    Ok(number as usize)
}

fn discount(share: Option<Number>) -> Result<f64> {
    let share = not_negative("train.multires_noise_discount", share, 0.3)?;
    ensure!(share <= 1.0, "train.multires_noise_discount: {share} is more than 1; 0.1 to 0.4 are usual");
    Ok(share)
}

fn logit_std(width: Option<Number>) -> Result<f64> {
    let width = not_negative("train.logit_std", width, 1.0)?;
    ensure!(width > 0.0, "train.logit_std: 0 would train a single timestep; use min_timestep and max_timestep for that");
    Ok(width)
}

/// May be negative: the offset then is weaker where the latent is far from zero.
fn adaptive_scale(raw: &RawTrain) -> Result<f64> {
    let scale = raw.adaptive_noise_scale.unwrap_or(Number(0.0)).within_reason("train.adaptive_noise_scale")?;
    ensure!(
        scale == 0.0 || raw.noise_offset.is_some(),
        "train.adaptive_noise_scale: {scale} changes train.noise_offset, which is not given; give it too (0.05 is usual, 0 is possible)"
    );
    Ok(scale)
}

/// First and last timestep. ai-toolkit's keys count from the noisy end: its index 0 is timestep 999.
fn range(raw: &RawTrain, findings: &mut Findings) -> Result<[u64; 2]> {
    let value = |key: &Option<Whole>| key.as_ref().map(|v| v.0);
    let direct = [value(&raw.min_timestep), value(&raw.max_timestep)];
    let counted = [value(&raw.min_denoising_steps), value(&raw.max_denoising_steps)];
    let [mut first, mut last] = [direct[0].unwrap_or(0), direct[1].unwrap_or(LAST)];
    if counted.iter().any(Option::is_some) {
        ensure!(
            direct.iter().all(Option::is_none),
            "train.min_denoising_steps or max_denoising_steps and train.min_timestep or max_timestep are both given; keep one pair"
        );
        let [from, to] = [counted[0].unwrap_or(0), counted[1].unwrap_or(LAST).min(LAST)];
        ensure!(from <= to, "train.min_denoising_steps ({from}) is more than train.max_denoising_steps ({to})");
        [first, last] = [LAST - to, LAST - from];
        let whole = (from, to) == (0, LAST);
        findings.notices.extend((!whole).then(|| format!(
            "train.min_denoising_steps {from} and max_denoising_steps {to} count from the noisy end: timesteps {first} to {last} are trained"
        )));
    }
    // sd-scripts leaves the end out, and 1000 is its word for all.
    last = if last == LAST + 1 { LAST } else { last };
    ensure!(last <= LAST, "train.max_timestep: {last} is beyond the last timestep, {LAST}");
    ensure!(first <= last, "train.min_timestep ({first}) is more than train.max_timestep ({last})");
    Ok([first, last])
}

fn timestep_type(name: &str) -> Result<TimestepType> {
    Ok(match name.trim() {
        "uniform" | "linear" => TimestepType::Uniform,
        "sigmoid" | "logit_normal" => TimestepType::Sigmoid,
        "weighted" => bail!(
            "train.timestep_type: weighted is a table of weights that was measured on a flow-matching model; linear_timesteps: true weighs \
             the middle timesteps most"
        ),
        flow @ ("sigma" | "shift" | "flux_shift" | "lumina2_shift" | "lognorm_blend" | "next_sample" | "one_step" | "two_step"
        | "four_step" | "eight_step") => {
            bail!("train.timestep_type: {flow} is for flow-matching models; this kind of model takes uniform or sigmoid")
        }
        other => bail!("train.timestep_type: {other} is unknown; it is uniform or sigmoid"),
    })
}

fn end(key: &str, name: Option<&str>, default: ContentOrStyle) -> Result<ContentOrStyle> {
    Ok(match name.map(str::trim) {
        None => default,
        Some("balanced") => ContentOrStyle::Balanced,
        Some("content") => ContentOrStyle::Content,
        Some("style") => ContentOrStyle::Style,
        Some(other) => bail!("{key}: {other} is unknown; it is balanced, content or style"),
    })
}
