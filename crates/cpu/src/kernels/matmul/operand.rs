//! Where the operands of a product stand in memory: rows, stored transposes, and pictures seen through the taps of a convolution.

use super::micro::Micro;
use crate::tensor::Tensor;
use base::DType;
use base::quantized::{Layout, Scheme};

/// Numbers somewhere in memory, from one of them on.
#[derive(Clone, Copy)]
pub struct Source {
    /// The first number; of a quantized matrix, its first byte.
    pub pointer: *const u8,
    pub dtype: DType,
    /// Rows and columns of a quantized matrix, and the index of the first number in it.
    matrix: [usize; 2],
    first: usize,
}

// SAFETY: sources are read only, while nobody writes to them (tensors and scratch of one kernel call).
unsafe impl Send for Source {}
unsafe impl Sync for Source {}

impl Source {
    /// Numbers of a plain type.
    pub fn plain(pointer: *const u8, dtype: DType) -> Source {
        Source { pointer, dtype, matrix: [0; 2], first: 0 }
    }

    pub fn of(tensor: &Tensor) -> Source {
        let rows = tensor.meta.shape.batch();
        let matrix = [rows, tensor.elements() / rows.max(1)];
        Source { matrix, ..Source::plain(tensor.bytes_pointer().cast_const(), tensor.dtype()) }
    }

    /// The source from number `index` on.
    #[inline(always)]
    pub fn at(self, index: usize) -> Source {
        match self.dtype {
            DType::Quantized(_) => Source { first: self.first + index, ..self },
            plain => Source { pointer: self.pointer.wrapping_add(index * plain.bytes()), ..self },
        }
    }

    /// The quantized matrix, and the row and column of the first number; `None` if the numbers are plain.
    pub fn quantized(&self) -> Option<(Layout, usize, usize)> {
        let DType::Quantized(scheme) = self.dtype else { return None };
        let [rows, columns] = self.matrix;
        Some((Layout { scheme, rows, columns }, self.first / columns, self.first % columns))
    }

    /// The bytes of the first `count` numbers, to prefetch them: where they begin, and how many. Half a byte that ends a row of 4-bit
    /// codes is not counted.
    #[inline(always)]
    pub fn bytes(&self, count: usize) -> (*const u8, usize) {
        match self.dtype {
            DType::Quantized(Scheme::Int8) => (self.pointer.wrapping_add(self.first), count),
            DType::Quantized(Scheme::Nf4) => (self.pointer.wrapping_add(self.first / 2), count.div_ceil(2)),
            plain => (self.pointer, count * plain.bytes()),
        }
    }
}

/// A picture [batch, height, width, channels] seen from the pixels of a grid: grid pixel (b, i, j) meets, through tap (u, v), the pixel
/// (b, i·step + origin₀ + direction·u, j·step + origin₁ + direction·v), or zeros outside of the picture.
#[derive(Clone, Copy)]
pub struct Pixels {
    pub source: Source,
    pub size: [usize; 2],
    pub channels: usize,
    pub grid: [usize; 2],
    pub step: usize,
    pub taps: [usize; 2],
    pub origin: [isize; 2],
    pub direction: isize,
}

/// A pixel of the grid: batch item, and where its tap (0, 0) lands.
#[derive(Clone, Copy)]
pub struct Anchor {
    batch: usize,
    row: isize,
    column: isize,
}

impl Pixels {
    #[inline(always)]
    pub fn anchor(&self, index: usize) -> Anchor {
        let (line, j) = (index / self.grid[1], index % self.grid[1]);
        let (batch, i) = (line / self.grid[0], line % self.grid[0]);
        Anchor { batch, row: (i * self.step) as isize + self.origin[0], column: (j * self.step) as isize + self.origin[1] }
    }

    /// The next pixel of the grid after the one at `index`, whose anchor is `anchor`.
    #[inline(always)]
    pub fn next(&self, index: usize, anchor: Anchor) -> Anchor {
        if (index + 1).is_multiple_of(self.grid[1]) {
            self.anchor(index + 1)
        } else {
            Anchor { column: anchor.column + self.step as isize, ..anchor }
        }
    }

    /// The channels that tap number `tap` meets; `None` outside of the picture.
    #[inline(always)]
    pub fn meet(&self, anchor: Anchor, tap: usize) -> Option<Source> {
        let (u, v) = ((tap / self.taps[1]) as isize, (tap % self.taps[1]) as isize);
        let (row, column) = (anchor.row + self.direction * u, anchor.column + self.direction * v);
        let inside = (row as usize) < self.size[0] && (column as usize) < self.size[1];
        inside.then(|| self.source.at(((anchor.batch * self.size[0] + row as usize) * self.size[1] + column as usize) * self.channels))
    }
}

/// The left operand [rows, depth] of a product.
#[derive(Clone, Copy)]
pub enum Left {
    /// Row-major, with this many elements from row to row.
    Rows { source: Source, stride: usize },
    /// One row a grid pixel; along it the taps, and within a tap the channels.
    Pixels(Pixels),
}

/// The right operand [depth, columns] of a product.
#[derive(Clone, Copy)]
pub enum Right {
    /// Stored as its transpose [columns, depth], with this many elements from column to column.
    Columns { source: Source, stride: usize },
    /// Stored by rows. Row k is `run`-th row k % run of group k / run; group (u, v) = (g / wide, g % wide) begins at u·steps₀ + v·steps₁.
    Rows { source: Source, stride: usize, run: usize, wide: usize, steps: [isize; 2] },
    /// Row k is what grid pixel k meets through one tap.
    Pixels(Pixels, usize),
}

impl Right {
    /// A plain row-major matrix.
    pub fn rows(source: Source, stride: usize) -> Right {
        Right::Rows { source, stride, run: usize::MAX, wide: 1, steps: [0; 2] }
    }

    /// Whether pairs of rows never straddle two groups.
    pub fn is_even(&self) -> bool {
        matches!(self, Right::Rows { run, .. } if *run == usize::MAX || run.is_multiple_of(2))
    }

    /// Row `k` of an operand that is not stored as its transpose; `None` for a row of zeros.
    #[inline(always)]
    pub fn row(&self, k: usize) -> Option<Source> {
        match self {
            Right::Rows { source, stride, run, wide, steps } => {
                let (group, row) = if *run == usize::MAX { (0, k) } else { (k / run, k % run) };
                let start = (group / wide) as isize * steps[0] + (group % wide) as isize * steps[1];
                Some(source.at((start + (row * stride) as isize) as usize))
            }
            Right::Pixels(pixels, tap) => pixels.meet(pixels.anchor(k), *tap),
            Right::Columns { .. } => unreachable!("columns are packed by transposing"),
        }
    }

    pub fn dtype(&self) -> DType {
        match self {
            Right::Rows { source, .. } | Right::Columns { source, .. } => source.dtype,
            Right::Pixels(pixels, _) => pixels.source.dtype,
        }
    }
}

/// One of the products that are added up: A [rows, depth] · B [depth, columns].
#[derive(Clone, Copy)]
pub struct Term {
    pub left: Left,
    pub right: Right,
    pub depth: usize,
}

impl Term {
    /// Whether a micro-kernel can read the left operand where it stands: packed words already, and rows that don't all fall into the same
    /// few sets of the L1 cache.
    pub fn reads_in_place(&self, micro: &Micro) -> bool {
        let Left::Rows { source, stride } = &self.left else { return false };
        let whole = |n: usize| n.is_multiple_of(micro.per_word());
        let aligned = (source.pointer as usize).is_multiple_of(4);
        micro.fixed.is_none()
            && source.dtype == micro.packed
            && self.depth.is_multiple_of(micro.per_word() * micro.step)
            && whole(*stride)
            && aligned
            && !(stride * source.dtype.bytes()).is_multiple_of(2048)
    }

    /// The left operand from a row and a number of its depth on, as words; only for those that are read in place.
    pub fn in_place(&self, row: usize, number: usize) -> (*const u32, usize) {
        let Left::Rows { source, stride } = &self.left else { unreachable!("only rows are read in place") };
        (source.at(row * stride + number).pointer.cast(), stride * source.dtype.bytes() / 4)
    }
}
