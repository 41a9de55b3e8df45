//! The micro-kernel: one small tile of a product, kept in registers. Each instruction set has one; all share this interface.
//!
//! Operands are made of 32-bit words: one f32, or two bf16 that follow each other along the reduction ("pair"). So all packing moves
//! words and does not care which they are.

use crate::isa::Isa;
use base::DType;

/// Words per vector of 512 bits; widths of panels are multiples of it.
pub const LANES: usize = 16;

/// What suits paths that read A word by word: a panel of 32 columns is 28 KB. 224–448 words ran within 5 % of each other.
pub const BLOCK_WORDS: usize = 224;
pub const TILE_COLUMNS: usize = 320;

/// How one instruction set multiplies.
pub struct Micro {
    pub name: &'static str,
    /// BF16: words are pairs. F32: words are single numbers.
    pub packed: DType,
    /// Most rows of a tile.
    pub rows: usize,
    /// A is read in groups of this many rows: what lies there beyond the tile's rows must be readable.
    pub whole_rows: usize,
    /// Columns of a full panel; the last panel of a matrix may have any smaller multiple of [`LANES`].
    pub columns: usize,
    /// Words of a reduction come in multiples of this, filled up with zeros.
    pub step: usize,
    /// Most words of a block of the reduction: a panel of it should stay in L1.
    pub block_words: usize,
    /// Most columns of a task.
    pub tile_columns: usize,
    /// C[rows, columns] = A B, or += with `accumulate`.
    pub tile: unsafe fn(&Tile),
    /// The same product over many panels with a short reduction.
    pub sweep: Option<Sweep>,
    /// Transposes words: `into[w · into_stride + i] = from[i][w]` for 16 rows i, zeros from `rows` on.
    pub transpose: unsafe fn(&Transpose),
    /// Interleaves pairs of rows of bf16 or f16 to words of bf16; without it, plain loops do.
    pub interleave: Option<unsafe fn(&Interleave)>,
    /// Scales sums, adds a bias and rounds to rows of f32, bf16 or f16; without it, plain loops do.
    pub round: Option<unsafe fn(&Round)>,
    /// Makes integers of packed bf16 numbers before they are multiplied; without it, words are multiplied as they are.
    pub fixed: Option<Fixed>,
}

/// A product of short reductions, whose A [rows, words] stays in registers while panel after panel comes by.
#[derive(Clone, Copy)]
pub struct Sweep {
    /// Most words of the reduction.
    pub words: usize,
    /// Multiplies so many whole panels that follow each other; C has room for whole groups of rows, and nothing is accumulated.
    pub run: unsafe fn(&Tile, usize),
}

/// Block fixed point: numbers become 16-bit integers in units that a row of A, or a column of B, shares in a block of the reduction.
#[derive(Clone, Copy)]
pub struct Fixed {
    /// Converts this many words of a row of A in place, and returns the unit.
    pub row: unsafe fn(*mut u32, usize) -> f32,
    /// Converts a panel [words, width] of B in place, and writes the units of its columns.
    pub panel: unsafe fn(*mut u32, usize, usize, *mut f32),
}

/// Rows that become words of bf16: `into[w · width + i] = (from[2w][i], from[2w + 1][i])`, zeros beyond `exist` and `rows`.
pub struct Interleave {
    pub from: *const u16,
    /// BF16 or F16.
    pub dtype: DType,
    /// Elements from row to row.
    pub from_stride: usize,
    pub rows: usize,
    pub exist: usize,
    pub into: *mut u32,
    /// A multiple of [`LANES`].
    pub width: usize,
}

/// `into[r][i] = round(scale · sums[r][i] + bias[i])` for `rows` rows of `width` numbers.
pub struct Round {
    pub sums: *const f32,
    pub stride: usize,
    pub rows: usize,
    pub width: usize,
    pub scale: f32,
    /// Null for none.
    pub bias: *const f32,
    pub into: *mut u8,
    /// F32, BF16 or F16.
    pub dtype: DType,
    /// Elements from row to row.
    pub into_stride: usize,
}

/// Operands of a micro-kernel. Strides count words.
pub struct Tile {
    /// A [rows, words], row-major.
    pub a: *const u32,
    pub a_stride: usize,
    /// 1 to [`Micro::rows`].
    pub rows: usize,
    /// B: a panel [words, columns].
    pub b: *const u32,
    pub columns: usize,
    pub words: usize,
    /// C [rows, columns], row-major.
    pub c: *mut f32,
    pub c_stride: usize,
    pub accumulate: bool,
    /// Units of the rows of A and the columns of B; null where words are not in fixed point.
    pub units: (*const f32, *const f32),
}

/// Operands of a transposition of up to 16 rows of words.
pub struct Transpose {
    pub from: *const u8,
    /// Bytes from row to row; rows need not be aligned to words.
    pub from_stride: usize,
    pub rows: usize,
    pub words: usize,
    pub into: *mut u32,
    pub into_stride: usize,
}

impl Micro {
    /// The micro-kernel for activations of this type.
    pub fn of(isa: Isa, activation: DType) -> &'static Micro {
        match (isa, activation) {
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512Bf16, DType::BF16) => &super::avx512_bf16::MICRO,
            #[cfg(target_arch = "x86_64")]
            (Isa::Amx, DType::BF16) => super::amx::micro(),
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx512Vnni, DType::BF16) => &super::avx512_vnni::MICRO,
            #[cfg(target_arch = "x86_64")]
            (Isa::Amx | Isa::Avx512Vnni | Isa::Avx512Bf16 | Isa::Avx512, _) => &super::avx512::MICRO,
            #[cfg(target_arch = "x86_64")]
            (Isa::Avx2, _) => &super::avx2::MICRO,
            _ => &super::portable::MICRO,
        }
    }

    /// Numbers per word.
    pub fn per_word(&self) -> usize {
        if self.packed == DType::BF16 { 2 } else { 1 }
    }

    /// Rows of the strips that `rows` are cut into: as even as possible, since a low tile leaves the multipliers waiting.
    pub fn strip(&self, rows: usize) -> usize {
        rows.div_ceil(rows.div_ceil(self.rows).max(1)).max(1).next_multiple_of(self.whole_rows)
    }

    /// Words that hold `depth` numbers of a reduction.
    pub fn words(&self, depth: usize) -> usize {
        depth.div_ceil(self.per_word()).next_multiple_of(self.step)
    }

    /// Panels that hold `columns`, as (first column, width in columns, columns that exist).
    pub fn panels(&self, columns: usize) -> impl Iterator<Item = (usize, usize, usize)> {
        let full = self.columns;
        (0..columns.div_ceil(full)).map(move |i| {
            let exist = (columns - i * full).min(full);
            (i * full, exist.next_multiple_of(LANES), exist)
        })
    }
}
