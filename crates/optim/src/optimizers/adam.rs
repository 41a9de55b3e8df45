//! Adam (Kingma & Ba, "Adam: A Method for Stochastic Optimization", 2015, algorithm 1), and what AdamW and the 8-bit forms share.
//!
//! ```text
//! m ← m + (1−β₁)(g − m)        v ← β₂v + (1−β₂)g²        p ← p − lr/(1−β₁ᵗ) · m / (√v/√(1−β₂ᵗ) + ε)
//! ```
//! Weight decay λ is added to the gradient, g + λp (PyTorch's `torch.optim.Adam`); decoupled, it is AdamW's.
//! The operations come in PyTorch's order (single-tensor form), scalars are computed in f64, the elements in f32, so that runs can
//! be compared with PyTorch's number by number.

use super::{ADAM, Entry, Rule, Step, of};
use crate::cells::{Kind, Spec, decoded};
use crate::dynamic::Code;
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use crate::table::Place;
use anyhow::Result;
use serde_json::json;

pub(super) const ENTRY: Entry = Entry {
    name: "adam",
    aliases: &["pagedadam", "pagedadam32bit", "adam32bit"],
    rates: ADAM,
    version: 1,
    parse: |hyper| parse(hyper, Decay::Coupled, Bits::Full, 0.0),
};

/// Where weight decay acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decay {
    /// In the gradient.
    Coupled,
    /// On the parameter.
    Decoupled,
}

/// What moments are stored in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bits {
    Full,
    Eight,
}

impl Bits {
    /// A first moment.
    pub(super) fn signed(self) -> Kind {
        if self == Bits::Full { Kind::Elements } else { Kind::Coded(Code::Signed) }
    }

    /// A second moment.
    pub(super) fn unsigned(self) -> Kind {
        if self == Bits::Full { Kind::Elements } else { Kind::Coded(Code::Unsigned) }
    }
}

struct Adam {
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    decay: Decay,
    bits: Bits,
}

/// Settings `betas` [0.9, 0.999], `eps` 1e-8, `weight_decay`: PyTorch's names and defaults.
pub(super) fn parse(hyper: &mut Hyper, decay: Decay, bits: Bits, weight_decay: f64) -> Result<Box<dyn Rule>> {
    let betas = hyper.numbers(&["betas"], [0.9, 0.999], DECAY)?;
    let eps = hyper.number(&["eps"], 1e-8, POSITIVE)?;
    let weight_decay = hyper.number(&["weight_decay"], weight_decay, DECAY_OF_WEIGHTS)?;
    hyper.only("amsgrad", json!(false), "the largest second moment is not kept")?;
    Ok(Box::new(Adam { betas, eps, weight_decay, decay, bits }))
}

/// What one step multiplies with: the same for all elements of a piece.
#[derive(Clone, Copy)]
struct Factors {
    /// On the parameter.
    keep: f32,
    /// Of the parameter in the gradient.
    pull: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    sqrt_bias2: f32,
    eps: f32,
    minus_step_size: f32,
}

impl Adam {
    fn factors(&self, place: Place, lr: f64) -> Factors {
        let [beta1, beta2] = self.betas;
        let lr = lr * place.lr_scale;
        let weight_decay = place.weight_decay.unwrap_or(self.weight_decay);
        let bias = |beta: f64| 1.0 - beta.powf(place.updates as f64);
        let coupled = self.decay == Decay::Coupled;
        Factors {
            keep: if coupled { 1.0 } else { (1.0 - lr * weight_decay) as f32 },
            pull: if coupled { weight_decay as f32 } else { 0.0 },
            one_minus_beta1: (1.0 - beta1) as f32,
            beta2: beta2 as f32,
            one_minus_beta2: (1.0 - beta2) as f32,
            sqrt_bias2: bias(beta2).sqrt() as f32,
            eps: self.eps as f32,
            minus_step_size: -(lr / bias(beta1)) as f32,
        }
    }
}

impl Rule for Adam {
    fn cells(&self) -> Vec<Spec> {
        vec![Spec::new("exp_avg", self.bits.signed()), Spec::new("exp_avg_sq", self.bits.unsigned())]
    }

    fn step(&mut self, step: Step) {
        step.table.each(step.params, step.grads, of(step.cells), |place, params, grads, lanes| {
            let factors = self.factors(place, step.lr);
            decoded(params, grads, lanes, |params, grads, [m, v]| update(factors, params, grads, m, v));
        });
    }
}

/// The formula in the module's head.
fn update(f: Factors, params: &mut [f32], grads: &[f32], exp_avg: &mut [f32], exp_avg_sq: &mut [f32]) {
    for (((p, g), m), v) in params.iter_mut().zip(grads).zip(exp_avg).zip(exp_avg_sq) {
        let g = g + f.pull * *p;
        *m += f.one_minus_beta1 * (g - *m);
        *v = *v * f.beta2 + f.one_minus_beta2 * g * g;
        let denominator = v.sqrt() / f.sqrt_bias2 + f.eps;
        *p = *p * f.keep + f.minus_step_size * *m / denominator;
    }
}
