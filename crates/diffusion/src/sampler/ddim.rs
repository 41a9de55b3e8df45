//! `ddim`: Song, Meng & Ermon, "Denoising Diffusion Implicit Models", 2021, equation 12 with σ = 0:
//!
//! ```text
//! x_prev = √ᾱ_prev · x̂₀ + √(1 − ᾱ_prev) · ε̂
//! ```
//! Timesteps and ᾱ_prev are chosen as diffusers' `DDIMScheduler` does; its spacing default is `leading`.

use super::{Sampler, spread};
use crate::noise_schedule::Spacing;
use crate::prediction::split;
use crate::{NoiseSchedule, Prediction};
use anyhow::{Result, ensure};

pub const NAME: &str = "ddim";

pub struct Ddim {
    prediction: Prediction,
    timesteps: Vec<f32>,
    /// (√ᾱ, √(1 − ᾱ)) at each step's start and end.
    shares: Vec<[(f32, f32); 2]>,
    clip: Option<f32>,
}

impl Ddim {
    pub fn new(schedule: &NoiseSchedule, steps: usize) -> Result<Ddim> {
        let config = schedule.config();
        let spacing = config.timestep_spacing.unwrap_or(Spacing::Leading);
        let timesteps: Vec<usize> = spread(schedule, spacing, steps)?.into_iter().map(|t| t.round_ties_even() as usize).collect();
        let stride = schedule.timesteps() / steps;
        let end_alpha = if config.set_alpha_to_one { 1.0 } else { schedule.alphas_cumprod()[0] };
        let end = (f32::sqrt(end_alpha), f32::sqrt(1.0 - end_alpha));
        let shares = timesteps.iter().map(|t| [schedule.shares(*t), t.checked_sub(stride).map_or(end, |prev| schedule.shares(prev))]);
        let shares: Vec<[(f32, f32); 2]> = shares.collect();
        ensure!(
            schedule.prediction() != Prediction::Epsilon || shares.iter().all(|[(signal, _), _]| *signal > 0.0),
            "a model that predicts noise can't be sampled by ddim from a zero terminal SNR: the noise says nothing about the picture there"
        );
        let clip = config.clip_sample.then_some(config.clip_sample_range);
        Ok(Ddim { prediction: schedule.prediction(), timesteps: timesteps.iter().map(|t| *t as f32).collect(), shares, clip })
    }
}

impl Sampler for Ddim {
    fn name(&self) -> &'static str {
        NAME
    }

    fn timesteps(&self) -> &[f32] {
        &self.timesteps
    }

    fn init_noise(&self, _x: &mut [f32]) {}

    fn scale_input(&self, _i: usize, x: &[f32], out: &mut [f32]) {
        out.copy_from_slice(x);
    }

    fn step(&self, i: usize, output: &[f32], x: &mut [f32]) {
        assert_eq!(output.len(), x.len(), "state and model output have one size");
        let [here, (signal, sigma)] = self.shares[i];
        for (state, out) in x.iter_mut().zip(output) {
            let (mut x0, noise) = split(self.prediction, here, *out, *state);
            if let Some(limit) = self.clip {
                x0 = x0.clamp(-limit, limit);
            }
            *state = signal * x0 + sigma * noise;
        }
    }
}
