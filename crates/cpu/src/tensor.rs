//! Tensors in host memory, as kernels see them.
//!
//! `unsafe` here: a kernel's output may share bytes with one of its inputs (in-place ops), and threads write disjoint parts of one output,
//! so tensors are raw pointers with a length. The planner guarantees that everything else is disjoint, and `Cpu::run` checks each view
//! against its buffer before a kernel starts.

use crate::element::Element;
use base::DType;
use graph::Meta;

/// A tensor: bytes at `pointer`, described by `meta`. Copies of it are copies of the pointer.
#[derive(Clone, Copy)]
pub struct Tensor<'a> {
    pointer: *mut u8,
    pub meta: &'a Meta,
}

// SAFETY: kernels split a tensor among threads only in disjoint parts; see the module's head.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    /// # Safety
    /// `pointer` must be aligned to 64 bytes or to the element, and valid for `meta.bytes()` while the tensor is used.
    pub unsafe fn new(pointer: *mut u8, meta: &'a Meta) -> Tensor<'a> {
        Tensor { pointer, meta }
    }

    pub fn dtype(&self) -> DType {
        self.meta.dtype
    }

    pub fn elements(&self) -> usize {
        self.meta.shape.elements()
    }

    pub fn rows(&self) -> usize {
        self.meta.shape.rows()
    }

    pub fn channels(&self) -> usize {
        self.meta.shape.channels()
    }

    /// Pointer to the first element; panics if the tensor holds another type.
    pub fn pointer<T: Element>(&self) -> *mut T {
        assert_eq!(T::DTYPE, self.meta.dtype, "a kernel reads {} as {}", self.meta.dtype, T::DTYPE);
        self.pointer.cast()
    }

    /// Pointer to the first byte.
    pub fn bytes_pointer(&self) -> *mut u8 {
        self.pointer
    }

    /// All elements. Must not be used for an input that may share bytes with an output that is being written.
    pub fn slice<T: Element>(&self) -> &'a [T] {
        // SAFETY: valid by `new`; the caller keeps clear of aliased writes (module head).
        unsafe { std::slice::from_raw_parts(self.pointer(), self.elements()) }
    }

    /// Elements `start .. start + len`, for writing.
    ///
    /// # Safety
    /// No other slice of this range may be alive, on any thread.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn slice_mut<T: Element>(&self, start: usize, len: usize) -> &'a mut [T] {
        assert!(start + len <= self.elements(), "a kernel writes past its output");
        // SAFETY: in range by the assertion, exclusive by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.pointer::<T>().add(start), len) }
    }
}
