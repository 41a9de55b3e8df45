//! Elementwise loops over raw memory. A block is read into registers or L1, computed in f32, and written back, so an output may be the
//! same bytes as an input.
//!
//! No closures inside: a closure is compiled once, for the narrowest instruction set, and called from the wide loops if it is long.

use crate::element::Element;
use crate::isa::vectorize;
use crate::pieces::{PIECE, each_piece};
use crate::tensor::Tensor;
use std::ops::Range;

/// Elements of a block.
pub const BLOCK: usize = 128;

/// y = f(x).
pub trait Unary: Copy + Send + Sync {
    /// Must be `#[inline(always)]`.
    fn apply(self, x: f32) -> f32;
}

/// y = f(a, b).
pub trait Binary: Copy + Send + Sync {
    /// Must be `#[inline(always)]`.
    fn apply(self, a: f32, b: f32) -> f32;
}

/// Widens `into.len()` elements from `from` on.
///
/// # Safety
/// That many elements must be readable.
#[inline(always)]
pub unsafe fn load<T: Element>(from: *const T, into: &mut [f32]) {
    for (i, v) in into.iter_mut().enumerate() {
        // SAFETY: in range by the caller's promise.
        *v = unsafe { from.add(i).read() }.to_f32();
    }
}

/// Rounds `values` to `to` on.
///
/// # Safety
/// That many elements must be writable, and nobody else may look at them meanwhile.
#[inline(always)]
pub unsafe fn store<T: Element>(values: &[f32], to: *mut T) {
    for (i, v) in values.iter().enumerate() {
        // SAFETY: in range by the caller's promise.
        unsafe { to.add(i).write(T::from_f32(*v)) };
    }
}

/// Start and length of the blocks of a range.
#[inline(always)]
pub fn blocks(range: Range<usize>) -> impl Iterator<Item = (usize, usize)> {
    let end = range.end;
    range.step_by(BLOCK).map(move |start| (start, BLOCK.min(end - start)))
}

vectorize! {
    /// y[i] = f(x[i]) over a range.
    fn unary_range<A: Element, B: Element, F: Unary>(f: F, x: *const A, y: *mut B, range: Range<usize>) {
        let mut block = [0.0; BLOCK];
        for (start, len) in blocks(range) {
            // SAFETY: the range lies in both tensors (checked by the caller), and this piece of y is ours.
            unsafe { load(x.add(start), &mut block[..len]) };
            // Always the whole block: a constant length makes the loop wide.
            for v in &mut block {
                *v = f.apply(*v);
            }
            // SAFETY: as above.
            unsafe { store(&block[..len], y.add(start)) };
        }
    }
}

vectorize! {
    /// y[i] = f(a[i], b[i]) over a range.
    fn binary_range<A: Element, B: Element, C: Element, F: Binary>(f: F, a: *const A, b: *const B, y: *mut C, range: Range<usize>) {
        let (mut left, mut right) = ([0.0; BLOCK], [0.0; BLOCK]);
        for (start, len) in blocks(range) {
            // SAFETY: the range lies in all three tensors (checked by the caller), and this piece of y is ours.
            unsafe {
                load(a.add(start), &mut left[..len]);
                load(b.add(start), &mut right[..len]);
            }
            for (l, r) in left.iter_mut().zip(&right) {
                *l = f.apply(*l, *r);
            }
            // SAFETY: as above.
            unsafe { store(&left[..len], y.add(start)) };
        }
    }
}

/// A pointer that pieces of a parallel loop share; each touches its own range.
#[derive(Clone, Copy)]
pub struct Shared<T>(*mut T);

// SAFETY: the pieces' ranges are disjoint.
unsafe impl<T: Send> Send for Shared<T> {}
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Shared<T> {
    pub fn new(pointer: *mut T) -> Shared<T> {
        Shared(pointer)
    }

    #[inline(always)]
    pub fn get(self) -> *mut T {
        self.0
    }
}

/// y = f(x) over whole tensors.
pub fn unary<A: Element, B: Element>(f: impl Unary, x: &Tensor, y: &Tensor) {
    assert_eq!(x.elements(), y.elements(), "an elementwise op changes the number of elements");
    let (from, to) = (Shared::new(x.pointer::<A>()), Shared::new(y.pointer::<B>()));
    each_piece(y.elements(), PIECE, |_, range| unary_range(f, from.get().cast_const(), to.get(), range));
}

/// y = f(a, b) over whole tensors.
pub fn binary<A: Element, B: Element, C: Element>(f: impl Binary, a: &Tensor, b: &Tensor, y: &Tensor) {
    assert!(a.elements() == y.elements() && b.elements() == y.elements(), "an elementwise op changes the number of elements");
    let (left, right, to) = (Shared::new(a.pointer::<A>()), Shared::new(b.pointer::<B>()), Shared::new(y.pointer::<C>()));
    each_piece(y.elements(), PIECE, |_, range| {
        binary_range(f, left.get().cast_const(), right.get().cast_const(), to.get(), range);
    });
}

/// Runs `$body` with `$type` standing for the element type of an activation.
macro_rules! with_activation {
    ($dtype:expr, $type:ident => $body:expr) => {
        match $dtype {
            base::DType::F32 => {
                type $type = f32;
                $body
            }
            base::DType::BF16 => {
                type $type = half::bf16;
                $body
            }
            base::DType::F16 => {
                type $type = half::f16;
                $body
            }
            other => unreachable!("activations are floats, not {other}"),
        }
    };
}

pub(crate) use with_activation;
