//! AVX-512 with bf16 products (`vdpbf16ps`), f32 sums: 12×32 tiles in 24 of the 32 registers.

use super::avx512::{by_size, finish};
use super::micro::{BLOCK_WORDS, Interleave, LANES, Micro, Round, TILE_COLUMNS, Tile};
use base::DType;
use std::arch::x86_64::*;
use std::mem::transmute;

pub static MICRO: Micro = Micro {
    name: "avx512 bf16",
    packed: DType::BF16,
    rows: 12,
    whole_rows: 1,
    step: 1,
    block_words: BLOCK_WORDS,
    tile_columns: TILE_COLUMNS,
    columns: 2 * LANES,
    tile,
    sweep: None,
    transpose: super::avx512::transpose,
    interleave: Some(interleave),
    round: Some(round),
    fixed: None,
};

/// # Safety
/// The machine has AVX-512 with bf16; the operands are as [`Tile`] says, and nobody else touches C.
unsafe fn tile(t: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { by_size!(rows, t, 1 2 3 4 5 6 7 8 9 10 11 12) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn rows<const R: usize, const V: usize>(t: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    if t.accumulate {
        // C comes from L2 or farther, and would be waited for at the end.
        for i in 0..R * V {
            _mm_prefetch::<_MM_HINT_T0>(t.c.wrapping_add(i / V * t.c_stride + i % V * LANES).cast());
        }
    }
    let (mut a, mut b) = (t.a.cast::<i32>(), t.b);
    for _ in 0..t.words {
        // SAFETY: panels have `words` rows of `columns` words, A has `words` columns; the transmuted types are 512 plain bits.
        unsafe {
            let mut panel = [_mm512_setzero_si512(); V];
            for (v, panel) in panel.iter_mut().enumerate() {
                *panel = _mm512_loadu_si512(b.add(v * LANES).cast());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_epi32(*a.add(r * t.a_stride));
                for (sum, panel) in sums.iter_mut().zip(panel) {
                    *sum = _mm512_dpbf16_ps(*sum, transmute::<__m512i, __m512bh>(a), transmute::<__m512i, __m512bh>(panel));
                }
            }
            (a, b) = (a.add(1), b.add(V * LANES));
        }
    }
    finish!(t, sums);
}

/// # Safety
/// The machine has AVX-512 BW; the operands are as [`Interleave`] says.
pub unsafe fn interleave(t: &Interleave) {
    // SAFETY: as the caller promises.
    unsafe {
        match t.dtype {
            DType::F16 => interleave_rows::<true>(t),
            _ => interleave_rows::<false>(t),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn interleave_rows<const HALF: bool>(t: &Interleave) {
    for chunk in (0..t.width).step_by(LANES) {
        let exist = t.exist.saturating_sub(chunk).min(LANES);
        let mask = ((1u32 << exist) - 1) as u16;
        let row = |r: usize, mask: u16| {
            // SAFETY: the mask leaves out what does not exist.
            let stored = unsafe { _mm256_maskz_loadu_epi16(mask, t.from.wrapping_add(r * t.from_stride + chunk).cast()) };
            if HALF { super::avx512::bf16_bits(_mm512_cvtph_ps(stored)) } else { _mm512_cvtepu16_epi32(stored) }
        };
        for w in 0..t.rows.div_ceil(2) {
            let (low, high) = (row(2 * w, mask), row(2 * w + 1, if 2 * w + 1 < t.rows { mask } else { 0 }));
            let words = _mm512_or_si512(low, _mm512_slli_epi32::<16>(high));
            // SAFETY: `into` has whole rows of words.
            unsafe { _mm512_storeu_si512(t.into.add(w * t.width + chunk).cast(), words) };
        }
    }
}

/// # Safety
/// The machine has AVX-512 with bf16; the operands are as [`Round`] says.
pub unsafe fn round(t: &Round) {
    // SAFETY: as the caller promises.
    unsafe { if t.dtype == DType::BF16 { round_rows(t) } else { super::avx512::round(t) } }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn round_rows(t: &Round) {
    let scale = _mm512_set1_ps(t.scale);
    for chunk in (0..t.width).step_by(LANES) {
        let exist = (t.width - chunk).min(LANES);
        let mask = ((1u32 << exist) - 1) as u16;
        // SAFETY: the masks leave out what does not exist; the rows are the caller's.
        unsafe {
            let bias = if t.bias.is_null() { _mm512_setzero_ps() } else { _mm512_maskz_loadu_ps(mask, t.bias.add(chunk)) };
            for r in 0..t.rows {
                let sums = _mm512_maskz_loadu_ps(mask, t.sums.add(r * t.stride + chunk));
                let rounded = transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(_mm512_fmadd_ps(sums, scale, bias)));
                _mm256_mask_storeu_epi16(t.into.cast::<i16>().add(r * t.into_stride + chunk), mask, rounded);
            }
        }
    }
}
