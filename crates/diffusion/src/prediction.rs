//! What the model predicts: the noise ε, or the velocity v = √ᾱ·ε − √(1−ᾱ)·x₀ (Salimans & Ho, "Progressive Distillation",
//! 2022, appendix D). All functions work element by element on one item, in any layout.

use crate::NoiseSchedule;
use anyhow::{Result, bail};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    Epsilon,
    Velocity,
}

impl Prediction {
    /// Reads diffusers' `prediction_type`.
    pub fn parse(name: &str) -> Result<Prediction> {
        match name {
            "epsilon" => Ok(Prediction::Epsilon),
            "v_prediction" => Ok(Prediction::Velocity),
            other => bail!("prediction_type {other:?} is not supported (known: epsilon, v_prediction)"),
        }
    }

    /// diffusers' name.
    pub fn name(self) -> &'static str {
        match self {
            Prediction::Epsilon => "epsilon",
            Prediction::Velocity => "v_prediction",
        }
    }
}

impl NoiseSchedule {
    /// `out` = x_t = √ᾱ·x₀ + √(1−ᾱ)·ε.
    pub fn add_noise(&self, t: usize, x0: &[f32], noise: &[f32], out: &mut [f32]) {
        let (signal, sigma) = self.shares(t);
        combine(x0, noise, out, |x, e| signal * x + sigma * e);
    }

    /// `out` = what the model should have predicted at timestep `t`.
    pub fn target(&self, t: usize, x0: &[f32], noise: &[f32], out: &mut [f32]) {
        let (signal, sigma) = self.shares(t);
        match self.prediction() {
            Prediction::Epsilon => combine(x0, noise, out, |_, e| e),
            Prediction::Velocity => combine(x0, noise, out, |x, e| signal * e - sigma * x),
        }
    }
}

/// (x₀, ε) of one element from the model's output and x_t, for shares √ᾱ and √(1−ᾱ).
pub fn split(prediction: Prediction, (signal, sigma): (f32, f32), output: f32, noisy: f32) -> (f32, f32) {
    match prediction {
        Prediction::Epsilon => ((noisy - sigma * output) / signal, output),
        Prediction::Velocity => (signal * noisy - sigma * output, signal * output + sigma * noisy),
    }
}

fn combine(x0: &[f32], noise: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    assert!(x0.len() == noise.len() && x0.len() == out.len(), "latent, noise and result have one size");
    for ((o, x), e) in out.iter_mut().zip(x0).zip(noise) {
        *o = f(*x, *e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SchedulerConfig;

    #[test]
    fn the_exact_target_gives_back_picture_and_noise() {
        for prediction in [Prediction::Epsilon, Prediction::Velocity] {
            let schedule = NoiseSchedule::new(&SchedulerConfig::stable_diffusion(prediction)).unwrap();
            let (x0, noise) = ([0.3, -1.2, 2.0], [1.0, 0.1, -0.7]);
            for t in [0, 10, 500, 999] {
                let (mut noisy, mut target) = ([0.0; 3], [0.0; 3]);
                schedule.add_noise(t, &x0, &noise, &mut noisy);
                schedule.target(t, &x0, &noise, &mut target);
                for i in 0..3 {
                    let (x, e) = split(prediction, schedule.shares(t), target[i], noisy[i]);
                    assert!((x - x0[i]).abs() < 1e-4 && (e - noise[i]).abs() < 1e-4, "{prediction:?} {t}: {x} {e}");
                }
            }
        }
    }
}
