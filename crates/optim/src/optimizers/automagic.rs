//! Automagic (ai-toolkit's own): every element has its own rate, which rises while its update keeps its sign and falls when it flips.
//!
//! ```text
//! v from g² + ε with β₂, factored (`factored.rs`)       u = g/√v / max(1, RMS(u)/clip_threshold)
//! a ← clamp(a ± lr_bump, min_lr, max_lr): + if u > 0 is as it was, − if not (from the second step in a row on)
//! p ← p − a·λp − a·u
//! ```
//! Rates begin at train.lr and are kept in f32: in steps of a 127th of the largest, as 8 bits have them, most bumps would be lost.
//! The schedule's share and the groups' factors scale the step.

use super::factored::{Mean, clip, observe, stretches};
use super::{Entry, Rates, Rule, Step, of};
use crate::cells::{Kind, Lane, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, NOT_NEGATIVE, POSITIVE};
use crate::table::{Grain, Place};
use anyhow::{Result, ensure};

pub(super) const ENTRY: Entry = Entry { name: "automagic", aliases: &["automagic1"], rates: RATES, version: 1, parse };

pub(super) const RATES: Rates = Rates { default: 1e-6, usual: [1e-8, 1e-3] };

/// Settings that the first and the second form share.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    pub limits: [f64; 2],
    pub lr_bump: f64,
    pub beta2: f64,
    pub eps: f64,
    pub clip_threshold: f64,
    pub weight_decay: f64,
}

impl Settings {
    pub(super) fn parse(hyper: &mut Hyper) -> Result<Settings> {
        let limits = [hyper.number(&["min_lr"], 1e-7, NOT_NEGATIVE)?, hyper.number(&["max_lr"], 1e-3, POSITIVE)?];
        ensure!(limits[0] <= limits[1], "optimizer automagic: min_lr {:e} is above max_lr {:e}", limits[0], limits[1]);
        Ok(Settings {
            limits,
            lr_bump: hyper.number(&["lr_bump"], 1e-6, NOT_NEGATIVE)?,
            beta2: hyper.number(&["beta2"], 0.999, DECAY)?,
            eps: hyper.number(&["eps"], 1e-30, POSITIVE)?,
            clip_threshold: hyper.number(&["clip_threshold"], 1.0, POSITIVE)?,
            weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
        })
    }

    pub(super) fn mean(&self) -> Mean {
        Mean { decay: self.beta2, eps: self.eps }
    }

    pub(super) fn clamp(&self, rate: f32) -> f32 {
        rate.clamp(self.limits[0] as f32, self.limits[1] as f32)
    }
}

struct Automagic(Settings);

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(Automagic(Settings::parse(hyper)?)))
}

/// Whether bit `i` is set.
pub(super) fn bit(bits: &[u8], i: usize) -> bool {
    bits[i / 8] >> (i % 8) & 1 == 1
}

/// Sets bit `i`.
pub(super) fn set_bit(bits: &mut [u8], i: usize, on: bool) {
    bits[i / 8] = bits[i / 8] & !(1 << (i % 8)) | u8::from(on) << (i % 8);
}

impl Automagic {
    /// Updates one parameter; returns the sum of its rates.
    fn update(&self, scale: f32, place: Place, params: &mut [f32], grads: &[f32], lanes: [Lane; 4]) -> f64 {
        let [rows, columns, rates, signs] = lanes;
        observe(place.matrix, self.0.mean(), rows.floats, columns.floats, |i| grads[i] * grads[i]);
        let clip = clip(place.matrix, rows.floats, columns.floats, grads, self.0.clip_threshold);
        let compare = place.updates > 1 && place.in_a_row;
        let (bump, decay) = (self.0.lr_bump as f32, place.weight_decay.unwrap_or(self.0.weight_decay) as f32);
        let mut sum = 0.0;
        stretches(place.matrix, rows.floats, columns.floats, |range, factor, below| {
            for (i, c) in range.zip(below) {
                let update = grads[i] * (factor / c.sqrt()) / clip;
                let agrees = bit(signs.bytes, i) == (update > 0.0);
                let bumped = rates.floats[i] + if agrees { bump } else { -bump };
                rates.floats[i] = self.0.clamp(if compare { bumped } else { rates.floats[i] });
                set_bit(signs.bytes, i, update > 0.0);
                sum += f64::from(rates.floats[i]);
                let rate = scale * rates.floats[i];
                params[i] -= rate * (decay * params[i] + update);
            }
        });
        sum
    }
}

impl Rule for Automagic {
    fn grain(&self) -> Grain {
        Grain::Param
    }

    fn cells(&self) -> Vec<Spec> {
        vec![
            Spec::new("exp_avg_sq_row", Kind::Rows),
            Spec::new("exp_avg_sq_col", Kind::Columns),
            Spec::new("lr", Kind::Elements),
            Spec::new("polarity", Kind::Bits(1)),
        ]
    }

    fn scalars(&self) -> Vec<(&'static str, f64)> {
        vec![("rate", 0.0)]
    }

    fn shown(&self) -> &'static [&'static str] {
        &["rate"]
    }

    fn step(&mut self, mut step: Step) {
        let (start, share) = (step.base_lr as f32, step.share());
        let [rates, elements] = step.table.sum(step.params, step.grads, of(step.cells), |place, params, grads, lanes| {
            let [rows, columns, rates, signs] = lanes;
            if place.updates == 1 {
                rates.floats.fill(start);
            }
            let scale = (share * place.lr_scale) as f32;
            [self.update(scale, place, params, grads, [rows, columns, rates, signs]), params.len() as f64]
        });
        step.scalars.set("rate", rates / elements.max(1.0));
    }
}
