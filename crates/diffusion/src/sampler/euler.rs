//! `euler`: Euler's method on the probability-flow ODE in σ = √((1−ᾱ)/ᾱ) (Karras et al., "Elucidating the Design Space of
//! Diffusion-Based Generative Models", 2022, algorithm 2 without churn):
//!
//! ```text
//! x ← x + (σ_next − σ) · (x − x̂₀)/σ         model input: x / √(σ² + 1)
//! ```
//! Timesteps and σ are chosen as diffusers' `EulerDiscreteScheduler` does; its spacing default is `linspace`.

use super::{Sampler, spread};
use crate::noise_schedule::Spacing;
use crate::{NoiseSchedule, Prediction};
use anyhow::Result;

pub const NAME: &str = "euler";

/// Stands for ᾱ = 0, where σ would be infinite: the smallest subnormal f16, as in diffusers.
const TERMINAL_ALPHA: f64 = 1.0 / (1 << 24) as f64;

pub struct Euler {
    prediction: Prediction,
    timesteps: Vec<f32>,
    /// Noise level of each step, and 0 at the end.
    sigmas: Vec<f32>,
    init_sigma: f32,
}

impl Euler {
    pub fn new(schedule: &NoiseSchedule, steps: usize) -> Result<Euler> {
        let spacing = schedule.config().timestep_spacing.unwrap_or(Spacing::Linspace);
        let timesteps: Vec<f32> = spread(schedule, spacing, steps)?.into_iter().map(|t| t as f32).collect();
        let mut sigmas: Vec<f32> = timesteps.iter().map(|t| sigma_at(schedule, f64::from(*t))).collect();
        let max = sigmas.iter().copied().fold(0.0, f32::max);
        let init_sigma = if spacing == Spacing::Leading { (max * max + 1.0).sqrt() } else { max };
        sigmas.push(0.0);
        Ok(Euler { prediction: schedule.prediction(), timesteps, sigmas, init_sigma })
    }

    /// Standard deviation of the start noise.
    pub fn init_sigma(&self) -> f32 {
        self.init_sigma
    }
}

/// σ between two training timesteps, interpolated linearly.
fn sigma_at(schedule: &NoiseSchedule, t: f64) -> f32 {
    let sigma = |index: usize| {
        let alpha = match f64::from(schedule.alphas_cumprod()[index]) {
            0.0 => TERMINAL_ALPHA,
            alpha => alpha,
        };
        ((1.0 - alpha) / alpha).sqrt()
    };
    let low = (t.floor() as usize).min(schedule.timesteps() - 1);
    let high = (low + 1).min(schedule.timesteps() - 1);
    let share = t - low as f64;
    (sigma(low) + (sigma(high) - sigma(low)) * share) as f32
}

impl Sampler for Euler {
    fn name(&self) -> &'static str {
        NAME
    }

    fn timesteps(&self) -> &[f32] {
        &self.timesteps
    }

    fn init_noise(&self, x: &mut [f32]) {
        x.iter_mut().for_each(|v| *v *= self.init_sigma);
    }

    fn scale_input(&self, i: usize, x: &[f32], out: &mut [f32]) {
        let scale = (self.sigmas[i] * self.sigmas[i] + 1.0).sqrt();
        assert_eq!(x.len(), out.len(), "state and model input have one size");
        out.iter_mut().zip(x).for_each(|(o, v)| *o = v / scale);
    }

    fn step(&self, i: usize, output: &[f32], x: &mut [f32]) {
        assert_eq!(output.len(), x.len(), "state and model output have one size");
        let sigma = self.sigmas[i];
        let (square, dt) = (sigma * sigma + 1.0, self.sigmas[i + 1] - sigma);
        for (state, out) in x.iter_mut().zip(output) {
            let x0 = match self.prediction {
                Prediction::Epsilon => *state - sigma * out,
                Prediction::Velocity => out * (-sigma / square.sqrt()) + *state / square,
            };
            *state += (*state - x0) / sigma * dt;
        }
    }
}
