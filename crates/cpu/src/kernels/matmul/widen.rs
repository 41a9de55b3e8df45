//! Rows of a quantized matrix as f32 or bf16, on their way into panels. Every path packs what comes out of here, so both directions of a
//! product read the same numbers whatever the instruction set.

use super::micro::LANES;
use super::operand::Source;
use crate::element::Element;
use crate::isa::vectorize;
use base::DType;
use base::quantized::{BLOCK, Layout, NF4, Scheme};
use half::bf16;

/// Where widened rows go.
#[derive(Clone, Copy)]
pub struct Widened {
    pub pointer: *mut u8,
    /// F32 or BF16.
    pub dtype: DType,
    /// Numbers from row to row; what a row leaves of them is filled with zeros.
    pub stride: usize,
}

impl Widened {
    /// The same from row `row` on.
    pub fn skip_rows(self, row: usize) -> Widened {
        Widened { pointer: self.pointer.wrapping_add(row * self.stride * self.dtype.bytes()), ..self }
    }
}

/// A piece of a quantized matrix: `rows` rows from one on, of each `len` numbers from `column` on.
struct Piece {
    layout: Layout,
    /// Codes and scales of the first row.
    codes: *const u8,
    scales: *const u16,
    rows: usize,
    column: usize,
    len: usize,
}

/// Both numbers of every byte of 4-bit codes.
static PAIRS: [[f32; 2]; 256] = {
    let mut pairs = [[0.0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        pairs[byte] = [NF4[byte & 15], NF4[byte >> 4]];
        byte += 1;
    }
    pairs
};

/// Widens `rows` rows of `len` numbers, each beginning where `from` begins in the first one.
///
/// # Safety
/// `from` is a quantized matrix that has these rows and columns; `into` has `rows` rows of its stride.
pub unsafe fn widen(from: Source, rows: usize, len: usize, into: Widened) {
    let (layout, row, column) = from.quantized().expect("only quantized matrices are widened here");
    debug_assert!(column + len <= layout.columns && row + rows <= layout.rows && len <= into.stride);
    let piece = Piece {
        layout,
        codes: from.pointer.wrapping_add(row * layout.row_bytes()),
        scales: from.pointer.wrapping_add(layout.scales_at() + row * layout.row_blocks() * 2).cast(),
        rows,
        column,
        len,
    };
    #[cfg(target_arch = "x86_64")]
    if crate::isa::isa() >= crate::isa::Isa::Avx512 {
        // SAFETY: the machine has AVX-512; the rest as the caller promises.
        return unsafe { avx512::widen(&piece, into) };
    }
    match into.dtype {
        DType::BF16 => widen_loop::<bf16>(&piece, into),
        _ => widen_loop::<f32>(&piece, into),
    }
}

impl Piece {
    /// Calls `body(first number, numbers, column)` for stretches of at most 16 that share a scale and, in 4 bits, begin with a byte or end
    /// with one.
    #[inline(always)]
    fn each_stretch(&self, mut body: impl FnMut(usize, usize, usize)) {
        let mut at = 0;
        while at < self.len {
            let column = self.column + at;
            let halved = self.layout.scheme == Scheme::Nf4 && !column.is_multiple_of(2);
            let most = if halved { 1 } else { LANES };
            let count = most.min(self.len - at).min(BLOCK - column % BLOCK);
            body(at, count, column);
            at += count;
        }
    }

    /// The scale of a column's block.
    ///
    /// # Safety
    /// The row and column exist.
    #[inline(always)]
    unsafe fn scale(&self, row: usize, column: usize) -> f32 {
        // SAFETY: as the caller promises.
        let bits = unsafe { self.scales.add(row * self.layout.row_blocks() + column / BLOCK).read_unaligned() };
        f32::from_bits(u32::from(bits) << 16)
    }

    /// The byte that holds a column's code.
    #[inline(always)]
    fn code(&self, row: usize, column: usize) -> *const u8 {
        let byte = if self.layout.scheme == Scheme::Nf4 { column / 2 } else { column };
        self.codes.wrapping_add(row * self.layout.row_bytes() + byte)
    }
}

vectorize! {
    fn widen_loop<D: Element>(piece: &Piece, into: Widened) {
        let to = |row: usize, at: usize| into.pointer.cast::<D>().wrapping_add(row * into.stride + at);
        piece.each_stretch(|at, count, column| {
            for row in 0..piece.rows {
                // SAFETY: these numbers exist, and there is room for them, by the promise to `widen`.
                unsafe {
                    let (scale, code) = (piece.scale(row, column), piece.code(row, column));
                    let put = |i: usize, level: f32| to(row, at + i).write_unaligned(D::from_f32(level * scale));
                    match piece.layout.scheme {
                        Scheme::Int8 => (0..count).for_each(|i| put(i, f32::from(code.add(i).read() as i8))),
                        Scheme::Nf4 if column.is_multiple_of(2) => {
                            for pair in 0..count / 2 {
                                let [low, high] = PAIRS[usize::from(code.add(pair).read())];
                                put(2 * pair, low);
                                put(2 * pair + 1, high);
                            }
                            if !count.is_multiple_of(2) {
                                put(count - 1, PAIRS[usize::from(code.add(count / 2).read())][0]);
                            }
                        }
                        Scheme::Nf4 => put(0, PAIRS[usize::from(code.read())][1]),
                    }
                }
            }
        });
        for row in 0..piece.rows {
            // SAFETY: a row of `into` is `stride` numbers long.
            unsafe { to(row, piece.len).write_bytes(0, into.stride - piece.len) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx512 {
    use super::{LANES, NF4, Piece, Scheme, Widened};
    use crate::kernels::matmul::avx512::bf16_bits;
    use base::DType;
    use std::arch::x86_64::*;

    /// # Safety
    /// The machine has AVX-512 with BW and VL; the rest as for [`super::widen`].
    pub unsafe fn widen(piece: &Piece, into: Widened) {
        // SAFETY: as the caller promises.
        unsafe {
            match (piece.layout.scheme, into.dtype) {
                (Scheme::Int8, DType::BF16) => rows::<false, true>(piece, into),
                (Scheme::Int8, _) => rows::<false, false>(piece, into),
                (Scheme::Nf4, DType::BF16) => rows::<true, true>(piece, into),
                (Scheme::Nf4, _) => rows::<true, false>(piece, into),
            }
        }
    }

    fn mask(count: usize) -> u16 {
        ((1u32 << count) - 1) as u16
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn rows<const NF: bool, const NARROW: bool>(piece: &Piece, into: Widened) {
        // SAFETY: the table has 16 numbers.
        let table = unsafe { _mm512_loadu_ps(NF4.as_ptr()) };
        piece.each_stretch(|at, count, column| {
            let bytes = mask(if NF { count.div_ceil(2) } else { count });
            for row in 0..piece.rows {
                // SAFETY: masks leave out what does not exist; the rest by the promise to `widen`.
                unsafe {
                    let codes = _mm_maskz_loadu_epi8(bytes, piece.code(row, column).cast());
                    let levels = if NF {
                        // Only the lower four bits of an index count.
                        let upper = _mm_srli_epi16::<4>(codes);
                        let indices = if column.is_multiple_of(2) { _mm_unpacklo_epi8(codes, upper) } else { upper };
                        _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(indices), table)
                    } else {
                        _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))
                    };
                    let numbers = _mm512_mul_ps(levels, _mm512_set1_ps(piece.scale(row, column)));
                    store::<NARROW>(numbers, into, row * into.stride + at, count);
                }
            }
        });
        for row in 0..piece.rows {
            for at in (piece.len..into.stride).step_by(LANES) {
                // SAFETY: a row of `into` is `stride` numbers long.
                unsafe { store::<NARROW>(_mm512_setzero_ps(), into, row * into.stride + at, (into.stride - at).min(LANES)) };
            }
        }
    }

    /// # Safety
    /// `count` numbers from number `at` on are ours.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    unsafe fn store<const NARROW: bool>(numbers: __m512, into: Widened, at: usize, count: usize) {
        // SAFETY: as the caller promises.
        unsafe {
            if NARROW {
                _mm512_mask_cvtepi32_storeu_epi16(into.pointer.cast::<i16>().add(at), mask(count), bf16_bits(numbers));
            } else {
                _mm512_mask_storeu_ps(into.pointer.cast::<f32>().add(at), mask(count), numbers);
            }
        }
    }
}
