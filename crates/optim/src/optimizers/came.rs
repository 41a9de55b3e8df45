//! CAME (Luo et al., "CAME: Confidence-guided Adaptive Memory Efficient Optimization", 2023, algorithm 2), with the settings of its
//! authors' package `came-pytorch`.
//!
//! ```text
//! v from g² + ε₁ with β₂, factored (`factored.rs`)          u = g/√v / max(1, RMS(u)/clip_threshold)
//! m ← β₁m + (1−β₁)u             s from (u − m)² + ε₂ with β₃, factored           p ← p − lr·λp − lr·m/√s
//! ```
//! Vectors have a v for each element and no s: p ← p − lr·λp − lr·m.

use super::factored::{Mean, clip, observe, stretches};
use super::{ADAM, Entry, Rule, Step, of};
use crate::cells::{Kind, Lane, Spec};
use crate::hyper::{DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use crate::table::{Grain, Matrix, Place};
use anyhow::Result;

pub(super) const ENTRY: Entry = Entry { name: "came", aliases: &[], rates: ADAM, version: 1, parse };

struct Came {
    betas: [f64; 3],
    eps: [f64; 2],
    clip_threshold: f64,
    weight_decay: f64,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(Came {
        betas: hyper.numbers(&["betas"], [0.9, 0.999, 0.9999], DECAY)?,
        eps: hyper.numbers(&["eps"], [1e-30, 1e-16], POSITIVE)?,
        clip_threshold: hyper.number(&["clip_threshold"], 1.0, POSITIVE)?,
        weight_decay: hyper.number(&["weight_decay"], 0.0, DECAY_OF_WEIGHTS)?,
    }))
}

impl Came {
    /// m, and s from how far the update is from it.
    fn gather(&self, matrix: Matrix, grads: &[f32], [rows, columns, rows_s, columns_s, m]: [&mut [f32]; 5]) {
        observe(matrix, Mean { decay: self.betas[1], eps: self.eps[0] }, rows, columns, |i| grads[i] * grads[i]);
        let clip = clip(matrix, rows, columns, grads, self.clip_threshold);
        let (beta1, rest1) = (self.betas[0] as f32, (1.0 - self.betas[0]) as f32);
        stretches(matrix, rows, columns, |range, factor, below| {
            for ((m, g), c) in m[range.clone()].iter_mut().zip(&grads[range]).zip(below) {
                *m = *m * beta1 + rest1 * (g * (factor / c.sqrt()) / clip);
            }
        });
        if matrix.columns == 0 {
            return;
        }
        let mean = rows.iter().map(|r| f64::from(*r)).sum::<f64>() / matrix.rows as f64;
        observe(matrix, Mean { decay: self.betas[2], eps: self.eps[1] }, rows_s, columns_s, |i| {
            let factor = 1.0 / (rows[i / matrix.columns] / mean as f32).sqrt();
            let u = grads[i] * (factor / columns[i % matrix.columns].sqrt()) / clip;
            (u - m[i]) * (u - m[i])
        });
    }

    fn apply(&self, lr: f64, place: Place, params: &mut [f32], [rows_s, columns_s, m]: [&[f32]; 3]) {
        let lr = lr * place.lr_scale;
        let (keep, lr) = ((1.0 - lr * place.weight_decay.unwrap_or(self.weight_decay)) as f32, lr as f32);
        if place.matrix.columns == 0 {
            return params.iter_mut().zip(m).for_each(|(p, m)| *p = *p * keep - lr * m);
        }
        stretches(place.matrix, rows_s, columns_s, |range, factor, below| {
            for ((p, m), c) in params[range.clone()].iter_mut().zip(&m[range]).zip(below) {
                *p = *p * keep - m * (factor / c.sqrt()) * lr;
            }
        });
    }
}

impl Rule for Came {
    fn grain(&self) -> Grain {
        Grain::Param
    }

    fn cells(&self) -> Vec<Spec> {
        vec![
            Spec::new("exp_avg_sq_row", Kind::Rows),
            Spec::new("exp_avg_sq_col", Kind::Columns),
            Spec::new("exp_avg_res_row", Kind::MatrixRows),
            Spec::new("exp_avg_res_col", Kind::Columns),
            Spec::new("exp_avg", Kind::Elements),
        ]
    }

    fn step(&mut self, step: Step) {
        step.table.each(step.params, step.grads, of::<5>(step.cells), |place, params, grads, lanes| {
            let [rows, columns, rows_s, columns_s, m] = lanes.map(|lane: Lane| lane.floats);
            self.gather(place.matrix, grads, [rows, columns, &mut *rows_s, &mut *columns_s, &mut *m]);
            self.apply(step.lr, place, params, [rows_s, columns_s, m]);
        });
    }
}
