//! AdamW: Adam with decoupled weight decay (Loshchilov & Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2).
//!
//! ```text
//! p ← p·(1 − lr·λ)                     m ← m + (1−β₁)(g − m)              v ← β₂v + (1−β₂)g²
//! p ← p − lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε)
//! ```
//! The operations come in PyTorch's order (`torch.optim.AdamW`, single-tensor form), scalars are computed in f64, the
//! elements in f32, so that runs can be compared with PyTorch's number by number.

use super::Optimizer;
use crate::hyper::Hyper;
use crate::{CHUNK, Layout, State};
use anyhow::{Result, ensure};
use rayon::prelude::*;
use serde_json::{Map, Value};
use std::ops::Range;

pub const NAME: &str = "adamw";
pub const STATE_BYTES_PER_PARAM: u64 = 8;
const FORMAT_VERSION: u32 = 1;

/// AdamW over one flat slice.
pub struct AdamW {
    betas: [f64; 2],
    eps: f64,
    layout: Layout,
    segments: Vec<(Range<usize>, usize)>,
    weight_decay: Vec<f64>,
    step: u64,
    exp_avg: Vec<f32>,
    exp_avg_sq: Vec<f32>,
}

/// What one step multiplies with: the same for all elements of a group.
#[derive(Clone, Copy)]
struct Factors {
    decay: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    sqrt_bias2: f32,
    eps: f32,
    minus_step_size: f32,
}

impl AdamW {
    /// Settings `betas` [0.9, 0.999], `eps` 1e-8, `weight_decay` 0.01: PyTorch's names and defaults.
    pub fn parse(given: &Map<String, Value>, layout: Layout) -> Result<AdamW> {
        let mut hyper = Hyper::new("optimizer adamw", given);
        let betas = hyper.numbers(&["betas"], 0.0..=1.0)?.unwrap_or([0.9, 0.999]);
        let eps = hyper.number(&["eps"], 0.0..=1.0)?.unwrap_or(1e-8);
        let weight_decay = hyper.number(&["weight_decay"], 0.0..=1e3)?.unwrap_or(0.01);
        hyper.finish()?;
        AdamW::new(layout, betas, eps, weight_decay)
    }

    pub fn new(layout: Layout, betas: [f64; 2], eps: f64, weight_decay: f64) -> Result<AdamW> {
        ensure!(betas.iter().all(|b| (0.0..1.0).contains(b)), "optimizer adamw: betas are {betas:?}, each must be at least 0 and below 1");
        layout.check()?;
        let elements = layout.elements();
        Ok(AdamW {
            betas,
            eps,
            segments: layout.segments(),
            weight_decay: layout.groups().iter().map(|g| g.weight_decay.unwrap_or(weight_decay)).collect(),
            layout,
            step: 0,
            exp_avg: vec![0.0; elements],
            exp_avg_sq: vec![0.0; elements],
        })
    }

    /// Scalars for step `self.step` (already counted) of one group.
    fn factors(&self, lr: f64, weight_decay: f64) -> Factors {
        let [beta1, beta2] = self.betas;
        let bias1 = 1.0 - beta1.powf(self.step as f64);
        let bias2 = 1.0 - beta2.powf(self.step as f64);
        Factors {
            decay: (1.0 - lr * weight_decay) as f32,
            one_minus_beta1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            one_minus_beta2: (1.0 - beta2) as f32,
            sqrt_bias2: bias2.sqrt() as f32,
            eps: self.eps as f32,
            minus_step_size: -(lr / bias1) as f32,
        }
    }
}

impl Optimizer for AdamW {
    fn name(&self) -> &'static str {
        NAME
    }

    fn steps(&self) -> u64 {
        self.step
    }

    fn state_bytes(&self) -> u64 {
        (self.exp_avg.len() + self.exp_avg_sq.len()) as u64 * 4
    }

    fn step(&mut self, params: &mut [f32], grads: &[f32], lr: f64) {
        let elements = self.layout.elements();
        assert!(params.len() == elements && grads.len() == elements, "the slices must be laid out as the optimizer was told");
        self.step += 1;
        for index in 0..self.segments.len() {
            let (range, group) = self.segments[index].clone();
            let factors = self.factors(lr * self.layout.groups()[group].lr_scale, self.weight_decay[group]);
            let states = self.exp_avg[range.clone()].par_chunks_mut(CHUNK).zip(self.exp_avg_sq[range.clone()].par_chunks_mut(CHUNK));
            let values = params[range.clone()].par_chunks_mut(CHUNK).zip(grads[range].par_chunks(CHUNK));
            values.zip(states).for_each(|((p, g), (m, v))| update(factors, p, g, m, v));
        }
    }

    fn state(&self) -> State {
        let mut state = State::new(NAME, FORMAT_VERSION, self.step);
        state.add_flat(&self.layout, "exp_avg", &self.exp_avg);
        state.add_flat(&self.layout, "exp_avg_sq", &self.exp_avg_sq);
        state
    }

    fn load_state(&mut self, state: &State) -> Result<()> {
        state.check(NAME, FORMAT_VERSION, &self.layout)?;
        let exp_avg = state.flat(&self.layout, "exp_avg")?;
        let exp_avg_sq = state.flat(&self.layout, "exp_avg_sq")?;
        (self.exp_avg, self.exp_avg_sq, self.step) = (exp_avg, exp_avg_sq, state.step);
        Ok(())
    }
}

/// The formula in the module's head, for one chunk.
fn update(f: Factors, params: &mut [f32], grads: &[f32], exp_avg: &mut [f32], exp_avg_sq: &mut [f32]) {
    for (((p, g), m), v) in params.iter_mut().zip(grads).zip(exp_avg).zip(exp_avg_sq) {
        *m += f.one_minus_beta1 * (g - *m);
        *v = *v * f.beta2 + f.one_minus_beta2 * g * g;
        let denominator = v.sqrt() / f.sqrt_bias2 + f.eps;
        *p = *p * f.decay + f.minus_step_size * *m / denominator;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Shape;

    #[test]
    fn group_factors_scale_the_rate_and_replace_the_decay() {
        let mut layout = Layout::new();
        for (name, scale, decay) in [("a", 1.0, Some(0.0)), ("b", 0.5, Some(0.0)), ("c", 0.0, None), ("d", 1.0, Some(0.1))] {
            let group = layout.add_group(name, scale, decay).unwrap();
            layout.push(name, Shape::from([1]), group).unwrap();
        }
        let mut optimizer = AdamW::new(layout, [0.9, 0.999], 0.0, 0.01).unwrap();
        let mut params = [1.0; 4];
        optimizer.step(&mut params, &[2.0; 4], 0.1);
        // The first step of Adam moves by the rate, whatever the gradient.
        let expected = [0.9, 0.95, 1.0, 0.89];
        assert!(params.iter().zip(expected).all(|(p, e)| (p - e).abs() < 1e-6), "{params:?}");
    }

    #[test]
    fn impossible_settings_are_refused() {
        let layout = Layout::uniform([("a".to_string(), Shape::from([1]))]).unwrap();
        let parse = |text: &str| AdamW::parse(&serde_json::from_str(text).unwrap(), layout.clone());
        assert!(parse(r#"{"betas": [0.9, 1.0]}"#).is_err());
        assert!(parse(r#"{"weight_decay": -0.1}"#).is_err());
        assert!(parse(r#"{"lr": 0.1}"#).is_err());
        assert!(parse(r#"{"betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": 0.0}"#).is_ok());
    }
}
