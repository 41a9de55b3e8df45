//! Group normalisation with an optional SiLU, forward and backward: each reads its map twice and writes it once.
//!
//! Both passes walk whole rows (all channels of a pixel), cut into pieces of rows, so that memory is read in order and large maps of
//! one item keep all threads busy. The first pass sums per channel in f32 around the channel's first value (or of gradients, which are
//! centred anyway), over at most [`MOST_ROWS`] rows, then per group in f64; pieces are added in order.

use super::{Call, Kernel};
use crate::block::{Shared, with_activation};
use crate::element::Element;
use crate::isa::vectorize;
use crate::math;
use crate::pieces::{each_piece, rows_in_piece};
use crate::scratch::{carve, carved_bytes};
use graph::Meta;
use graph::ops::{GroupNorm, GroupNormGrad};
use std::ops::Range;

/// Rows of a piece at most: a plain f32 sum over them stays exact to about 1e-6.
const MOST_ROWS: usize = 256;
/// Channels whose sums stay in L1 while their rows are read in order.
const SPAN: usize = 512;

/// How a map is cut.
#[derive(Clone, Copy)]
struct Cut {
    batch: usize,
    tokens: usize,
    channels: usize,
    groups: usize,
    /// Rows of a piece, and pieces of a batch item.
    rows: usize,
    pieces: usize,
}

impl Cut {
    fn of(x: &Meta, groups: usize) -> Cut {
        let (batch, tokens, channels) = (x.shape.batch(), x.shape.tokens(), x.shape.channels());
        let rows = rows_in_piece(channels).min(MOST_ROWS);
        Cut { batch, tokens, channels, groups, rows, pieces: tokens.div_ceil(rows) }
    }

    /// Elements of a group.
    fn group_elements(&self) -> f64 {
        (self.tokens * (self.channels / self.groups)) as f64
    }

    /// Calls `body(piece number, batch item, elements)` for all pieces of all items.
    fn each(&self, body: impl Fn(usize, usize, Range<usize>) + Sync) {
        each_piece(self.batch * self.pieces, 1, |piece, _| {
            let (item, start) = (piece / self.pieces, piece % self.pieces * self.rows);
            let (from, to) = (item * self.tokens + start, item * self.tokens + (start + self.rows).min(self.tokens));
            body(piece, item, from * self.channels..to * self.channels);
        });
    }

    /// The two sums of each group of each item, from those of the pieces.
    fn totals<'a>(&'a self, partial: &'a [[f64; 2]]) -> impl Iterator<Item = [f64; 2]> + 'a {
        (0..self.batch * self.groups).map(|i| {
            let (item, group) = (i / self.groups, i % self.groups);
            let own = (0..self.pieces).map(|p| partial[(item * self.pieces + p) * self.groups + group]);
            own.fold([0.0; 2], |sum, p| [sum[0] + p[0], sum[1] + p[1]])
        })
    }

    fn scratch_bytes(&self, vectors: usize) -> u64 {
        carved_bytes::<[f64; 2]>(self.batch * self.pieces * self.groups) + carved_bytes::<f32>(self.batch * vectors * self.channels)
    }
}

/// The spans of some channels.
#[inline(always)]
fn spans(channels: usize) -> impl Iterator<Item = Range<usize>> {
    (0..channels).step_by(SPAN).map(move |start| start..(start + SPAN).min(channels))
}

vectorize! {
    /// Adds Σ x and Σ x² of each group over whole rows to `sums`.
    fn moments<T: Element>(x: &[T], channels: usize, sums: &mut [[f64; 2]]) {
        let width = channels / sums.len();
        let count = (x.len() / channels) as f64;
        for span in spans(channels) {
            let [mut shift, mut sum, mut square] = [[0.0f32; SPAN]; 3];
            for (shift, x) in shift.iter_mut().zip(&x[span.clone()]) {
                *shift = x.to_f32();
            }
            for row in x.chunks_exact(channels) {
                for (c, x) in row[span.clone()].iter().enumerate() {
                    let d = x.to_f32() - shift[c];
                    sum[c] += d;
                    square[c] = math::fma(d, d, square[c]);
                }
            }
            for (i, c) in span.enumerate() {
                let (k, s, q) = (f64::from(shift[i]), f64::from(sum[i]), f64::from(square[i]));
                let group = &mut sums[c / width];
                group[0] += count * k + s;
                group[1] += q + 2.0 * k * s + count * k * k;
            }
        }
    }
}

vectorize! {
    /// y = act((x − μ) a + β) for whole rows, with μ, a = γρ and β of each channel.
    fn forward_rows<T: Element>(x: &[T], center: &[f32], factor: &[f32], beta: &[f32], silu: bool, y: &mut [T]) {
        let channels = center.len();
        let (factor, beta) = (&factor[..channels], &beta[..channels]);
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            if silu {
                for c in 0..channels {
                    y[c] = T::from_f32(math::silu(math::fma(x[c].to_f32() - center[c], factor[c], beta[c])));
                }
            } else {
                for c in 0..channels {
                    y[c] = T::from_f32(math::fma(x[c].to_f32() - center[c], factor[c], beta[c]));
                }
            }
        }
    }
}

impl Kernel for GroupNorm {
    /// Sums of each piece; μ and γρ of each channel of each item.
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        Cut::of(inputs[0], self.groups).scratch_bytes(2)
    }

    fn run(&self, call: &mut Call) {
        let x = &call.inputs[0];
        with_activation!(x.dtype(), T => forward::<T>(self, call));
    }
}

fn forward<T: Element>(op: &GroupNorm, call: &mut Call) {
    let [x, gamma, beta] = call.inputs else { unreachable!("group_norm has three inputs") };
    let (y, statistics) = (&call.outputs[0], &call.outputs[1]);
    let cut = Cut::of(x.meta, op.groups);
    let mut scratch = &mut *call.scratch;
    let partial = carve::<[f64; 2]>(&mut scratch, cut.batch * cut.pieces * cut.groups);
    let vectors = carve::<f32>(&mut scratch, cut.batch * 2 * cut.channels);
    let (input, gamma, beta) = (x.slice::<T>(), gamma.slice::<f32>(), beta.slice::<f32>());
    sum_pieces(&cut, partial, |elements, sums| moments(&input[elements], cut.channels, sums));

    // SAFETY: nobody else holds the statistics.
    let statistics = unsafe { statistics.slice_mut::<f32>(0, cut.batch * cut.groups * 2) };
    for (pair, [sum, square]) in statistics.as_chunks_mut::<2>().0.iter_mut().zip(cut.totals(partial)) {
        let mean = sum / cut.group_elements();
        let variance = square / cut.group_elements() - mean * mean;
        // Not `max`, which would hide a NaN.
        let variance = if variance < 0.0 { 0.0 } else { variance };
        *pair = [mean as f32, (1.0 / (variance + f64::from(op.eps)).sqrt()) as f32];
    }
    let width = cut.channels / cut.groups;
    for (item, vectors) in vectors.chunks_exact_mut(2 * cut.channels).enumerate() {
        let (center, factor) = vectors.split_at_mut(cut.channels);
        for c in 0..cut.channels {
            let at = 2 * (item * cut.groups + c / width);
            (center[c], factor[c]) = (statistics[at], gamma[c] * statistics[at + 1]);
        }
    }
    cut.each(|_, item, elements| {
        let (center, factor) = vectors[item * 2 * cut.channels..(item + 1) * 2 * cut.channels].split_at(cut.channels);
        // SAFETY: these rows are this piece's.
        let y = unsafe { y.slice_mut::<T>(elements.start, elements.len()) };
        forward_rows(&input[elements], center, factor, beta, op.silu, y);
    });
}

/// Fills the sums of every piece by `body(elements, sums)`.
fn sum_pieces(cut: &Cut, partial: &mut [[f64; 2]], body: impl Fn(Range<usize>, &mut [[f64; 2]]) + Sync) {
    let start = Shared::new(partial.as_mut_ptr());
    cut.each(|piece, _, elements| {
        // SAFETY: each piece has its own sums.
        let sums = unsafe { std::slice::from_raw_parts_mut(start.get().add(piece * cut.groups), cut.groups) };
        sums.fill([0.0; 2]);
        body(elements, sums);
    });
}

/// What the backward knows about the channels of one item, each of length C.
#[derive(Clone, Copy)]
struct Channels<'a> {
    mean: &'a [f32],
    rstd: &'a [f32],
    gamma: &'a [f32],
    beta: &'a [f32],
}

impl<'a> Channels<'a> {
    fn new(vectors: &'a [f32], gamma: &'a [f32], beta: &'a [f32]) -> Channels<'a> {
        let (mean, rstd) = vectors[..2 * gamma.len()].split_at(gamma.len());
        Channels { mean, rstd, gamma, beta }
    }

    fn span(&self, span: Range<usize>) -> Channels<'a> {
        let part = |of: &'a [f32]| &of[span.clone()];
        Channels { mean: part(self.mean), rstd: part(self.rstd), gamma: part(self.gamma), beta: part(self.beta) }
    }

    /// x̂ and g = γ ∂z of channel `c`.
    #[inline(always)]
    fn pair<T: Element, const SILU: bool>(&self, c: usize, dy: T, x: T) -> (f32, f32) {
        let hat = (x.to_f32() - self.mean[c]) * self.rstd[c];
        let grad = self.gamma[c] * dy.to_f32();
        (hat, if SILU { grad * math::swish_slope(1.0, math::fma(self.gamma[c], hat, self.beta[c])) } else { grad })
    }
}

/// Adds Σ g and Σ g x̂ of each group over whole rows to `sums`.
#[inline(always)]
fn add_gradient_sums<T: Element, const SILU: bool>(dy: &[T], x: &[T], of: Channels, sums: &mut [[f64; 2]]) {
    let channels = of.gamma.len();
    let width = channels / sums.len();
    for span in spans(channels) {
        let own = of.span(span.clone());
        let [mut sum, mut dot] = [[0.0f32; SPAN]; 2];
        for (dy, x) in dy.chunks_exact(channels).zip(x.chunks_exact(channels)) {
            for (c, (dy, x)) in dy[span.clone()].iter().zip(&x[span.clone()]).enumerate() {
                let (hat, grad) = own.pair::<T, SILU>(c, *dy, *x);
                sum[c] += grad;
                dot[c] = math::fma(grad, hat, dot[c]);
            }
        }
        for (i, c) in span.enumerate() {
            let group = &mut sums[c / width];
            group[0] += f64::from(sum[i]);
            group[1] += f64::from(dot[i]);
        }
    }
}

vectorize! {
    fn gradient_sums<T: Element>(dy: &[T], x: &[T], of: Channels<'_>, silu: bool, sums: &mut [[f64; 2]]) {
        if silu {
            add_gradient_sums::<T, true>(dy, x, of, sums);
        } else {
            add_gradient_sums::<T, false>(dy, x, of, sums);
        }
    }
}

/// ∂x = ρ (g − mean(g) − x̂ mean(g x̂)) for whole rows; `means` holds the two means of each channel's group.
#[inline(always)]
fn write_gradient<T: Element, const SILU: bool>(dy: &[T], x: &[T], of: Channels, means: [&[f32]; 2], dx: &mut [T]) {
    let channels = of.gamma.len();
    let of = of.span(0..channels);
    let [sum, dot] = means.map(|m| &m[..channels]);
    for ((dy, x), dx) in dy.chunks_exact(channels).zip(x.chunks_exact(channels)).zip(dx.chunks_exact_mut(channels)) {
        for (c, ((dy, x), dx)) in dy.iter().zip(x).zip(dx).enumerate() {
            let (hat, grad) = of.pair::<T, SILU>(c, *dy, *x);
            *dx = T::from_f32(of.rstd[c] * math::fma(-hat, dot[c], grad - sum[c]));
        }
    }
}

vectorize! {
    fn backward_rows<T: Element>(dy: &[T], x: &[T], of: Channels<'_>, means: [&[f32]; 2], silu: bool, dx: &mut [T]) {
        if silu {
            write_gradient::<T, true>(dy, x, of, means, dx);
        } else {
            write_gradient::<T, false>(dy, x, of, means, dx);
        }
    }
}

impl Kernel for GroupNormGrad {
    /// Sums of each piece; μ, ρ and the two means of each channel of each item.
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        Cut::of(inputs[1], self.groups).scratch_bytes(4)
    }

    fn run(&self, call: &mut Call) {
        let x = &call.inputs[1];
        with_activation!(x.dtype(), T => backward::<T>(self, call));
    }
}

fn backward<T: Element>(op: &GroupNormGrad, call: &mut Call) {
    let [dy, x, gamma, beta, statistics] = call.inputs else { unreachable!("group_norm's gradient has five inputs") };
    let dx = &call.outputs[0];
    let cut = Cut::of(x.meta, op.groups);
    let (channels, width) = (cut.channels, cut.channels / cut.groups);
    let mut scratch = &mut *call.scratch;
    let partial = carve::<[f64; 2]>(&mut scratch, cut.batch * cut.pieces * cut.groups);
    let vectors = carve::<f32>(&mut scratch, cut.batch * 4 * channels);
    let (upstream, input, gamma, beta) = (dy.slice::<T>(), x.slice::<T>(), gamma.slice::<f32>(), beta.slice::<f32>());
    for (item, (vectors, of)) in
        vectors.chunks_exact_mut(4 * channels).zip(statistics.slice::<f32>().chunks_exact(2 * cut.groups)).enumerate()
    {
        debug_assert!(item < cut.batch);
        for c in 0..channels {
            (vectors[c], vectors[channels + c]) = (of[2 * (c / width)], of[2 * (c / width) + 1]);
        }
    }
    let item_elements = cut.tokens * channels;
    sum_pieces(&cut, partial, |elements, sums| {
        let item = elements.start / item_elements;
        let of = Channels::new(&vectors[item * 4 * channels..], gamma, beta);
        gradient_sums(&upstream[elements.clone()], &input[elements], of, op.silu, sums);
    });
    for (i, [sum, dot]) in cut.totals(partial).enumerate() {
        let (item, group) = (i / cut.groups, i % cut.groups);
        let means = &mut vectors[(item * 4 + 2) * channels..(item * 4 + 4) * channels];
        for c in group * width..(group + 1) * width {
            (means[c], means[channels + c]) = ((sum / cut.group_elements()) as f32, (dot / cut.group_elements()) as f32);
        }
    }
    cut.each(|_, item, elements| {
        let own = &vectors[item * 4 * channels..(item + 1) * 4 * channels];
        // SAFETY: these rows are this piece's.
        let dx = unsafe { dx.slice_mut::<T>(elements.start, elements.len()) };
        let of = Channels::new(own, gamma, beta);
        let (sum, dot) = own[2 * channels..].split_at(channels);
        backward_rows(&upstream[elements.clone()], &input[elements], of, [sum, dot], op.silu, dx);
    });
}
