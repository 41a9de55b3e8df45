//! Nearest-neighbour resize: pixels are copied; the gradient sums over the copies of each pixel, in f32.

use super::{Call, Kernel};
use crate::block::{Shared, with_activation};
use crate::element::Element;
use crate::isa::vectorize;
use crate::lanes::{LANES, load, store};
use crate::pieces::each_piece;
use crate::tensor::Tensor;
use graph::ops::{Upsample, UpsampleGrad};
use std::ops::Range;

/// Height and width of a map.
fn size(map: &Tensor) -> [usize; 2] {
    [map.meta.shape.dims()[1], map.meta.shape.dims()[2]]
}

impl Kernel for Upsample {
    fn run(&self, call: &mut Call) {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        let ([small_h, small_w], [h, w]) = (size(x), size(y));
        assert!(x.channels() == y.channels() && x.meta.shape.batch() == y.meta.shape.batch(), "upsample: the shapes don't fit");
        let bytes = x.channels() * x.dtype().bytes();
        let (from, to) = (Shared::new(x.bytes_pointer()), Shared::new(y.bytes_pointer()));
        // A piece is one row of pixels of y.
        each_piece(x.meta.shape.batch() * h, 1, |line, _| {
            let (b, i) = (line / h, line % h);
            let source = (b * small_h + i * small_h / h) * small_w;
            for j in 0..w {
                let (at, into) = ((source + j * small_w / w) * bytes, (line * w + j) * bytes);
                // SAFETY: both pixels are inside their maps, which don't overlap (checked by `Cpu::run`); the line is this piece's.
                unsafe { std::ptr::copy_nonoverlapping(from.get().add(at), to.get().add(into), bytes) };
            }
        });
    }
}

/// The pixels of a line of `large` that copy pixel `i` of a line of `small`: all j with ⌊j·small/large⌋ = i.
#[inline(always)]
fn copies(i: usize, small: usize, large: usize) -> Range<usize> {
    (i * large).div_ceil(small)..((i + 1) * large).div_ceil(small)
}

vectorize! {
    /// One line of pixels of `channels`: each the sum of the pixels of `lines` of one map of width `w` that copy it.
    fn sum_line<T: Element>(map: &[T], w: usize, lines: Range<usize>, channels: usize, out: &mut [T]) {
        let pixels = out.len() / channels;
        for (j, out) in out.chunks_exact_mut(channels).enumerate() {
            let columns = copies(j, pixels, w);
            for (block, out) in out.chunks_mut(LANES).enumerate() {
                let mut sum = [0.0f32; LANES];
                for i in lines.clone() {
                    for j in columns.clone() {
                        let pixel = load(&map[(i * w + j) * channels + block * LANES..][..out.len()]);
                        for lane in 0..LANES {
                            sum[lane] += pixel[lane];
                        }
                    }
                }
                store(&sum, out);
            }
        }
    }
}

impl Kernel for UpsampleGrad {
    fn run(&self, call: &mut Call) {
        let (dy, dx) = (&call.inputs[0], &call.outputs[0]);
        with_activation!(dy.dtype(), T => gradient::<T>(dy, dx));
    }
}

fn gradient<T: Element>(dy: &Tensor, dx: &Tensor) {
    let ([large_h, large_w], [h, w]) = (size(dy), size(dx));
    let channels = dx.channels();
    assert!(dy.channels() == channels && dy.meta.shape.batch() == dx.meta.shape.batch(), "upsample gradient: the shapes don't fit");
    let upstream = dy.slice::<T>();
    // A piece is one row of pixels of dx.
    each_piece(dx.meta.shape.batch() * h, 1, |line, _| {
        let (b, i) = (line / h, line % h);
        let map = &upstream[b * large_h * large_w * channels..(b + 1) * large_h * large_w * channels];
        // SAFETY: the line is this piece's.
        let out = unsafe { dx.slice_mut::<T>(line * w * channels, w * channels) };
        sum_line(map, large_w, copies(i, h, large_h), channels, out);
    });
}
