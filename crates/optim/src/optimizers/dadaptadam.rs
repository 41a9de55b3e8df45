//! D-Adaptation of Adam (Defazio & Mishchenko, "Learning-Rate-Free Learning by D-Adaptation", 2023, algorithm 5), with the settings
//! of its authors' package `dadaptation`.
//!
//! With e = d·lr·(bias correction), β = √β₂ and a group's factor r on the rate:
//!
//! ```text
//! N ← βN + (1−β)·Σ r·e·⟨g, s/(√v + ε)⟩          (with v and s before this step)
//! m ← β₁m + (1−β₁)·r·e·g        v ← β₂v + (1−β₂)g²        s ← βs + (1−β)·e·g
//! d̂ = N / ((1−β)·Σ r·‖s‖₁)      d ← max(d, min(d̂, d · growth_rate))
//! p ← p − e·λp − m/(√v + ε)
//! ```

use super::{Entry, FACTOR, Rule, Step, of};
use crate::cells::{Kind, Lane, Spec};
use crate::hyper::{AT_LEAST_ONE, DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use crate::table::Place;
use anyhow::Result;

pub(super) const ENTRY: Entry =
    Entry { name: "dadaptadam", aliases: &["dadaptation", "dadapt", "dadaptadampreprint"], rates: FACTOR, version: 1, parse };

struct DAdaptAdam {
    betas: [f64; 2],
    eps: f64,
    weight_decay: f64,
    decouple: bool,
    use_bias_correction: bool,
    d0: f64,
    growth_rate: f64,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(DAdaptAdam {
        betas: hyper.numbers(&["betas"], [0.9, 0.999], DECAY)?,
        eps: hyper.number(&["eps"], 1e-8, POSITIVE)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        decouple: hyper.flag(&["decouple"], false)?,
        use_bias_correction: hyper.flag(&["use_bias_correction"], false)?,
        d0: hyper.number(&["d0"], 1e-6, POSITIVE)?,
        growth_rate: hyper.optional(&["growth_rate"], AT_LEAST_ONE)?.unwrap_or(f64::INFINITY),
    }))
}

impl DAdaptAdam {
    /// Of weight decay: on the parameter and in the gradient.
    fn decays(&self, place: Place) -> [f64; 2] {
        let decay = place.weight_decay.unwrap_or(self.weight_decay);
        if self.decouple { [decay, 0.0] } else { [0.0, decay] }
    }

    /// Moments, s, and this piece's part of r·⟨g, s/(√v + ε)⟩ and r·‖s‖₁.
    fn gather(&self, rate: f64, place: Place, params: &[f32], grads: &[f32], lanes: [Lane; 3]) -> [f64; 2] {
        let [s, m, v] = lanes;
        let root = self.betas[1].sqrt();
        let [beta1, beta2] = self.betas.map(|b| b as f32);
        let (into_m, into_v) = ((place.lr_scale * rate * (1.0 - self.betas[0])) as f32, (1.0 - self.betas[1]) as f32);
        let (keep_s, into_s) = (root as f32, (rate * (1.0 - root)) as f32);
        let (pull, eps) = (self.decays(place)[1] as f32, self.eps as f32);
        let mut sums = [0.0; 2];
        for ((((p, g), s), m), v) in params.iter().zip(grads).zip(s.floats).zip(m.floats).zip(v.floats) {
            let g = g + pull * p;
            sums[0] += f64::from(g) * f64::from(*s / (v.sqrt() + eps));
            *m = *m * beta1 + into_m * g;
            *v = *v * beta2 + into_v * g * g;
            *s = *s * keep_s + into_s * g;
            sums[1] += f64::from(s.abs());
        }
        sums.map(|sum| place.lr_scale * sum)
    }
}

impl Rule for DAdaptAdam {
    fn cells(&self) -> Vec<Spec> {
        ["s", "exp_avg", "exp_avg_sq"].map(|name| Spec::new(name, Kind::Elements)).to_vec()
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("d", self.d0), ("numerator", 0.0), ("rate", 0.0)]
    }

    fn shown(&self) -> &'static [&'static str] {
        &["d", "rate"]
    }

    fn step(&mut self, mut step: Step) {
        let d = step.scalars.get("d");
        let bias = |beta: f64| 1.0 - beta.powf(step.number as f64);
        let correction = if self.use_bias_correction { bias(self.betas[1]).sqrt() / bias(self.betas[0]) } else { 1.0 };
        let rate = d * step.lr * correction;
        let cells = of::<3>(step.cells);
        let [product, norm] =
            step.table.sum(step.params, step.grads, cells, |place, params, grads, lanes| self.gather(rate, place, params, grads, lanes));
        if norm == 0.0 {
            return;
        }
        let root = self.betas[1].sqrt();
        let numerator = root * step.scalars.get("numerator") + (1.0 - root) * rate * product;
        let d = d.max((numerator / ((1.0 - root) * norm)).min(d * self.growth_rate));
        step.table.each(step.params, step.grads, cells, |place, params, _, [_, m, v]| {
            let (keep, eps) = ((1.0 - rate * self.decays(place)[0]) as f32, self.eps as f32);
            params.iter_mut().zip(m.floats).zip(v.floats).for_each(|((p, m), v)| *p = *p * keep - *m / (v.sqrt() + eps));
        });
        for (name, value) in [("d", d), ("numerator", numerator), ("rate", d * step.lr)] {
            step.scalars.set(name, value);
        }
    }
}
