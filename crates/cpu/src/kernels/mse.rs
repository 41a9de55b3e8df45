//! Weighted mean squared error, summed in f64 piece by piece, and its gradient.

use super::{Call, Kernel};
use crate::block::{BLOCK, Shared, blocks, load, store, with_activation};
use crate::element::Element;
use crate::isa::vectorize;
use crate::lanes::{LANES, total};
use crate::pieces::{PIECE, each_piece};
use crate::scratch::{carve, carved_bytes};
use crate::tensor::Tensor;
use graph::Meta;
use graph::ops::{Mse, MseGrad};
use std::ops::Range;

/// Elements whose squares are summed in f32 before they join the f64 sum.
const RUN: usize = 4096;

vectorize! {
    /// Σ (pred − target)²
    fn squared_error<T: Element>(pred: &[T], target: &[f32]) -> f64 {
        let mut sum = 0.0f64;
        for (pred, target) in pred.chunks(RUN).zip(target.chunks(RUN)) {
            let mut lanes = [0.0f32; LANES];
            let (whole, rest) = pred.as_chunks::<LANES>();
            let (whole_target, rest_target) = target.as_chunks::<LANES>();
            for (p, t) in whole.iter().zip(whole_target) {
                for i in 0..LANES {
                    let d = p[i].to_f32() - t[i];
                    lanes[i] += d * d;
                }
            }
            for (lane, (p, t)) in lanes.iter_mut().zip(rest.iter().zip(rest_target)) {
                let d = p.to_f32() - t;
                *lane += d * d;
            }
            sum += f64::from(total(lanes));
        }
        sum
    }
}

/// Pieces of one batch item.
fn pieces(pred: &Meta) -> usize {
    (pred.shape.elements() / pred.shape.batch()).div_ceil(PIECE)
}

impl Kernel for Mse {
    /// A sum for each piece of each batch item.
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        carved_bytes::<f64>(inputs[0].shape.batch() * pieces(inputs[0]))
    }

    fn run(&self, call: &mut Call) {
        let pred = &call.inputs[0];
        with_activation!(pred.dtype(), T => mse::<T>(call));
    }
}

fn mse<T: Element>(call: &mut Call) {
    let [pred, target, weights] = call.inputs else { unreachable!("mse has three inputs") };
    let (batch, pieces) = (pred.meta.shape.batch(), pieces(pred.meta));
    let item = pred.elements() / batch;
    let mut scratch = &mut *call.scratch;
    let partial = carve::<f64>(&mut scratch, batch * pieces);
    let sums = Shared::new(partial.as_mut_ptr());
    let (pred, target, weights) = (pred.slice::<T>(), target.slice::<f32>(), weights.slice::<f32>());
    each_piece(batch * pieces, 1, |piece, _| {
        let (b, start) = (piece / pieces, piece % pieces * PIECE);
        let range = b * item + start..b * item + (start + PIECE).min(item);
        // SAFETY: each piece has its own sum.
        unsafe { sums.get().add(piece).write(squared_error(&pred[range.clone()], &target[range])) };
    });
    // SAFETY: nobody else holds the outputs.
    let (loss, errors) = unsafe { (call.outputs[0].slice_mut::<f32>(0, 1), call.outputs[1].slice_mut::<f32>(0, batch)) };
    let mut weighted = 0.0f64;
    for (b, error) in errors.iter_mut().enumerate() {
        *error = (partial[b * pieces..(b + 1) * pieces].iter().sum::<f64>() / item as f64) as f32;
        weighted += f64::from(*error) * f64::from(weights[b]);
    }
    loss[0] = (weighted / batch as f64) as f32;
}

vectorize! {
    /// out = factor · (pred − target) over a range; out may be pred.
    fn difference<T: Element>(pred: *const T, target: &[f32], factor: f32, out: *mut T, range: Range<usize>) {
        let mut block = [0.0; BLOCK];
        for (start, len) in blocks(range) {
            let block = &mut block[..len];
            // SAFETY: the range lies in pred and out (checked by the caller), and this piece of out is ours.
            unsafe { load(pred.add(start), block) };
            for (p, t) in block.iter_mut().zip(&target[start..start + len]) {
                *p = factor * (*p - t);
            }
            // SAFETY: as above.
            unsafe { store(block, out.add(start)) };
        }
    }
}

impl Kernel for MseGrad {
    fn run(&self, call: &mut Call) {
        let [pred, target, weights] = call.inputs else { unreachable!("mse has three inputs") };
        with_activation!(pred.dtype(), T => gradient::<T>(pred, target, weights, &call.outputs[0]));
    }
}

fn gradient<T: Element>(pred: &Tensor, target: &Tensor, weights: &Tensor, out: &Tensor) {
    let (elements, batch) = (pred.elements(), pred.meta.shape.batch());
    assert!(
        elements == out.elements() && elements == target.elements() && batch == weights.elements(),
        "mse gradient: the shapes don't fit"
    );
    let (item, pieces) = (elements / batch, pieces(pred.meta));
    let (from, to) = (Shared::new(pred.pointer::<T>()), Shared::new(out.pointer::<T>()));
    let (target, weights) = (target.slice::<f32>(), weights.slice::<f32>());
    each_piece(batch * pieces, 1, |piece, _| {
        let (b, start) = (piece / pieces, piece % pieces * PIECE);
        let range = b * item + start..b * item + (start + PIECE).min(item);
        let factor = 2.0 * weights[b] / elements as f32;
        difference(from.get().cast_const(), target, factor, to.get(), range);
    });
}
