//! y[b, t, c] = x[b, t, c] + e[b, c], and the sum over tokens that is its gradient.

use super::{Call, Kernel};
use crate::block::{Shared, load, store, with_activation};
use crate::element::Element;
use crate::isa::vectorize;
use crate::lanes::{self, LANES};
use crate::pieces::{each_piece, rows_in_piece};
use crate::scratch::{carve, carved_bytes};
use crate::tensor::Tensor;
use graph::Meta;
use graph::ops::{AddChannels, SumTokens};
use std::ops::Range;

/// Rows of a piece of [`SumTokens`]: few enough that a plain f32 sum over them stays exact to about 1e-6.
const MOST_ROWS: usize = 256;

vectorize! {
    /// Adds `e` to the rows of x in `rows`; y may be x.
    fn add_rows<T: Element>(x: *const T, e: &[T], y: *mut T, rows: Range<usize>) {
        let channels = e.len();
        let (mut left, mut right) = ([0.0; LANES], [0.0; LANES]);
        for row in rows {
            let mut c = 0;
            while c < channels {
                let len = LANES.min(channels - c);
                let (left, right) = (&mut left[..len], &mut right[..len]);
                let at = row * channels + c;
                // SAFETY: rows and channels of x, e and y; these rows are this piece's.
                unsafe {
                    load(x.add(at), left);
                    load(e.as_ptr().add(c), right);
                }
                for (l, r) in left.iter_mut().zip(right.iter()) {
                    *l += *r;
                }
                // SAFETY: as above.
                unsafe { store(left, y.add(at)) };
                c += len;
            }
        }
    }
}

impl Kernel for AddChannels {
    fn run(&self, call: &mut Call) {
        let (x, e, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        with_activation!(x.dtype(), T => add_channels::<T>(x, e, y));
    }
}

fn add_channels<T: Element>(x: &Tensor, e: &Tensor, y: &Tensor) {
    let (tokens, channels) = (x.meta.shape.tokens(), x.channels());
    assert!(x.elements() == y.elements() && e.elements() == x.meta.shape.batch() * channels, "add_channels: the shapes don't fit");
    let (from, to) = (Shared::new(x.pointer::<T>()), Shared::new(y.pointer::<T>()));
    let vectors = e.slice::<T>();
    each_piece(x.rows(), rows_in_piece(channels), |_, rows| {
        let mut start = rows.start;
        while start < rows.end {
            let item = start / tokens;
            let end = rows.end.min((item + 1) * tokens);
            add_rows(from.get().cast_const(), &vectors[item * channels..(item + 1) * channels], to.get(), start..end);
            start = end;
        }
    });
}

vectorize! {
    /// sum[c] = Σ over rows of x[row, c], for x of whole rows.
    fn sum_rows<T: Element>(x: &[T], sum: &mut [f32]) {
        let channels = sum.len();
        for (block, sums) in sum.chunks_mut(LANES).enumerate() {
            let mut lanes = [0.0f32; LANES];
            for row in x.chunks_exact(channels) {
                let row = lanes::load(&row[block * LANES..][..sums.len()]);
                for lane in 0..LANES {
                    lanes[lane] += row[lane];
                }
            }
            lanes::store(&lanes, sums);
        }
    }
}

fn sum_piece_rows(channels: usize) -> usize {
    rows_in_piece(channels).min(MOST_ROWS)
}

impl Kernel for SumTokens {
    /// A vector of sums for each piece of each batch item.
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        let x = &inputs[0].shape;
        carved_bytes::<f32>(x.batch() * x.tokens().div_ceil(sum_piece_rows(x.channels())) * x.channels())
    }

    fn run(&self, call: &mut Call) {
        let (x, y) = (call.inputs[0], call.outputs[0]);
        with_activation!(x.dtype(), T => sum_tokens::<T>(&x, &y, call.scratch));
    }
}

fn sum_tokens<T: Element>(x: &Tensor, y: &Tensor, mut scratch: &mut [u8]) {
    let (batch, tokens, channels) = (x.meta.shape.batch(), x.meta.shape.tokens(), x.channels());
    assert_eq!(y.elements(), batch * channels, "sum_tokens: the shapes don't fit");
    let rows = sum_piece_rows(channels);
    let pieces = tokens.div_ceil(rows);
    let partial = carve::<f32>(&mut scratch, batch * pieces * channels);
    let sums = Shared::new(partial.as_mut_ptr());
    let x = x.slice::<T>();
    each_piece(batch * pieces, 1, |piece, _| {
        let (item, start) = (piece / pieces, piece % pieces * rows);
        let range = item * tokens + start..item * tokens + (start + rows).min(tokens);
        // SAFETY: each piece has its own vector of sums.
        let sum = unsafe { std::slice::from_raw_parts_mut(sums.get().add(piece * channels), channels) };
        sum_rows(&x[range.start * channels..range.end * channels], sum);
    });
    // SAFETY: nobody else holds y.
    let y = unsafe { y.slice_mut::<T>(0, batch * channels) };
    for (item, y) in y.chunks_exact_mut(channels).enumerate() {
        let own = &partial[item * pieces * channels..(item + 1) * pieces * channels];
        for (c, y) in y.iter_mut().enumerate() {
            *y = T::from_f32(own.iter().skip(c).step_by(channels).sum());
        }
    }
}
