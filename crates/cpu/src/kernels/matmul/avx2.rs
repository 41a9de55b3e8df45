//! AVX2 with FMA, f32: 6×16 tiles in 12 of the 16 registers.

use super::micro::{BLOCK_WORDS, LANES, Micro, TILE_COLUMNS, Tile};
use base::DType;
use std::arch::x86_64::*;

pub static MICRO: Micro = Micro {
    name: "avx2 f32",
    packed: DType::F32,
    rows: 6,
    whole_rows: 1,
    step: 1,
    block_words: BLOCK_WORDS,
    tile_columns: TILE_COLUMNS,
    columns: LANES,
    tile,
    sweep: None,
    transpose: super::portable::transpose,
    interleave: None,
    round: None,
    fixed: None,
};

/// # Safety
/// The machine has AVX2 and FMA; the operands are as [`Tile`] says, and nobody else touches C.
unsafe fn tile(t: &Tile) {
    debug_assert!(t.rows <= 6 && t.columns == LANES);
    // SAFETY: as the caller promises.
    unsafe {
        match t.rows {
            6 => rows::<6>(t),
            5 => rows::<5>(t),
            4 => rows::<4>(t),
            3 => rows::<3>(t),
            2 => rows::<2>(t),
            _ => rows::<1>(t),
        }
    }
}

#[target_feature(enable = "avx2,fma")]
unsafe fn rows<const R: usize>(t: &Tile) {
    let mut sums = [[_mm256_setzero_ps(); 2]; R];
    for w in 0..t.words {
        // SAFETY: panels have `words` rows of `columns` words, A has `words` columns.
        unsafe {
            let b = t.b.add(w * LANES).cast::<f32>();
            let b = [_mm256_loadu_ps(b), _mm256_loadu_ps(b.add(8))];
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm256_broadcast_ss(&*t.a.add(r * t.a_stride + w).cast::<f32>());
                sums[0] = _mm256_fmadd_ps(a, b[0], sums[0]);
                sums[1] = _mm256_fmadd_ps(a, b[1], sums[1]);
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (v, sum) in sums.iter().enumerate() {
            // SAFETY: C has `rows` rows of `columns`, and is ours.
            unsafe {
                let c = t.c.add(r * t.c_stride + 8 * v);
                let sum = if t.accumulate { _mm256_add_ps(_mm256_loadu_ps(c), *sum) } else { *sum };
                _mm256_storeu_ps(c, sum);
            }
        }
    }
}
