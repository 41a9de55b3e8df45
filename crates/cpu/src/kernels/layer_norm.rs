//! Layer normalisation: a row is read twice for its moments (it stays in L1), then written.

use super::{Call, Kernel};
use crate::block::with_activation;
use crate::element::Element;
use crate::isa::vectorize;
use crate::lanes::{LANES, total};
use crate::pieces::{each_piece, rows_in_piece};
use crate::tensor::Tensor;
use graph::ops::{LayerNorm, LayerNormGrad};

vectorize! {
    /// y = γ (x − μ)ρ + β for whole rows; `statistics` holds (μ, ρ) of each.
    fn forward_rows<T: Element>(x: &[T], gamma: &[f32], beta: &[f32], eps: f32, y: &mut [T], statistics: &mut [f32]) {
        let channels = gamma.len();
        for ((x, y), pair) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)).zip(statistics.as_chunks_mut::<2>().0) {
            let mean = mean(x);
            let rstd = 1.0 / (mean_square_distance(x, mean) + eps).sqrt();
            *pair = [mean, rstd];
            for c in 0..channels {
                y[c] = T::from_f32(gamma[c] * ((x[c].to_f32() - mean) * rstd) + beta[c]);
            }
        }
    }
}

#[inline(always)]
fn mean<T: Element>(x: &[T]) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x.to_f32();
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += x.to_f32();
    }
    total(lanes) / x.len() as f32
}

/// The mean of (x − center)².
#[inline(always)]
fn mean_square_distance<T: Element>(x: &[T], center: f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = x.as_chunks::<LANES>();
    for chunk in whole {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            let d = x.to_f32() - center;
            *lane += d * d;
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        let d = x.to_f32() - center;
        *lane += d * d;
    }
    total(lanes) / x.len() as f32
}

impl Kernel for LayerNorm {
    fn run(&self, call: &mut Call) {
        let [x, gamma, beta] = call.inputs else { unreachable!("layer_norm has three inputs") };
        let (y, statistics) = (&call.outputs[0], &call.outputs[1]);
        with_activation!(x.dtype(), T => forward::<T>(self.eps, x, gamma, beta, y, statistics));
    }
}

fn forward<T: Element>(eps: f32, x: &Tensor, gamma: &Tensor, beta: &Tensor, y: &Tensor, statistics: &Tensor) {
    let channels = x.channels();
    let (input, gamma, beta) = (x.slice::<T>(), gamma.slice::<f32>(), beta.slice::<f32>());
    each_piece(x.rows(), rows_in_piece(channels), |_, rows| {
        // SAFETY: these rows are this piece's.
        let (y, statistics) = unsafe {
            (y.slice_mut::<T>(rows.start * channels, rows.len() * channels), statistics.slice_mut::<f32>(2 * rows.start, 2 * rows.len()))
        };
        forward_rows(&input[rows.start * channels..rows.end * channels], gamma, beta, eps, y, statistics);
    });
}

vectorize! {
    /// ∂x = ρ (g − mean(g) − x̂ mean(g x̂)) with g = γ ∂y, for whole rows.
    fn backward_rows<T: Element>(dy: &[T], x: &[T], gamma: &[f32], statistics: &[f32], dx: &mut [T]) {
        let channels = gamma.len();
        let rows = dy.chunks_exact(channels).zip(x.chunks_exact(channels)).zip(dx.chunks_exact_mut(channels));
        for (((dy, x), dx), [mean, rstd]) in rows.zip(statistics.as_chunks::<2>().0) {
            let [sum, dot] = gradient_sums(dy, x, gamma, *mean, *rstd);
            let (sum, dot) = (sum / channels as f32, dot / channels as f32);
            for c in 0..channels {
                let hat = (x[c].to_f32() - mean) * rstd;
                dx[c] = T::from_f32(rstd * (gamma[c] * dy[c].to_f32() - sum - hat * dot));
            }
        }
    }
}

/// Σ g and Σ g x̂ of a row.
#[inline(always)]
fn gradient_sums<T: Element>(dy: &[T], x: &[T], gamma: &[f32], mean: f32, rstd: f32) -> [f32; 2] {
    let (mut sums, mut dots) = ([0.0f32; LANES], [0.0f32; LANES]);
    let ((dy, dy_rest), (x, x_rest), (gamma, gamma_rest)) = (dy.as_chunks::<LANES>(), x.as_chunks::<LANES>(), gamma.as_chunks::<LANES>());
    for ((dy, x), gamma) in dy.iter().zip(x).zip(gamma) {
        for i in 0..LANES {
            let grad = gamma[i] * dy[i].to_f32();
            sums[i] += grad;
            dots[i] += grad * ((x[i].to_f32() - mean) * rstd);
        }
    }
    for (i, ((dy, x), gamma)) in dy_rest.iter().zip(x_rest).zip(gamma_rest).enumerate() {
        let grad = gamma * dy.to_f32();
        sums[i] += grad;
        dots[i] += grad * ((x.to_f32() - mean) * rstd);
    }
    [total(sums), total(dots)]
}

impl Kernel for LayerNormGrad {
    fn run(&self, call: &mut Call) {
        let [dy, x, gamma, statistics] = call.inputs else { unreachable!("layer_norm's gradient has four inputs") };
        with_activation!(x.dtype(), T => backward::<T>(dy, x, gamma, statistics, &call.outputs[0]));
    }
}

fn backward<T: Element>(dy: &Tensor, x: &Tensor, gamma: &Tensor, statistics: &Tensor, dx: &Tensor) {
    let channels = x.channels();
    let (upstream, input, gamma, statistics) = (dy.slice::<T>(), x.slice::<T>(), gamma.slice::<f32>(), statistics.slice::<f32>());
    each_piece(x.rows(), rows_in_piece(channels), |_, rows| {
        let range = rows.start * channels..rows.end * channels;
        // SAFETY: these rows are this piece's.
        let dx = unsafe { dx.slice_mut::<T>(range.start, range.len()) };
        backward_rows(&upstream[range.clone()], &input[range], gamma, &statistics[2 * rows.start..2 * rows.end], dx);
    });
}
