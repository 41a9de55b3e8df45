//! Low-rank adaptation (Hu et al., "LoRA", 2021): ΔW = (alpha / rank) · B A. What the user asks for, and one module's adapter.
//!
//! A starts uniform in ±1/√fan_in (Kaiming with a = √5, as PyTorch starts a linear layer), B at zero: at the first step the model is
//! unchanged. Each factor's numbers depend on the seed and its module's name only.

use super::targets::Module;
use anyhow::{Result, ensure};
use base::{Rng, Shape};
use graph::ops::Lora;

/// What the user asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct AdapterSpec {
    /// Rank of linear layers and 1×1 convolutions.
    pub rank: usize,
    pub alpha: f32,
    /// Rank of 3×3 convolutions; `None`: nothing outside the transformers.
    pub conv_rank: Option<usize>,
    pub conv_alpha: Option<f32>,
    /// Share of the elements of x Aᵀ that a step drops, in [0, 1).
    pub dropout: f32,
    /// Only modules whose canonical or sd-scripts name contains one of these (all if empty).
    pub only_if_contains: Vec<String>,
    pub ignore_if_contains: Vec<String>,
    pub unet: bool,
    pub text_encoder: bool,
    /// Multiplies ΔW; 1 in training.
    pub strength: f32,
}

impl Default for AdapterSpec {
    fn default() -> AdapterSpec {
        AdapterSpec {
            rank: 16,
            alpha: 16.0,
            conv_rank: None,
            conv_alpha: None,
            dropout: 0.0,
            only_if_contains: Vec::new(),
            ignore_if_contains: Vec::new(),
            unet: true,
            text_encoder: false,
            strength: 1.0,
        }
    }
}

impl AdapterSpec {
    /// Refuses settings that are out of range or without effect.
    pub(super) fn check(&self) -> Result<()> {
        ensure!(self.rank > 0 && self.conv_rank != Some(0), "an adapter's rank must be 1 or more");
        ensure!((0.0..1.0).contains(&self.dropout), "dropout {} is no share from 0 up to (not including) 1", self.dropout);
        let alphas = [Some(self.alpha), self.conv_alpha];
        ensure!(alphas.iter().flatten().all(|a| a.is_finite() && *a > 0.0), "alpha must be a number above 0, or the adapter has no effect");
        ensure!(self.conv_rank.is_some() || self.conv_alpha.is_none(), "a convolution alpha is given without a convolution rank");
        ensure!(self.unet || self.text_encoder, "neither the UNet nor the text encoder is to be trained");
        Ok(())
    }
}

/// One module's adapter.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    pub module: Module,
    pub rank: usize,
    pub alpha: f32,
    pub dropout: f32,
    pub strength: f32,
}

/// A factor with its numbers, in memory order.
#[derive(Clone, Debug, PartialEq)]
pub struct Factor {
    pub name: String,
    pub shape: Shape,
    pub data: Vec<f32>,
}

impl Adapter {
    /// The attribute of the module's op.
    pub fn lora(&self) -> Lora {
        let stream = base::rng::name_word(&self.module.name);
        let scale = self.strength * self.alpha / self.rank as f32;
        Lora { scale, dropout: self.dropout, stream: (stream >> 32) as u32 ^ stream as u32 }
    }

    /// Names and shapes of A and B.
    pub fn params(&self) -> [(String, Shape); 2] {
        let name = &self.module.name;
        [(format!("{name}.lora_down"), self.module.down_shape(self.rank)), (format!("{name}.lora_up"), self.module.up_shape(self.rank))]
    }

    pub(super) fn init(&self, seed: u64) -> [Factor; 2] {
        let [(down, down_shape), (up, up_shape)] = self.params();
        let mut rng = Rng::new(seed, "lora", &[base::rng::name_word(&self.module.name)]);
        let fan_in = down_shape.elements() / self.rank;
        let bound = 1.0 / (fan_in as f32).sqrt();
        let numbers = (0..down_shape.elements()).map(|_| (2.0 * rng.uniform() - 1.0) * bound).collect();
        let zeros = vec![0.0; up_shape.elements()];
        [Factor { name: down, shape: down_shape, data: numbers }, Factor { name: up, shape: up_shape, data: zeros }]
    }
}
