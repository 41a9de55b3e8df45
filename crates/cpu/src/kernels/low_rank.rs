//! What linear layers and convolutions share: a frozen product, with a low-rank branch beside it.
//!
//! Forward: h = drop(x Aᵀ) · s is a skinny product of its own, rounded to the activation type. Then y = x Wᵀ + h Bᵀ + b is one product
//! whose reduction is K + r long. Backward likewise: dh = s · drop(∂y B), then ∂x = ∂y W + dh A in one. ∂A = dhᵀ x and ∂B = (hᵀ ∂y)ᵀ are
//! products whose reduction runs over all rows, in order, so they don't depend on the number of threads.

use super::matmul::micro::Micro;
use super::matmul::operand::{Left, Pixels, Right, Source, Term};
use super::matmul::store::{Store, Target};
use super::matmul::{Matmul, scratch_bytes};
use crate::tensor::Tensor;
use base::DType;
use graph::ops::Lora;

/// The trained branch of a layer, with its tensors.
#[derive(Clone, Copy)]
pub struct Branch<'a> {
    pub lora: Lora,
    /// [r, depth]
    pub a: Tensor<'a>,
    /// [N, r]
    pub b: Tensor<'a>,
    pub seed: [u32; 2],
}

impl<'a> Branch<'a> {
    /// Reads A, B (and a seed) from `inputs`, where they are the first.
    pub fn new(lora: Lora, inputs: &[Tensor<'a>]) -> Branch<'a> {
        let seed = if lora.dropout > 0.0 {
            let words = inputs[2].slice::<u32>();
            [words[0], words[1]]
        } else {
            [0; 2]
        };
        Branch { lora, a: inputs[0], b: inputs[1], seed }
    }

    pub fn rank(&self) -> usize {
        self.b.channels()
    }

    fn depth(&self) -> usize {
        self.a.elements() / self.rank()
    }
}

/// Bytes rounded up to the alignment of scratch.
pub fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(64)
}

/// A layer's forward: y [rows, columns].
pub struct Forward<'a> {
    pub micro: &'static Micro,
    pub rows: usize,
    pub columns: usize,
    pub depth: usize,
    pub x: Left,
    /// Stored [columns, depth].
    pub weight: Source,
    pub bias: Option<*const f32>,
    pub branch: Option<Branch<'a>>,
    pub y: Tensor<'a>,
}

/// Scratch of a forward: h, then what the larger product needs.
pub fn forward_scratch(micro: &Micro, rows: usize, columns: usize, depth: usize, rank: Option<usize>) -> usize {
    match rank {
        None => scratch_bytes(micro, rows, columns, &[depth]),
        Some(r) => {
            let h = aligned(rows * r * micro.packed.bytes());
            h + scratch_bytes(micro, rows, columns, &[depth, r]).max(scratch_bytes(micro, rows, r, &[depth]))
        }
    }
}

impl Forward<'_> {
    pub fn run(&self, scratch: &mut [u8]) {
        let micro = self.micro;
        let own = Term { left: self.x, right: Right::Columns { source: self.weight, stride: self.depth }, depth: self.depth };
        let out = Target { pointer: self.y.bytes_pointer(), dtype: self.y.dtype(), row_stride: self.columns, column_stride: 1, add: false };
        let store = Store { bias: self.bias, ..Store::to(out) };
        let product = |terms: &[Term], scratch: &mut [u8]| {
            Matmul { micro, rows: self.rows, columns: self.columns, terms, store }.run(scratch);
        };
        let Some(branch) = &self.branch else { return product(&[own], scratch) };
        let rank = branch.rank();
        let (h, scratch) = scratch.split_at_mut(aligned(self.rows * rank * micro.packed.bytes()));
        let h = Skinny { micro, rows: self.rows, pointer: h.as_mut_ptr(), rank };
        h.compute(branch, self.x, Right::Columns { source: Source::of(&branch.a), stride: self.depth }, self.depth, [true, false], scratch);
        let low = Term { left: h.left(), right: Right::Columns { source: Source::of(&branch.b), stride: rank }, depth: rank };
        product(&[own, low], scratch);
    }
}

/// s · drop(u V), with few columns, in the packed type: [rows, rank] or its transpose, or first one and then the other.
#[derive(Clone, Copy)]
pub struct Skinny {
    pub micro: &'static Micro,
    pub rows: usize,
    pub rank: usize,
    pub pointer: *mut u8,
}

impl Skinny {
    pub fn bytes(micro: &Micro, rows: usize, rank: usize) -> usize {
        aligned(rows * rank * micro.packed.bytes())
    }

    /// `forms`: as rows, transposed; both when both are wanted, one after the other.
    fn compute(&self, branch: &Branch, left: Left, right: Right, depth: usize, forms: [bool; 2], scratch: &mut [u8]) {
        let dtype = self.micro.packed;
        let plain = Target { pointer: self.pointer, dtype, row_stride: self.rank, column_stride: 1, add: false };
        let offset = if forms[0] { Skinny::bytes(self.micro, self.rows, self.rank) } else { 0 };
        let turned = Target { pointer: self.pointer.wrapping_add(offset), dtype, row_stride: 1, column_stride: self.rows, add: false };
        let keep = (branch.lora.dropout > 0.0).then_some((branch.lora, branch.seed));
        let targets = [forms[0].then_some(plain), forms[1].then_some(turned)];
        let store = Store { scale: branch.lora.scale, keep, targets, ..Store::to(plain) };
        Matmul { micro: self.micro, rows: self.rows, columns: self.rank, terms: &[Term { left, right, depth }], store }.run(scratch);
    }

    fn left(&self) -> Left {
        Left::Rows { source: Source::plain(self.pointer, self.micro.packed), stride: self.rank }
    }

    /// The transpose [rank, rows] that stands at `offset` bytes.
    fn turned(&self, offset: usize) -> Left {
        Left::Rows { source: Source::plain(self.pointer.wrapping_add(offset), self.micro.packed), stride: self.rows }
    }
}

/// A layer's backward towards its branch; what the layer's own input gradient needs of it is `dh`.
pub struct Backward<'a> {
    pub micro: &'static Micro,
    /// Rows of ∂y.
    pub rows: usize,
    pub columns: usize,
    pub dy: Tensor<'a>,
    pub branch: Branch<'a>,
    /// x as it met A in the forward.
    pub x: Left,
    pub da: Tensor<'a>,
    pub db: Tensor<'a>,
}

impl Backward<'_> {
    /// Bytes of `kept` for [`Self::run`]: dh, dhᵀ and hᵀ.
    pub fn kept_bytes(micro: &Micro, rows: usize, rank: usize) -> usize {
        3 * Skinny::bytes(micro, rows, rank)
    }

    /// Bytes of scratch for [`Self::run`], of a layer whose kernel has `taps` taps.
    pub fn scratch(micro: &Micro, rows: usize, columns: usize, depth: usize, taps: usize, rank: usize) -> usize {
        let products = [
            scratch_bytes(micro, rows, rank, &[columns]),
            scratch_bytes(micro, rows, rank, &[depth]),
            scratch_bytes(micro, rank, depth / taps, &[rows]),
            scratch_bytes(micro, rank, columns, &[rows]),
        ];
        products.into_iter().max().unwrap_or(0)
    }

    /// Adds ∂A and ∂B to their places, and returns dh [rows, r], which stays in `kept`.
    pub fn run(&self, kept: &mut [u8], scratch: &mut [u8]) -> Left {
        let (micro, rank) = (self.micro, self.branch.rank());
        let bytes = Skinny::bytes(micro, self.rows, rank);
        let dy = Source::of(&self.dy);
        let dh = Skinny { micro, rows: self.rows, rank, pointer: kept.as_mut_ptr() };
        let left = Left::Rows { source: dy, stride: self.columns };
        dh.compute(&self.branch, left, Right::rows(Source::of(&self.branch.b), rank), self.columns, [true, true], scratch);
        let h = Skinny { pointer: dh.pointer.wrapping_add(2 * bytes), ..dh };
        let depth = self.branch.depth();
        h.compute(
            &self.branch,
            self.x,
            Right::Columns { source: Source::of(&self.branch.a), stride: depth },
            depth,
            [false, true],
            scratch,
        );
        self.add_da(dh.turned(bytes), depth, scratch);
        let db = Target { pointer: self.db.bytes_pointer(), dtype: DType::F32, row_stride: 1, column_stride: rank, add: true };
        let term = Term { left: h.turned(0), right: Right::rows(dy, self.columns), depth: self.rows };
        Matmul { micro, rows: rank, columns: self.columns, terms: &[term], store: Store::to(db) }.run(scratch);
        dh.left()
    }

    /// ∂A += dhᵀ x, one tap of a convolution after the other.
    fn add_da(&self, turned: Left, depth: usize, scratch: &mut [u8]) {
        let (taps, channels) = match &self.x {
            Left::Rows { .. } => (1, depth),
            Left::Pixels(Pixels { taps, channels, .. }) => (taps[0] * taps[1], *channels),
        };
        for tap in 0..taps {
            let right = match self.x {
                Left::Rows { source, stride } => Right::rows(source, stride),
                Left::Pixels(pixels) => Right::Pixels(pixels, tap),
            };
            let pointer = self.da.pointer::<f32>().wrapping_add(tap * channels).cast();
            let target = Target { pointer, dtype: DType::F32, row_stride: depth, column_stride: 1, add: true };
            let terms = [Term { left: turned, right, depth: self.rows }];
            Matmul { micro: self.micro, rows: self.branch.rank(), columns: channels, terms: &terms, store: Store::to(target) }.run(scratch);
        }
    }
}
