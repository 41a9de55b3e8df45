//! AVX-512 with bf16 products (`vdpbf16ps`), f32 sums: 12×32 tiles in 24 of the 32 registers.

use super::avx512::{by_size, finish};
use super::micro::{LANES, Micro, Tile};
use base::DType;
use std::arch::x86_64::*;
use std::mem::transmute;

pub static MICRO: Micro =
    Micro { name: "avx512 bf16", packed: DType::BF16, rows: 12, columns: 2 * LANES, tile, transpose: super::avx512::transpose };

/// # Safety
/// The machine has AVX-512 with bf16; the operands are as [`Tile`] says, and nobody else touches C.
unsafe fn tile(t: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { by_size!(rows, t, 1 2 3 4 5 6 7 8 9 10 11 12) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn rows<const R: usize, const V: usize>(t: &Tile) {
    let mut sums = [[_mm512_setzero_ps(); V]; R];
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
    // SAFETY: C is as the caller promises.
    unsafe { finish(t, &sums) };
}
