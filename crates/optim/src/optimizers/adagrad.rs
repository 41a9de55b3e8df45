//! Adagrad (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic Optimization", 2011), in PyTorch's form.
//!
//! ```text
//! g ← g + λp        s ← s + g²        p ← p − lr/(1 + (t−1)·lr_decay) · g / (√s + ε)
//! ```

use super::{Entry, Rates, Rule, Step, of};
use crate::cells::{Kind, Spec};
use crate::hyper::{DECAY_OF_WEIGHTS, Hyper, NOT_NEGATIVE, POSITIVE};
use anyhow::Result;

pub(super) const ENTRY: Entry =
    Entry { name: "adagrad", aliases: &["adagrad8bit"], rates: Rates { default: 1e-2, usual: [1e-6, 1.0] }, version: 1, parse };

struct Adagrad {
    lr_decay: f64,
    weight_decay: f64,
    start: f64,
    eps: f64,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(Adagrad {
        lr_decay: hyper.number(&["lr_decay"], 0.0, NOT_NEGATIVE)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        start: hyper.number(&["initial_accumulator_value"], 0.0, NOT_NEGATIVE)?,
        eps: hyper.number(&["eps"], 1e-10, POSITIVE)?,
    }))
}

impl Rule for Adagrad {
    fn cells(&self) -> Vec<Spec> {
        vec![Spec::new("sum", Kind::Elements)]
    }

    fn step(&mut self, step: Step) {
        step.table.each(step.params, step.grads, of(step.cells), |place, params, grads, [sum]| {
            if place.updates == 1 {
                sum.floats.fill(self.start as f32);
            }
            let lr = (step.lr * place.lr_scale / (1.0 + (place.updates - 1) as f64 * self.lr_decay)) as f32;
            let decay = place.weight_decay.unwrap_or(self.weight_decay) as f32;
            for ((p, g), s) in params.iter_mut().zip(grads).zip(sum.floats) {
                let g = g + decay * *p;
                *s += g * g;
                *p -= lr * g / (s.sqrt() + self.eps as f32);
            }
        });
    }
}
