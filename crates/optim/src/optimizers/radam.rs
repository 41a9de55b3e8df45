//! RAdam (Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond", 2020, algorithm 2), in PyTorch's form.
//!
//! With ρ∞ = 2/(1−β₂) − 1 and ρₜ = ρ∞ − 2t·β₂ᵗ/(1−β₂ᵗ), moments as Adam's:
//!
//! ```text
//! ρₜ > 5:  p ← p − lr · m̂ · r · √(1−β₂ᵗ)/(√v + ε)      r² = (ρₜ−4)(ρₜ−2)ρ∞ / ((ρ∞−4)(ρ∞−2)ρₜ)
//! else:    p ← p − lr · m̂
//! ```

use super::{ADAM, Entry, Rule, Step, of};
use crate::cells::{Kind, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "radam", aliases: &[], rates: ADAM, version: 1, parse };

struct Radam {
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    decoupled: bool,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(Radam {
        betas: hyper.numbers(&["betas"], [0.9, 0.999], DECAY)?,
        eps: hyper.number(&["eps"], 1e-8, POSITIVE)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        decoupled: hyper.flag(&["decoupled_weight_decay"], false)?,
    }))
}

impl Radam {
    /// The factor r·√(1−β₂ᵗ) on the adaptive step; none while the variance can't be told.
    fn rectified(&self, updates: f64) -> Option<f64> {
        let power = self.betas[1].powf(updates);
        let end = 2.0 / (1.0 - self.betas[1]) - 1.0;
        let rho = end - 2.0 * updates * power / (1.0 - power);
        let squared = (rho - 4.0) * (rho - 2.0) * end / ((end - 4.0) * (end - 2.0) * rho);
        (rho > 5.0).then(|| squared.sqrt() * (1.0 - power).sqrt())
    }
}

impl Rule for Radam {
    fn cells(&self) -> Vec<Spec> {
        vec![Spec::new("exp_avg", Kind::Elements), Spec::new("exp_avg_sq", Kind::Elements)]
    }

    fn step(&mut self, step: Step) {
        let (rest1, beta2, rest2) = ((1.0 - self.betas[0]) as f32, self.betas[1] as f32, (1.0 - self.betas[1]) as f32);
        let eps = self.eps as f32;
        step.table.each(step.params, step.grads, of(step.cells), |place, params, grads, [exp_avg, exp_avg_sq]| {
            let lr = step.lr * place.lr_scale;
            let decay = place.weight_decay.unwrap_or(self.weight_decay);
            let (keep, pull) = if self.decoupled { ((1.0 - lr * decay) as f32, 0.0) } else { (1.0, decay as f32) };
            let size = lr / (1.0 - self.betas[0].powf(place.updates as f64));
            let rectified = self.rectified(place.updates as f64);
            let factor = (size * rectified.unwrap_or(1.0)) as f32;
            for (((p, g), m), v) in params.iter_mut().zip(grads).zip(exp_avg.floats).zip(exp_avg_sq.floats) {
                let g = g + pull * *p;
                *m += rest1 * (g - *m);
                *v = *v * beta2 + rest2 * g * g;
                let denominator = if rectified.is_some() { v.sqrt() + eps } else { 1.0 };
                *p = *p * keep - factor * *m / denominator;
            }
        });
    }
}
