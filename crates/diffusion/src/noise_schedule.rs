//! ᾱ_t for each timestep of training, from the values of a diffusers `scheduler_config.json`.
//!
//! Computed as diffusers does, in f32 with the running product in f64 (what torch's `cumprod` does on a CPU), so that
//! noise levels agree with those the base model was trained with to the last digits.

use crate::Prediction;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// How inference steps are spread over the training timesteps (Lin et al., "Common Diffusion Noise Schedules and Sample
/// Steps are Flawed", 2023, table 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Spacing {
    Leading,
    Trailing,
    Linspace,
}

/// What matters of a `scheduler_config.json`; absent fields mean what they mean in diffusers. Keys that only steer one of
/// diffusers' own samplers (`skip_prk_steps`, `use_karras_sigmas`, …) are no property of the model and are not read.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct SchedulerConfig {
    pub num_train_timesteps: usize,
    pub beta_start: f64,
    pub beta_end: f64,
    pub beta_schedule: String,
    pub trained_betas: Option<Vec<f32>>,
    pub prediction_type: String,
    pub rescale_betas_zero_snr: bool,
    pub steps_offset: usize,
    /// `None`: the sampler's own default, as in diffusers.
    pub timestep_spacing: Option<Spacing>,
    /// Whether the step that ends at the picture takes ᾱ = 1 (or ᾱ of the first timestep).
    pub set_alpha_to_one: bool,
    /// Absent means no clipping, unlike in diffusers: latents have no fixed range.
    pub clip_sample: bool,
    pub clip_sample_range: f32,
    pub thresholding: bool,
    /// diffusers' scheduler class: says when the file describes another kind of process altogether.
    #[serde(rename = "_class_name")]
    pub class_name: Option<String>,
}

impl Default for SchedulerConfig {
    /// diffusers' defaults (of `DDIMScheduler`), not Stable Diffusion's.
    fn default() -> SchedulerConfig {
        SchedulerConfig {
            num_train_timesteps: 1000,
            beta_start: 0.0001,
            beta_end: 0.02,
            beta_schedule: "linear".to_string(),
            trained_betas: None,
            prediction_type: "epsilon".to_string(),
            rescale_betas_zero_snr: false,
            steps_offset: 0,
            timestep_spacing: None,
            set_alpha_to_one: true,
            clip_sample: false,
            clip_sample_range: 1.0,
            thresholding: false,
            class_name: None,
        }
    }
}

impl SchedulerConfig {
    /// The values of Stable Diffusion 1.x and 2.x, for single files, which carry none.
    pub fn stable_diffusion(prediction: Prediction) -> SchedulerConfig {
        SchedulerConfig {
            beta_start: 0.00085,
            beta_end: 0.012,
            beta_schedule: "scaled_linear".to_string(),
            prediction_type: prediction.name().to_string(),
            steps_offset: 1,
            timestep_spacing: Some(Spacing::Leading),
            set_alpha_to_one: false,
            ..SchedulerConfig::default()
        }
    }

    /// Reads the text of a `scheduler_config.json`.
    pub fn from_json(text: &str) -> Result<SchedulerConfig> {
        serde_json::from_str(text).context("scheduler_config.json is not readable as a diffusion schedule")
    }
}

/// Noise levels of all training timesteps.
#[derive(Clone, Debug)]
pub struct NoiseSchedule {
    config: SchedulerConfig,
    prediction: Prediction,
    alphas_cumprod: Vec<f32>,
}

impl NoiseSchedule {
    pub fn new(config: &SchedulerConfig) -> Result<NoiseSchedule> {
        let other_process = config.class_name.as_deref().filter(|name| name.starts_with("FlowMatch") || name.starts_with("EDM"));
        if let Some(name) = other_process {
            bail!("the scheduler config is for {name}, which has no noise schedule of betas: this is no Stable Diffusion 1.x or 2.x model");
        }
        let prediction = Prediction::parse(&config.prediction_type)?;
        ensure!(!config.thresholding, "the scheduler config asks for dynamic thresholding, which is for models of pixels, not of latents");
        let mut betas = betas(config)?;
        if config.rescale_betas_zero_snr {
            betas = rescale_to_zero_terminal_snr(&betas);
        }
        let alphas_cumprod = cumulative_product(betas.iter().map(|beta| 1.0 - beta));
        ensure!(
            alphas_cumprod.iter().all(|a| (0.0..1.0).contains(a)),
            "the scheduler config gives noise levels outside of 0…1 (beta_start {}, beta_end {})",
            config.beta_start,
            config.beta_end
        );
        Ok(NoiseSchedule { config: config.clone(), prediction, alphas_cumprod })
    }

    /// Number of training timesteps.
    pub fn timesteps(&self) -> usize {
        self.alphas_cumprod.len()
    }

    /// ᾱ of every training timestep.
    pub fn alphas_cumprod(&self) -> &[f32] {
        &self.alphas_cumprod
    }

    /// (√ᾱ_t, √(1 − ᾱ_t)): the shares of picture and noise at timestep `t`.
    pub fn shares(&self, t: usize) -> (f32, f32) {
        let alpha = self.alphas_cumprod[t];
        (alpha.sqrt(), (1.0 - alpha).sqrt())
    }

    /// Signal-to-noise ratio ᾱ / (1 − ᾱ); 0 at a zero terminal SNR.
    pub fn snr(&self, t: usize) -> f64 {
        let alpha = f64::from(self.alphas_cumprod[t]);
        alpha / (1.0 - alpha)
    }

    pub fn prediction(&self) -> Prediction {
        self.prediction
    }

    /// The same schedule with a terminal SNR of zero (Lin et al., "Common Diffusion Noise Schedules and Sample Steps are Flawed", 2023):
    /// the last timestep is pure noise, so that the model learns to begin from it. For v-prediction only: pure noise tells a model of
    /// the noise nothing that it doesn't see.
    pub fn with_zero_terminal_snr(&self) -> Result<NoiseSchedule> {
        ensure!(
            self.prediction == Prediction::Velocity,
            "a terminal SNR of zero needs a v-prediction model, and this one predicts epsilon: at pure noise it could learn nothing"
        );
        NoiseSchedule::new(&SchedulerConfig { rescale_betas_zero_snr: true, ..self.config.clone() })
    }

    pub fn config(&self) -> &SchedulerConfig {
        &self.config
    }
}

fn betas(config: &SchedulerConfig) -> Result<Vec<f32>> {
    if let Some(betas) = &config.trained_betas {
        ensure!(!betas.is_empty(), "trained_betas in the scheduler config is empty");
        return Ok(betas.clone());
    }
    let (start, end, steps) = (config.beta_start, config.beta_end, config.num_train_timesteps);
    ensure!((1..=1_000_000).contains(&steps), "num_train_timesteps in the scheduler config is {steps}");
    ensure!(0.0 < start && start <= end && end < 1.0, "beta_start {start} and beta_end {end} must satisfy 0 < start ≤ end < 1");
    match config.beta_schedule.as_str() {
        "linear" => Ok(linspace(start as f32, end as f32, steps)),
        "scaled_linear" => Ok(linspace(start.sqrt() as f32, end.sqrt() as f32, steps).into_iter().map(|root| root * root).collect()),
        "squaredcos_cap_v2" => Ok(squared_cosine(steps)),
        other => bail!("beta_schedule {other:?} is unknown (known: linear, scaled_linear, squaredcos_cap_v2)"),
    }
}

/// `torch.linspace` in f32: counted from the nearer end.
fn linspace(start: f32, end: f32, steps: usize) -> Vec<f32> {
    let step = (end - start) / (steps.max(2) - 1) as f32;
    (0..steps).map(|i| if i < steps.div_ceil(2) { start + step * i as f32 } else { end - step * (steps - i - 1) as f32 }).collect()
}

/// Nichol & Dhariwal, "Improved Denoising Diffusion Probabilistic Models", 2021, equation 17, betas capped at 0.999.
fn squared_cosine(steps: usize) -> Vec<f32> {
    let bar = |t: f64| ((t + 0.008) / 1.008 * std::f64::consts::FRAC_PI_2).cos().powi(2);
    (0..steps).map(|i| (1.0 - bar((i + 1) as f64 / steps as f64) / bar(i as f64 / steps as f64)).min(0.999) as f32).collect()
}

fn cumulative_product(alphas: impl Iterator<Item = f32>) -> Vec<f32> {
    let mut product = 1.0f64;
    alphas
        .map(|alpha| {
            product *= f64::from(alpha);
            product as f32
        })
        .collect()
}

/// Lin et al. 2023, algorithm 1: shifts and scales √ᾱ so that the last one is 0 and the first stays.
fn rescale_to_zero_terminal_snr(betas: &[f32]) -> Vec<f32> {
    let roots: Vec<f32> = cumulative_product(betas.iter().map(|beta| 1.0 - beta)).into_iter().map(f32::sqrt).collect();
    let (first, last) = (roots[0], roots[roots.len() - 1]);
    if first == last {
        return betas.to_vec();
    }
    let scale = first / (first - last);
    let bars: Vec<f32> = roots.iter().map(|root| (root - last) * scale).map(|root| root * root).collect();
    (0..bars.len()).map(|i| 1.0 - if i == 0 { bars[0] } else { bars[i] / bars[i - 1] }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snr_falls_and_ends_at_zero_when_rescaled() {
        let mut config = SchedulerConfig::stable_diffusion(Prediction::Velocity);
        config.rescale_betas_zero_snr = true;
        let schedule = NoiseSchedule::new(&config).unwrap();
        assert!((1..1000).all(|t| schedule.snr(t) < schedule.snr(t - 1)));
        assert_eq!((schedule.snr(999), schedule.shares(999)), (0.0, (0.0, 1.0)));
    }

    #[test]
    fn zero_terminal_snr_is_for_velocity_only() {
        let schedule = |prediction| NoiseSchedule::new(&SchedulerConfig::stable_diffusion(prediction)).unwrap();
        let plain = schedule(Prediction::Velocity);
        let rescaled = plain.with_zero_terminal_snr().unwrap();
        assert_eq!((rescaled.snr(999), rescaled.snr(0)), (0.0, plain.snr(0)));
        assert!(schedule(Prediction::Epsilon).with_zero_terminal_snr().unwrap_err().to_string().contains("v-prediction"));
    }

    #[test]
    fn configs_that_make_no_schedule_are_refused_by_name() {
        let error = |text: &str| {
            let config = SchedulerConfig::from_json(text);
            format!("{:#}", config.and_then(|c| NoiseSchedule::new(&c)).unwrap_err())
        };
        assert!(error(r#"{"beta_schedule": "sigmoid"}"#).contains("sigmoid"));
        assert!(error(r#"{"prediction_type": "flow"}"#).contains("flow"));
        assert!(error(r#"{"beta_end": 1.5}"#).contains("1.5"));
        assert!(error(r#"{"num_train_timesteps": 0}"#).contains("num_train_timesteps"));
        assert!(error(r#"{"trained_betas": [0.1, -3.0]}"#).contains("outside"));
        assert!(error(r#"{"timestep_spacing": "karras"}"#).contains("karras"));
        assert!(error(r#"{"thresholding": true}"#).contains("thresholding"));
        assert!(error(r#"{"_class_name": "FlowMatchEulerDiscreteScheduler"}"#).contains("FlowMatchEuler"));
        assert!(error("<html>").contains("scheduler_config.json"));
    }
}
