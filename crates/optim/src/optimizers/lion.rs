//! Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2).
//!
//! ```text
//! p ← p·(1 − lr·λ) − lr·sign(β₁m + (1−β₁)g)                m ← β₂m + (1−β₂)g
//! ```
//! Its authors use a rate three to ten times smaller, and a weight decay as much larger, than AdamW's.

use super::adam::Bits;
use super::{ADAM, Entry, Rule, Step, of};
use crate::cells::{Spec, decoded};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper};
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry {
    name: "lion",
    aliases: &["pagedlion", "pagedlion32bit", "lion32bit"],
    rates: ADAM,
    version: 1,
    parse: |hyper| parse(hyper, Bits::Full),
};

struct Lion {
    betas: [f64; 2],
    weight_decay: f64,
    bits: Bits,
}

pub(super) fn parse(hyper: &mut Hyper, bits: Bits) -> Result<Box<dyn Rule>> {
    let betas = hyper.numbers(&["betas"], [0.9, 0.99], DECAY)?;
    let weight_decay = hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?;
    Ok(Box::new(Lion { betas, weight_decay, bits }))
}

impl Rule for Lion {
    fn cells(&self) -> Vec<Spec> {
        vec![Spec::new("exp_avg", self.bits.signed())]
    }

    fn step(&mut self, step: Step) {
        let [beta1, beta2] = self.betas.map(|b| b as f32);
        let [rest1, rest2] = self.betas.map(|b| (1.0 - b) as f32);
        step.table.each(step.params, step.grads, of(step.cells), |place, params, grads, lanes| {
            let lr = step.lr * place.lr_scale;
            let keep = (1.0 - lr * place.weight_decay.unwrap_or(self.weight_decay)) as f32;
            decoded(params, grads, lanes, |params, grads, [exp_avg]| {
                for ((p, g), m) in params.iter_mut().zip(grads).zip(exp_avg) {
                    *p = *p * keep - lr as f32 * sign(*m * beta1 + rest1 * g);
                    *m = *m * beta2 + rest2 * g;
                }
            });
        });
    }
}

/// −1, 0 or 1.
pub(super) fn sign(value: f32) -> f32 {
    f32::from(i8::from(value > 0.0) - i8::from(value < 0.0))
}
