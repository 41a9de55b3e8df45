//! Adafactor (Shazeer & Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost", 2018, algorithms 4 and 5), with the
//! settings of `transformers.optimization.Adafactor`.
//!
//! ```text
//! β₂ₜ = 1 − t^decay_rate          v from g² + ε₁, factored (`factored.rs`)          u = g/√v
//! u ← u / max(1, RMS(u)/clip_threshold)                 α = rate · (scale_parameter: max(ε₂, RMS(p)))
//! beta1: m ← β₁m + (1−β₁)αu, u = m; else u ← αu         p ← p − αλp − u
//! ```
//! The rate is the schedule's, or with `relative_step` min(10⁻², 1/√t) (with `warmup_init` min(10⁻⁶·t, 1/√t)) times the schedule's
//! share; train.lr is then of no account. As in ai-toolkit both are off unless asked for: a LoRA's rate is usually given.

use super::factored::{Mean, clip, observe, stretches};
use super::{ADAM, Entry, Rule, Step, of};
use crate::cells::{Kind, Lane, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, NEGATIVE, POSITIVE};
use crate::table::{Grain, Place};
use anyhow::{Result, ensure};

pub(super) const ENTRY: Entry = Entry { name: "adafactor", aliases: &[], rates: ADAM, version: 1, parse };

struct Adafactor {
    eps: [f64; 2],
    clip_threshold: f64,
    decay_rate: f64,
    beta1: Option<f64>,
    weight_decay: f64,
    scale_parameter: bool,
    relative_step: bool,
    warmup_init: bool,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    let rule = Adafactor {
        eps: hyper.numbers(&["eps"], [1e-30, 1e-3], POSITIVE)?,
        clip_threshold: hyper.number(&["clip_threshold"], 1.0, POSITIVE)?,
        decay_rate: hyper.number(&["decay_rate"], -0.8, NEGATIVE)?,
        beta1: hyper.optional(&["beta1"], DECAY)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        scale_parameter: hyper.flag(&["scale_parameter"], false)?,
        relative_step: hyper.flag(&["relative_step"], false)?,
        warmup_init: hyper.flag(&["warmup_init"], false)?,
    };
    ensure!(!rule.warmup_init || rule.relative_step, "optimizer adafactor: warmup_init needs relative_step: true");
    Ok(Box::new(rule))
}

impl Adafactor {
    /// α.
    fn rate(&self, step: [f64; 2], place: Place, params: &[f32]) -> f64 {
        let [lr, share] = step;
        let t = place.updates as f64;
        let relative = if self.warmup_init { 1e-6 * t } else { 1e-2 };
        let rate = if self.relative_step { relative.min(1.0 / t.sqrt()) * share } else { lr };
        let squares = params.iter().map(|p| f64::from(*p).powi(2)).sum::<f64>();
        let size = (squares / params.len() as f64).sqrt();
        place.lr_scale * rate * if self.scale_parameter { size.max(self.eps[1]) } else { 1.0 }
    }

    fn update(&self, rate: f64, place: Place, params: &mut [f32], grads: &[f32], [rows, columns]: [&mut [f32]; 2], mut m: Option<Lane>) {
        let decay = 1.0 - (place.updates as f64).powf(self.decay_rate);
        observe(place.matrix, Mean { decay, eps: self.eps[0] }, rows, columns, |i| grads[i] * grads[i]);
        let clip = clip(place.matrix, rows, columns, grads, self.clip_threshold);
        let keep = (1.0 - rate * place.weight_decay.unwrap_or(self.weight_decay)) as f32;
        let (rate, beta1) = (rate as f32, self.beta1.unwrap_or(0.0));
        stretches(place.matrix, rows, columns, |range, factor, below| {
            let (params, grads) = (&mut params[range.clone()], &grads[range.clone()]);
            let step = |g: f32, c: f32| g * (factor / c.sqrt()) / clip * rate;
            match &mut m {
                None => params.iter_mut().zip(grads).zip(below).for_each(|((p, g), c)| *p = *p * keep - step(*g, *c)),
                Some(m) => {
                    for (((p, g), c), m) in params.iter_mut().zip(grads).zip(below).zip(&mut m.floats[range]) {
                        *m = *m * beta1 as f32 + (1.0 - beta1) as f32 * step(*g, *c);
                        *p = *p * keep - *m;
                    }
                }
            }
        });
    }
}

impl Rule for Adafactor {
    fn grain(&self) -> Grain {
        Grain::Param
    }

    fn cells(&self) -> Vec<Spec> {
        let mut cells = vec![Spec::new("exp_avg_sq_row", Kind::Rows), Spec::new("exp_avg_sq_col", Kind::Columns)];
        cells.extend(self.beta1.map(|_| Spec::new("exp_avg", Kind::Elements)));
        cells
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("rate", 0.0)]
    }

    fn shown(&self) -> &'static [&'static str] {
        if self.relative_step || self.scale_parameter { &["rate"] } else { &[] }
    }

    fn step(&mut self, mut step: Step) {
        let given = [step.lr, step.share()];
        let one = |place: Place, params: &mut [f32], grads: &[f32], rows: Lane, columns: Lane, m: Option<Lane>| {
            let rate = self.rate(given, place, params);
            self.update(rate, place, params, grads, [rows.floats, columns.floats], m);
            [rate * params.len() as f64, params.len() as f64]
        };
        let (params, grads) = (step.params, step.grads);
        let [rates, elements] = match self.beta1 {
            None => step.table.sum(params, grads, of(step.cells), |place, p, g, [rows, columns]| one(place, p, g, rows, columns, None)),
            Some(_) => {
                step.table.sum(params, grads, of(step.cells), |place, p, g, [rows, columns, m]| one(place, p, g, rows, columns, Some(m)))
            }
        };
        step.scalars.set("rate", rates / elements.max(1.0));
    }
}
