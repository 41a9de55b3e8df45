//! D-Adaptation of Lion (the `DAdaptLion` of Defazio & Mishchenko's package `dadaptation`; the method is in "Learning-Rate-Free
//! Learning by D-Adaptation", 2023).
//!
//! With e = d·lr, β = √β₂ and a group's factor r on the rate:
//!
//! ```text
//! u = sign(β₁m + (1−β₁)g)         p ← p·(1 − r·e·λ) − r·e·u         m ← β₂m + (1−β₂)·e·g
//! N ← βN + (1−β)·Σ r·e·⟨u, s⟩     s ← βs + (1−β)·e·u                d ← max(d, N / ((1−β)·Σ r·‖s‖₁))
//! ```

use super::lion::sign;
use super::{Entry, FACTOR, Rule, Step, of};
use crate::cells::{Kind, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "dadaptlion", aliases: &["dadaptationlion"], rates: FACTOR, version: 1, parse };

struct DAdaptLion {
    betas: [f64; 2],
    weight_decay: f64,
    d0: f64,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(DAdaptLion {
        betas: hyper.numbers(&["betas"], [0.9, 0.99], DECAY)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        d0: hyper.number(&["d0"], 1e-6, POSITIVE)?,
    }))
}

impl Rule for DAdaptLion {
    fn cells(&self) -> Vec<Spec> {
        vec![Spec::new("s", Kind::Elements), Spec::new("exp_avg", Kind::Elements)]
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("d", self.d0), ("numerator", 0.0), ("rate", 0.0)]
    }

    fn shown(&self) -> &'static [&'static str] {
        &["d", "rate"]
    }

    fn step(&mut self, mut step: Step) {
        let d = step.scalars.get("d");
        let (rate, root) = (d * step.lr, self.betas[1].sqrt());
        let [beta1, beta2] = self.betas.map(|b| b as f32);
        let (rest1, into_m) = ((1.0 - self.betas[0]) as f32, ((1.0 - self.betas[1]) * rate) as f32);
        let (keep_s, into_s) = (root as f32, ((1.0 - root) * rate) as f32);
        let [product, norm] = step.table.sum(step.params, step.grads, of(step.cells), |place, params, grads, [s, m]| {
            let own = rate * place.lr_scale;
            let keep = (1.0 - own * place.weight_decay.unwrap_or(self.weight_decay)) as f32;
            let mut sums = [0.0; 2];
            for (((p, g), s), m) in params.iter_mut().zip(grads).zip(s.floats).zip(m.floats) {
                let u = sign(*m * beta1 + rest1 * g);
                *p = *p * keep - own as f32 * u;
                *m = *m * beta2 + into_m * g;
                sums[0] += f64::from(u * *s);
                *s = *s * keep_s + into_s * u;
                sums[1] += f64::from(s.abs());
            }
            sums.map(|sum| place.lr_scale * sum)
        });
        if norm == 0.0 {
            return;
        }
        let numerator = root * step.scalars.get("numerator") + (1.0 - root) * rate * product;
        let d = d.max(numerator / ((1.0 - root) * norm));
        for (name, value) in [("d", d), ("numerator", numerator), ("rate", d * step.lr)] {
            step.scalars.set(name, value);
        }
    }
}
