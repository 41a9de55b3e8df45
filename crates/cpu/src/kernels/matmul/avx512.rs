//! AVX-512, f32: 12×32 tiles in 24 of the 32 registers; and the transposition of words that bf16 shares.

use super::micro::{BLOCK_WORDS, LANES, Micro, Round, TILE_COLUMNS, Tile, Transpose};
use base::DType;
use std::arch::x86_64::*;

pub static MICRO: Micro = Micro {
    name: "avx512 f32",
    packed: DType::F32,
    rows: 12,
    whole_rows: 1,
    step: 1,
    block_words: BLOCK_WORDS,
    tile_columns: TILE_COLUMNS,
    columns: 2 * LANES,
    tile,
    sweep: None,
    transpose,
    interleave: None,
    round: Some(round),
    fixed: None,
};

/// Calls `$rows::<R, V>($t)` for the tile's number of rows and vectors.
macro_rules! by_size {
    ($rows:ident, $t:ident, $($r:literal)*) => {
        match ($t.rows, $t.columns / LANES) {
            $(($r, 1) => $rows::<$r, 1>($t),)*
            $(($r, 2) => $rows::<$r, 2>($t),)*
            _ => unreachable!("a tile of {} × {}", $t.rows, $t.columns),
        }
    };
}

pub(super) use by_size;

/// Writes or adds the sums of a tile to C. A macro, since a call would pass the sums through memory.
macro_rules! finish {
    ($t:ident, $sums:ident) => {
        for (r, sums) in $sums.iter().enumerate() {
            for (v, sum) in sums.iter().enumerate() {
                // SAFETY: C has `rows` rows of `columns`, and is ours, by the caller's promise.
                unsafe {
                    let c = $t.c.add(r * $t.c_stride + v * LANES);
                    let sum = if $t.accumulate { _mm512_add_ps(_mm512_loadu_ps(c), *sum) } else { *sum };
                    _mm512_storeu_ps(c, sum);
                }
            }
        }
    };
}

pub(super) use finish;

/// # Safety
/// The machine has AVX-512; the operands are as [`Tile`] says, and nobody else touches C.
unsafe fn tile(t: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { by_size!(rows, t, 1 2 3 4 5 6 7 8 9 10 11 12) }
}

#[target_feature(enable = "avx512f")]
unsafe fn rows<const R: usize, const V: usize>(t: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); V]; R];
    if t.accumulate {
        // C comes from L2 or farther, and would be waited for at the end.
        for i in 0..R * V {
            _mm_prefetch::<_MM_HINT_T0>(t.c.wrapping_add(i / V * t.c_stride + i % V * LANES).cast());
        }
    }
    let (mut a, mut b) = (t.a.cast::<f32>(), t.b.cast::<f32>());
    for _ in 0..t.words {
        // SAFETY: panels have `words` rows of `columns` words, A has `words` columns.
        unsafe {
            let mut panel = [_mm512_setzero_ps(); V];
            for (v, panel) in panel.iter_mut().enumerate() {
                *panel = _mm512_loadu_ps(b.add(v * LANES));
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_ps(*a.add(r * t.a_stride));
                for (sum, panel) in sums.iter_mut().zip(panel) {
                    *sum = _mm512_fmadd_ps(a, panel, *sum);
                }
            }
            (a, b) = (a.add(1), b.add(V * LANES));
        }
    }
    finish!(t, sums);
}

/// What [`round_rows`] writes.
const F32: u8 = 0;
const BF16: u8 = 1;
const F16: u8 = 2;

/// # Safety
/// The machine has AVX-512; the operands are as [`Round`] says.
pub unsafe fn round(t: &Round) {
    // SAFETY: as the caller promises.
    unsafe {
        match t.dtype {
            DType::BF16 => round_rows::<BF16>(t),
            DType::F16 => round_rows::<F16>(t),
            _ => round_rows::<F32>(t),
        }
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn round_rows<const INTO: u8>(t: &Round) {
    let scale = _mm512_set1_ps(t.scale);
    for chunk in (0..t.width).step_by(LANES) {
        let mask = ((1u32 << (t.width - chunk).min(LANES)) - 1) as u16;
        // SAFETY: the masks leave out what does not exist; the rows are the caller's.
        unsafe {
            let bias = if t.bias.is_null() { _mm512_setzero_ps() } else { _mm512_maskz_loadu_ps(mask, t.bias.add(chunk)) };
            for r in 0..t.rows {
                let value = _mm512_fmadd_ps(_mm512_maskz_loadu_ps(mask, t.sums.add(r * t.stride + chunk)), scale, bias);
                let at = r * t.into_stride + chunk;
                match INTO {
                    BF16 => _mm512_mask_cvtepi32_storeu_epi16(t.into.cast::<i16>().add(at), mask, bf16_bits(value)),
                    F16 => {
                        let halves = _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(value);
                        _mm512_mask_cvtepi32_storeu_epi16(t.into.cast::<i16>().add(at), mask, _mm512_cvtepu16_epi32(halves));
                    }
                    _ => _mm512_mask_storeu_ps(t.into.cast::<f32>().add(at), mask, value),
                }
            }
        }
    }
}

/// The bits of the nearest bf16, ties to even, in the lower half of each word; a NaN stays one.
#[target_feature(enable = "avx512f")]
#[inline]
pub fn bf16_bits(value: __m512) -> __m512i {
    let bits = _mm512_castps_si512(value);
    let upper = _mm512_srli_epi32::<16>(bits);
    let odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
    let rounded = _mm512_srli_epi32::<16>(_mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))));
    let quiet = _mm512_or_si512(upper, _mm512_set1_epi32(0x40));
    _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(value, value), quiet)
}

/// # Safety
/// The machine has AVX-512; the operands are as [`Transpose`] says.
pub unsafe fn transpose(t: &Transpose) {
    // SAFETY: as the caller promises.
    unsafe { transpose_blocks(t) }
}

#[target_feature(enable = "avx512f")]
unsafe fn transpose_blocks(t: &Transpose) {
    let mut w = 0;
    while w < t.words {
        let left = (t.words - w).min(LANES);
        let mask = if left == LANES { !0 } else { (1u16 << left) - 1 };
        let mut rows = [_mm512_setzero_si512(); LANES];
        for (i, row) in rows.iter_mut().enumerate() {
            if i < t.rows {
                // SAFETY: row i has `words` words; the mask leaves out what lies beyond.
                *row = unsafe { _mm512_maskz_loadu_epi32(mask, t.from.add(i * t.from_stride + 4 * w).cast()) };
            }
        }
        let columns = transposed(rows);
        for (j, column) in columns.iter().enumerate().take(left) {
            // SAFETY: `into` has `words` rows of 16 words at its stride.
            unsafe { _mm512_storeu_si512(t.into.add((w + j) * t.into_stride).cast(), *column) };
        }
        w += LANES;
    }
}

/// The transpose of a 16×16 matrix of words: within pairs, quadruples, and then among the 128-bit lanes.
#[target_feature(enable = "avx512f")]
#[inline]
fn transposed(r: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut t = r;
    for i in 0..8 {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    let mut q = t;
    for i in 0..4 {
        q[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        q[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        q[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        q[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    // q[4 g + c], 128-bit lane l: column 4 l + c of rows 4 g .. 4 g + 4.
    let mut out = q;
    for c in 0..4 {
        let low = _mm512_shuffle_i32x4::<0x88>(q[c], q[4 + c]);
        let high = _mm512_shuffle_i32x4::<0xdd>(q[c], q[4 + c]);
        let low2 = _mm512_shuffle_i32x4::<0x88>(q[8 + c], q[12 + c]);
        let high2 = _mm512_shuffle_i32x4::<0xdd>(q[8 + c], q[12 + c]);
        out[c] = _mm512_shuffle_i32x4::<0x88>(low, low2);
        out[4 + c] = _mm512_shuffle_i32x4::<0x88>(high, high2);
        out[8 + c] = _mm512_shuffle_i32x4::<0xdd>(low, low2);
        out[12 + c] = _mm512_shuffle_i32x4::<0xdd>(high, high2);
    }
    out
}
