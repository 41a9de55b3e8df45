//! y = a · gelu(b) with x = [a | b], and its gradient.

use super::{Call, Kernel};
use crate::block::{BLOCK, Shared, blocks, load, store, with_activation};
use crate::element::Element;
use crate::isa::vectorize;
use crate::math;
use crate::pieces::{each_piece, rows_in_piece};
use crate::tensor::Tensor;
use graph::ops::{Geglu, GegluGrad};
use std::ops::Range;

vectorize! {
    fn forward_rows<T: Element>(x: *const T, y: *mut T, width: usize, rows: Range<usize>) {
        let (mut a, mut b) = ([0.0; BLOCK], [0.0; BLOCK]);
        for row in rows {
            for (c, len) in blocks(0..width) {
                // SAFETY: row and channels lie in x and y; these rows are this piece's.
                unsafe {
                    load(x.add(row * 2 * width + c), &mut a[..len]);
                    load(x.add(row * 2 * width + width + c), &mut b[..len]);
                }
                for (a, b) in a.iter_mut().zip(&b) {
                    *a *= math::gelu(*b);
                }
                // SAFETY: as above.
                unsafe { store(&a[..len], y.add(row * width + c)) };
            }
        }
    }
}

vectorize! {
    /// ∂x may be x: a block is read before it is written.
    fn backward_rows<T: Element>(dy: *const T, x: *const T, dx: *mut T, width: usize, rows: Range<usize>) {
        let (mut d, mut a, mut b) = ([0.0; BLOCK], [0.0; BLOCK], [0.0; BLOCK]);
        for row in rows {
            for (c, len) in blocks(0..width) {
                let left = row * 2 * width + c;
                // SAFETY: row and channels lie in all three tensors; these rows are this piece's.
                unsafe {
                    load(dy.add(row * width + c), &mut d[..len]);
                    load(x.add(left), &mut a[..len]);
                    load(x.add(left + width), &mut b[..len]);
                }
                for i in 0..BLOCK {
                    let (cdf, density) = math::normal(b[i]);
                    let upstream = d[i];
                    d[i] = upstream * a[i] * (cdf + b[i] * density);
                    a[i] = upstream * b[i] * cdf;
                }
                // SAFETY: as above.
                unsafe {
                    store(&a[..len], dx.add(left));
                    store(&d[..len], dx.add(left + width));
                }
            }
        }
    }
}

impl Kernel for Geglu {
    fn run(&self, call: &mut Call) {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        with_activation!(x.dtype(), T => forward::<T>(x, y));
    }
}

fn forward<T: Element>(x: &Tensor, y: &Tensor) {
    let width = y.channels();
    assert!(x.rows() == y.rows() && x.channels() == 2 * width, "geglu: the shapes don't fit");
    let (from, to) = (Shared::new(x.pointer::<T>()), Shared::new(y.pointer::<T>()));
    each_piece(y.rows(), rows_in_piece(width), |_, rows| forward_rows(from.get().cast_const(), to.get(), width, rows));
}

impl Kernel for GegluGrad {
    fn run(&self, call: &mut Call) {
        let (dy, x, dx) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        with_activation!(x.dtype(), T => backward::<T>(dy, x, dx));
    }
}

fn backward<T: Element>(dy: &Tensor, x: &Tensor, dx: &Tensor) {
    let width = dy.channels();
    assert!(x.rows() == dy.rows() && x.channels() == 2 * width && dx.elements() == x.elements(), "geglu gradient: the shapes don't fit");
    let (upstream, from, to) = (Shared::new(dy.pointer::<T>()), Shared::new(x.pointer::<T>()), Shared::new(dx.pointer::<T>()));
    each_piece(dy.rows(), rows_in_piece(width), |_, rows| {
        backward_rows(upstream.get().cast_const(), from.get().cast_const(), to.get(), width, rows);
    });
}
