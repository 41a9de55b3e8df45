//! Prodigy (Mishchenko & Defazio, "Prodigy: An Expeditiously Adaptive Parameter-Free Learner", 2024, algorithm 4), with the settings
//! of its authors' package `prodigyopt`.
//!
//! The distance d to the solution is estimated from below while training; the step is Adam's at the rate d·lr, so lr stays 1.
//! With e = d·lr·(bias correction), β₃ = √β₂ and p₀ the parameters at the start:
//!
//! ```text
//! N ← β₃N + (d/d₀)·e·⟨g, p₀ − p⟩           s ← β₃s + (d/d₀)·e·g          (safeguard_warmup: d instead of e in s)
//! m ← β₁m + (1−β₁)·d·g                     v ← β₂v + (1−β₂)·d²·g²
//! d̂ = d_coef · N / ‖s‖₁                    d ← min(max over all d̂, d · growth_rate)       (at first d = max(d, d̂))
//! p ← p − e·λp − e·m/(√v + d·ε)
//! ```
//! N and ‖s‖₁ run over every `slice_p`th element. A group's factor on the rate scales its step and its part of ‖s‖₁: a common factor
//! would then change nothing but d.

use super::adam::Bits;
use super::{Entry, FACTOR, Rule, Step, of};
use crate::cells::{Kind, Lane, Spec, decoded, looked_at};
use crate::hyper::{AT_LEAST_ONE, DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use crate::table::Place;
use anyhow::Result;

pub(super) const ENTRY: Entry =
    Entry { name: "prodigy", aliases: &["prodigyopt"], rates: FACTOR, version: 1, parse: |hyper| parse(hyper, Bits::Full, 1) };

struct Prodigy {
    betas: [f64; 2],
    beta3: f64,
    eps: f64,
    weight_decay: f64,
    decouple: bool,
    use_bias_correction: bool,
    safeguard_warmup: bool,
    d0: f64,
    d_coef: f64,
    growth_rate: f64,
    slice: usize,
    bits: Bits,
}

pub(super) fn parse(hyper: &mut Hyper, bits: Bits, slice: u64) -> Result<Box<dyn Rule>> {
    let betas = hyper.numbers(&["betas"], [0.9, 0.999], DECAY)?;
    Ok(Box::new(Prodigy {
        betas,
        beta3: hyper.optional(&["beta3"], DECAY)?.unwrap_or(betas[1].sqrt()),
        eps: hyper.number(&["eps"], 1e-8, POSITIVE)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        decouple: hyper.flag(&["decouple"], true)?,
        use_bias_correction: hyper.flag(&["use_bias_correction"], false)?,
        safeguard_warmup: hyper.flag(&["safeguard_warmup"], false)?,
        d0: hyper.number(&["d0"], 1e-6, POSITIVE)?,
        d_coef: hyper.number(&["d_coef"], 1.0, POSITIVE)?,
        growth_rate: hyper.optional(&["growth_rate"], AT_LEAST_ONE)?.unwrap_or(f64::INFINITY),
        slice: hyper.whole(&["slice_p"], slice, [1, 1000])? as usize,
        bits,
    }))
}

/// What the gathering pass multiplies with.
struct Gather {
    d: f64,
    /// e: the rate of this step.
    rate: f64,
    /// (d/d₀)·e, or (d/d₀)·d.
    into_s: f64,
}

impl Prodigy {
    /// Of weight decay: on the parameter and in the gradient.
    fn decays(&self, place: Place) -> [f64; 2] {
        let decay = place.weight_decay.unwrap_or(self.weight_decay);
        if self.decouple { [decay, 0.0] } else { [0.0, decay] }
    }

    /// Moments, s, and this piece's part of ⟨g, p₀ − p⟩ and ‖s‖₁.
    fn gather(&self, now: &Gather, place: Place, params: &mut [f32], grads: &[f32], lanes: [Lane; 4]) -> [f64; 2] {
        let [s, p0, m, v] = lanes;
        let pull = self.decays(place)[1] as f32;
        let first = place.offset.next_multiple_of(self.slice) - place.offset;
        let mut sums = [0.0; 2];
        for (k, (s, p0)) in s.floats.iter_mut().zip(p0.floats).enumerate() {
            let i = first + k * self.slice;
            let g = grads[i] + pull * params[i];
            if place.updates == 1 {
                *p0 = params[i];
            }
            *s = *s * self.beta3 as f32 + now.into_s as f32 * g;
            sums[0] += f64::from(g) * f64::from(*p0 - params[i]);
            sums[1] += f64::from(s.abs());
        }
        let [beta1, beta2] = self.betas.map(|b| b as f32);
        let (into_m, into_v) = ((now.d * (1.0 - self.betas[0])) as f32, (now.d * now.d * (1.0 - self.betas[1])) as f32);
        decoded(params, grads, [m, v], |params, grads, [m, v]| {
            for (((p, g), m), v) in params.iter_mut().zip(grads).zip(m).zip(v) {
                let g = g + pull * *p;
                *m = *m * beta1 + into_m * g;
                *v = *v * beta2 + into_v * g * g;
            }
        });
        [sums[0], place.lr_scale * sums[1]]
    }
}

impl Rule for Prodigy {
    fn cells(&self) -> Vec<Spec> {
        vec![
            Spec::new("s", Kind::EveryNth(self.slice)),
            Spec::new("p0", Kind::EveryNth(self.slice)),
            Spec::new("exp_avg", self.bits.signed()),
            Spec::new("exp_avg_sq", self.bits.unsigned()),
        ]
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("d", self.d0), ("d_max", self.d0), ("numerator", 0.0), ("rate", 0.0)]
    }

    fn shown(&self) -> &'static [&'static str] {
        &["d", "rate"]
    }

    fn step(&mut self, mut step: Step) {
        let [mut d, mut d_max, numerator] = ["d", "d_max", "numerator"].map(|name| step.scalars.get(name));
        let bias = |beta: f64| 1.0 - beta.powf(step.number as f64);
        let correction = if self.use_bias_correction { bias(self.betas[1]).sqrt() / bias(self.betas[0]) } else { 1.0 };
        let rate = d * step.lr * correction;
        let into_s = d / self.d0 * if self.safeguard_warmup { d } else { rate };
        let now = Gather { d, rate, into_s };
        let cells = of::<4>(step.cells);
        let [product, norm] =
            step.table.sum(step.params, step.grads, cells, |place, params, grads, lanes| self.gather(&now, place, params, grads, lanes));
        if norm == 0.0 {
            return;
        }
        let numerator = numerator * self.beta3 + d / self.d0 * now.rate * product;
        let estimate = self.d_coef * numerator / norm;
        if d == self.d0 {
            d = d.max(estimate);
        }
        d_max = d_max.max(estimate);
        d = d_max.min(d * self.growth_rate);
        step.table.each(step.params, step.grads, cells, |place, params, _, [_, _, m, v]| {
            let rate = now.rate * place.lr_scale;
            let (keep, rate, eps) = ((1.0 - rate * self.decays(place)[0]) as f32, rate as f32, (d * self.eps) as f32);
            looked_at(params, [m, v], |params, [m, v]| {
                params.iter_mut().zip(m).zip(v).for_each(|((p, m), v)| *p = *p * keep - rate * *m / (v.sqrt() + eps));
            });
        });
        for (name, value) in [("d", d), ("d_max", d_max), ("numerator", numerator), ("rate", d * step.lr)] {
            step.scalars.set(name, value);
        }
    }
}
