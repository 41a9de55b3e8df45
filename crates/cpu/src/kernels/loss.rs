//! Weighted mean error, summed in f64 piece by piece, and its gradient.

use super::{Call, Kernel};
use crate::block::{BLOCK, Shared, blocks, load, store, with_activation};
use crate::element::Element;
use crate::isa::vectorize;
use crate::lanes::{LANES, total};
use crate::pieces::{PIECE, each_piece};
use crate::scratch::{carve, carved_bytes};
use crate::tensor::Tensor;
use graph::Meta;
use graph::ops::{Loss, LossGrad, PixelError};
use std::ops::Range;

/// ℓ and ℓ'. Both must be `#[inline(always)]`.
trait Error: Copy + Send + Sync {
    fn value(self, d: f32) -> f32;
    fn slope(self, d: f32) -> f32;
}

#[derive(Clone, Copy)]
struct Square;

#[derive(Clone, Copy)]
struct Absolute;

/// With its c.
#[derive(Clone, Copy)]
struct PseudoHuber(f32);

impl Error for Square {
    #[inline(always)]
    fn value(self, d: f32) -> f32 {
        d * d
    }

    #[inline(always)]
    fn slope(self, d: f32) -> f32 {
        2.0 * d
    }
}

impl Error for Absolute {
    #[inline(always)]
    fn value(self, d: f32) -> f32 {
        d.abs()
    }

    /// What is neither above nor below zero stays as it is: zero, or a NaN.
    #[inline(always)]
    fn slope(self, d: f32) -> f32 {
        if d > 0.0 {
            1.0
        } else if d < 0.0 {
            -1.0
        } else {
            d
        }
    }
}

impl Error for PseudoHuber {
    #[inline(always)]
    fn value(self, d: f32) -> f32 {
        let PseudoHuber(c) = self;
        2.0 * c * d * d / ((d * d + c * c).sqrt() + c)
    }

    #[inline(always)]
    fn slope(self, d: f32) -> f32 {
        let PseudoHuber(c) = self;
        2.0 * c * d / (d * d + c * c).sqrt()
    }
}

/// A weight for each pixel of the whole batch, each of `channels` elements.
#[derive(Clone, Copy)]
struct Mask<'a> {
    pixels: &'a [f32],
    channels: usize,
}

impl Mask<'_> {
    /// Multiplies values that belong to the elements from `start` on.
    #[inline(always)]
    fn apply(self, start: usize, values: &mut [f32]) {
        for (i, value) in values.iter_mut().enumerate() {
            *value *= self.pixels[(start + i) / self.channels];
        }
    }
}

vectorize! {
    /// Σ m · ℓ(pred − target) over a range of elements.
    fn sum<T: Element, E: Error>(error: E, pred: &[T], target: &[f32], mask: Option<Mask>, range: Range<usize>) -> f64 {
        let mut sum = 0.0f64;
        for (start, len) in blocks(range) {
            let mut block = [0.0; BLOCK];
            let pairs = pred[start..start + len].iter().zip(&target[start..start + len]);
            for (value, (p, t)) in block.iter_mut().zip(pairs) {
                *value = error.value(p.to_f32() - t);
            }
            if let Some(mask) = mask {
                mask.apply(start, &mut block[..len]);
            }
            let mut lanes = [0.0f32; LANES];
            for values in block.as_chunks::<LANES>().0 {
                for i in 0..LANES {
                    lanes[i] += values[i];
                }
            }
            sum += f64::from(total(lanes));
        }
        sum
    }
}

vectorize! {
    /// out = factor · m · ℓ'(pred − target) over a range; out may be pred.
    fn slopes<T: Element, E: Error>(
        error: E, pred: *const T, target: &[f32], mask: Option<Mask>, factor: f32, out: *mut T, range: Range<usize>,
    ) {
        let mut block = [0.0; BLOCK];
        for (start, len) in blocks(range) {
            let block = &mut block[..len];
            // SAFETY: the range lies in pred and out (checked by the caller), and this piece of out is ours.
            unsafe { load(pred.add(start), block) };
            for (p, t) in block.iter_mut().zip(&target[start..start + len]) {
                *p = factor * error.slope(*p - t);
            }
            if let Some(mask) = mask {
                mask.apply(start, block);
            }
            // SAFETY: as above.
            unsafe { store(block, out.add(start)) };
        }
    }
}

/// Pieces of one batch item.
fn pieces(pred: &Meta) -> usize {
    (pred.shape.elements() / pred.shape.batch()).div_ceil(PIECE)
}

/// Runs `$body` with `$error` standing for the function that gives the error of an item.
macro_rules! with_error {
    ($loss:expr, $inputs:expr, $error:ident => $body:expr) => {
        match $loss.error {
            PixelError::Square => {
                let $error = |_: usize| Square;
                $body
            }
            PixelError::Absolute => {
                let $error = |_: usize| Absolute;
                $body
            }
            PixelError::PseudoHuber => {
                let thresholds = $inputs[3].slice::<f32>();
                let $error = |b: usize| PseudoHuber(thresholds[b]);
                $body
            }
        }
    };
}

/// The mask of a loss, if it has one.
fn mask<'a>(loss: Loss, inputs: &'a [Tensor<'a>]) -> Option<Mask<'a>> {
    Some(Mask { pixels: inputs[loss.mask_at()?].slice::<f32>(), channels: inputs[0].meta.shape.channels() })
}

impl Kernel for Loss {
    /// A sum for each piece of each batch item.
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        carved_bytes::<f64>(inputs[0].shape.batch() * pieces(inputs[0]))
    }

    fn run(&self, call: &mut Call) {
        with_activation!(call.inputs[0].dtype(), T => with_error!(self, call.inputs, error => loss::<T, _>(*self, call, error)));
    }
}

fn loss<T: Element, E: Error>(loss: Loss, call: &mut Call, error: impl Fn(usize) -> E + Sync) {
    let mask = mask(loss, call.inputs);
    let [pred, target, weights, ..] = call.inputs else { unreachable!("a loss has at least three inputs") };
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
        unsafe { sums.get().add(piece).write(sum(error(b), pred, target, mask, range)) };
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

impl Kernel for LossGrad {
    fn run(&self, call: &mut Call) {
        let (inputs, out, loss) = (call.inputs, &call.outputs[0], self.loss);
        with_activation!(out.dtype(), T => with_error!(loss, inputs, error => gradient::<T, _>(loss, inputs, out, error)));
    }
}

fn gradient<T: Element, E: Error>(loss: Loss, inputs: &[Tensor], out: &Tensor, error: impl Fn(usize) -> E + Sync) {
    let mask = mask(loss, inputs);
    let [pred, target, weights, ..] = inputs else { unreachable!("a loss has at least three inputs") };
    let (elements, batch) = (pred.elements(), pred.meta.shape.batch());
    assert!(
        elements == out.elements() && elements == target.elements() && batch == weights.elements(),
        "loss gradient: the shapes don't fit"
    );
    let (item, pieces) = (elements / batch, pieces(pred.meta));
    let (from, to) = (Shared::new(pred.pointer::<T>()), Shared::new(out.pointer::<T>()));
    let (target, weights) = (target.slice::<f32>(), weights.slice::<f32>());
    each_piece(batch * pieces, 1, |piece, _| {
        let (b, start) = (piece / pieces, piece % pieces * PIECE);
        let range = b * item + start..b * item + (start + PIECE).min(item);
        let factor = weights[b] / elements as f32;
        slopes(error(b), from.get().cast_const(), target, mask, factor, to.get(), range);
    });
}
