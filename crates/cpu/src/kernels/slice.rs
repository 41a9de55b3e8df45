//! A range of the channels: rows of bytes are copied. The gradient puts them back among zeros.

use super::{Call, Kernel};
use crate::block::Shared;
use crate::pieces::{each_piece, rows_in_piece};
use crate::tensor::Tensor;
use graph::ops::{Slice, SliceGrad};

/// y[:, to .. to + channels] = x[:, from .. from + channels], whatever the element type.
pub fn copy_columns(x: &Tensor, from: usize, y: &Tensor, to: usize, channels: usize) {
    assert!(x.rows() == y.rows() && x.dtype() == y.dtype(), "a copy of channels between {} and {}", x.meta.shape, y.meta.shape);
    assert!(from + channels <= x.channels() && to + channels <= y.channels(), "a copy of channels leaves its tensor");
    let bytes = x.dtype().bytes();
    let (source, target) = (Shared::new(x.bytes_pointer()), Shared::new(y.bytes_pointer()));
    each_piece(y.rows(), rows_in_piece(channels), |_, rows| {
        for row in rows {
            let (at, into) = ((row * x.channels() + from) * bytes, (row * y.channels() + to) * bytes);
            // SAFETY: inside both tensors by the assertions; they don't overlap (checked by `Cpu::run`), and rows are this piece's.
            unsafe { std::ptr::copy_nonoverlapping(source.get().add(at), target.get().add(into), channels * bytes) };
        }
    });
}

/// Writes zeros to y[:, from .. from + channels].
fn clear_columns(y: &Tensor, from: usize, channels: usize) {
    assert!(from + channels <= y.channels(), "a range of channels leaves its tensor");
    let bytes = y.dtype().bytes();
    let target = Shared::new(y.bytes_pointer());
    each_piece(y.rows(), rows_in_piece(channels), |_, rows| {
        for row in rows {
            // SAFETY: inside y by the assertion, and rows are this piece's.
            unsafe { std::ptr::write_bytes(target.get().add((row * y.channels() + from) * bytes), 0, channels * bytes) };
        }
    });
}

impl Kernel for Slice {
    fn run(&self, call: &mut Call) {
        copy_columns(&call.inputs[0], self.start, &call.outputs[0], 0, self.channels);
    }
}

impl Kernel for SliceGrad {
    fn run(&self, call: &mut Call) {
        let (dy, dx) = (&call.inputs[0], &call.outputs[0]);
        let end = self.start + dy.channels();
        clear_columns(dx, 0, self.start);
        copy_columns(dy, 0, dx, self.start, dy.channels());
        clear_columns(dx, end, dx.channels() - end);
    }
}
