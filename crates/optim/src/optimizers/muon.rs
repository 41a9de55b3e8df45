//! Muon (Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024), with the settings of `torch.optim.Muon`.
//!
//! A parameter of two or more axes is the matrix of its first axis by all others; its update is the momentum with all singular
//! values brought near 1, by Newton–Schulz steps on X with at most as many rows as columns:
//!
//! ```text
//! B ← μB + (1−μ)g          U = (1−μ)g + μB (Nesterov) or B          X = U/max(‖U‖, ε)
//! k times: A = XXᵀ, X ← aX + (bA + cAA)X                            p ← p·(1 − lr·λ) − lr·f·X
//! ```
//! f is √max(1, rows/columns) (`original`), or 0.2·√max(rows, columns) (`match_rms_adamw`, which takes AdamW's rates).
//! The products are in f32, where the reference takes bf16. Vectors get AdamW with β₁ = μ, β₂ = 0.999.

use super::{Entry, Rates, Rule, Step, of};
use crate::Layout;
use crate::cells::{Kind, Spec};
use crate::hyper::{ANY, DECAY, DECAY_OF_WEIGHTS, Hyper, POSITIVE};
use crate::table::{Grain, Matrix, Place, matrix};
use anyhow::Result;
use rayon::prelude::*;

pub(super) const ENTRY: Entry = Entry { name: "muon", aliases: &[], rates: Rates { default: 1e-3, usual: [1e-6, 1.0] }, version: 1, parse };

const VECTOR_BETA2: f64 = 0.999;
const VECTOR_EPS: f32 = 1e-8;

struct Muon {
    momentum: f64,
    nesterov: bool,
    weight_decay: f64,
    coefficients: [f32; 3],
    ns_steps: u64,
    eps: f32,
    match_adamw: bool,
    scratch: Scratch,
}

/// Room for the largest matrix X (twice, for its successor) and for the products A and bA + cAA.
#[derive(Default)]
struct Scratch {
    x: Vec<f32>,
    next: Vec<f32>,
    square: Vec<f32>,
    mix: Vec<f32>,
}

fn parse(hyper: &mut Hyper) -> Result<Box<dyn Rule>> {
    Ok(Box::new(Muon {
        momentum: hyper.number(&["momentum"], 0.95, DECAY)?,
        nesterov: hyper.flag(&["nesterov"], true)?,
        weight_decay: hyper.number(&["weight_decay"], 0.1, DECAY_OF_WEIGHTS)?,
        coefficients: hyper.numbers(&["ns_coefficients"], [3.4445, -4.775, 2.0315], ANY)?.map(|c| c as f32),
        ns_steps: hyper.whole(&["ns_steps"], 5, [1, 99])?,
        eps: hyper.number(&["eps"], 1e-7, POSITIVE)? as f32,
        match_adamw: hyper.choice(&["adjust_lr_fn"], &["original", "match_rms_adamw"])? == "match_rms_adamw",
        scratch: Scratch::default(),
    }))
}

/// Elements of the largest X, and of the largest XXᵀ.
fn largest(layout: &Layout) -> [usize; 2] {
    let matrices = layout.params().iter().map(|p| matrix(&p.shape));
    matrices.fold([0, 0], |[x, square], m| [x.max(m.rows * m.columns), square.max(m.rows.min(m.columns).pow(2))])
}

impl Muon {
    fn factor(&self, Matrix { rows, columns }: Matrix) -> f64 {
        if self.match_adamw { 0.2 * (rows.max(columns) as f64).sqrt() } else { (rows as f64 / columns as f64).max(1.0).sqrt() }
    }

    /// Writes U/‖U‖ into X, on its side if it is taller than wide. The momentum has been updated.
    fn start(&mut self, Matrix { rows, columns }: Matrix, grads: &[f32], momentum: &[f32]) {
        let mu = if self.nesterov { self.momentum as f32 } else { 1.0 };
        let update = |i: usize| grads[i] + mu * (momentum[i] - grads[i]);
        let x = &mut self.scratch.x[..grads.len()];
        match rows <= columns {
            true => x.iter_mut().enumerate().for_each(|(i, x)| *x = update(i)),
            false => {
                for (j, line) in x.chunks_exact_mut(rows).enumerate() {
                    line.iter_mut().enumerate().for_each(|(i, x)| *x = update(i * columns + j));
                }
            }
        }
        let norm = x.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt() as f32;
        let inverse = 1.0 / norm.max(self.eps);
        x.iter_mut().for_each(|v| *v *= inverse);
    }

    /// One step X ← aX + (bA + cAA)X with X [r, n].
    fn newton_schulz(&mut self, r: usize, n: usize) {
        let [a, b, c] = self.coefficients;
        let Scratch { x, next, square, mix } = &mut self.scratch;
        let (x_now, square, mix) = (&x[..r * n], &mut square[..r * r], &mut mix[..r * r]);
        square.par_chunks_mut(r).zip(x_now.par_chunks(n)).for_each(|(line, xi)| {
            line.iter_mut().zip(x_now.chunks_exact(n)).for_each(|(cell, xj)| *cell = dot(xi, xj));
        });
        let square = &*square;
        mix.par_chunks_mut(r).zip(square.par_chunks(r)).for_each(|(line, own)| {
            line.iter_mut().zip(own).for_each(|(cell, own)| *cell = b * own);
            own.iter().zip(square.chunks_exact(r)).for_each(|(weight, other)| add(line, c * weight, other));
        });
        next[..r * n].par_chunks_mut(n).zip(x_now.par_chunks(n)).zip(mix.par_chunks(r)).for_each(|((line, own), weights)| {
            line.iter_mut().zip(own).for_each(|(cell, own)| *cell = a * own);
            weights.iter().zip(x_now.chunks_exact(n)).for_each(|(weight, other)| add(line, *weight, other));
        });
        std::mem::swap(x, next);
    }

    fn matrix_step(&mut self, lr: f64, place: Place, params: &mut [f32], grads: &[f32], buffer: &mut [f32]) {
        let rest = (1.0 - self.momentum) as f32;
        buffer.iter_mut().zip(grads).for_each(|(b, g)| *b += rest * (g - *b));
        self.start(place.matrix, grads, buffer);
        let Matrix { rows, columns } = place.matrix;
        (0..self.ns_steps).for_each(|_| self.newton_schulz(rows.min(columns), rows.max(columns)));
        let keep = (1.0 - lr * place.weight_decay.unwrap_or(self.weight_decay)) as f32;
        let (rate, x) = ((lr * self.factor(place.matrix)) as f32, &self.scratch.x);
        for (i, line) in params.chunks_exact_mut(columns).enumerate() {
            let at = |j: usize| if rows <= columns { i * columns + j } else { j * rows + i };
            line.iter_mut().enumerate().for_each(|(j, p)| *p = *p * keep - rate * x[at(j)]);
        }
    }

    fn vector_step(&self, lr: f64, place: Place, params: &mut [f32], grads: &[f32], [m, v]: [&mut [f32]; 2]) {
        let bias = |beta: f64| 1.0 - beta.powf(place.updates as f64);
        let keep = (1.0 - lr * place.weight_decay.unwrap_or(self.weight_decay)) as f32;
        let (rate, root) = ((lr / bias(self.momentum)) as f32, bias(VECTOR_BETA2).sqrt() as f32);
        let (rest1, rest2) = ((1.0 - self.momentum) as f32, (1.0 - VECTOR_BETA2) as f32);
        for (((p, g), m), v) in params.iter_mut().zip(grads).zip(m).zip(v) {
            *m += rest1 * (g - *m);
            *v += rest2 * (g * g - *v);
            *p = *p * keep - rate * *m / (v.sqrt() / root + VECTOR_EPS);
        }
    }
}

/// Σ xᵢyᵢ in eight sums.
fn dot(x: &[f32], y: &[f32]) -> f32 {
    let (blocks_x, blocks_y) = (x.chunks_exact(8), y.chunks_exact(8));
    let rest: f32 = blocks_x.remainder().iter().zip(blocks_y.remainder()).map(|(a, b)| a * b).sum();
    let mut sums = [0.0f32; 8];
    for (a, b) in blocks_x.zip(blocks_y) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, (a, b))| *sum += a * b);
    }
    sums.iter().sum::<f32>() + rest
}

fn add(line: &mut [f32], weight: f32, other: &[f32]) {
    line.iter_mut().zip(other).for_each(|(cell, other)| *cell += weight * other);
}

impl Rule for Muon {
    fn grain(&self) -> Grain {
        Grain::Param
    }

    fn cells(&self) -> Vec<Spec> {
        vec![Spec::new("momentum_buffer", Kind::Elements), Spec::new("exp_avg_sq", Kind::VectorElements)]
    }

    fn scratch_bytes(&self, layout: &Layout) -> u64 {
        let [x, square] = largest(layout);
        8 * (x + square) as u64
    }

    fn prepare(&mut self, layout: &Layout) {
        let [x, square] = largest(layout);
        self.scratch = Scratch { x: vec![0.0; x], next: vec![0.0; x], square: vec![0.0; square], mix: vec![0.0; square] };
    }

    fn step(&mut self, step: Step) {
        step.table.in_turn(step.params, step.grads, of(step.cells), |place, params, grads, [buffer, v]| {
            let lr = step.lr * place.lr_scale;
            match place.matrix.columns {
                0 => self.vector_step(lr, place, params, grads, [buffer.floats, v.floats]),
                _ => self.matrix_step(lr, place, params, grads, buffer.floats),
            }
        });
    }
}
