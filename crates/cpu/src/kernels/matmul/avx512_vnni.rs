//! AVX-512 with 16-bit integer products (`vpdpwssd`): 12×32 tiles, sums in 32-bit integers.
//!
//! Intel's cores without AMX multiply bf16 at half the rate of f32, but pairs of 16-bit integers at twice that rate. So packed bf16 numbers
//! become integers in block fixed point (see `fixed.rs`), with a unit for each row of A and column of B in each block of the reduction:
//! closer to exact than bf16's own rounding. Rows and columns that hold an infinity or a NaN become NaN as a whole.

use super::avx512::by_size;
use super::fixed::{LEAST_UNIT, NORM};
use super::micro::{BLOCK_WORDS, Fixed, LANES, Micro, TILE_COLUMNS, Tile};
use base::DType;
use std::arch::asm;
use std::arch::x86_64::*;

pub static MICRO: Micro = Micro {
    name: "avx512 vnni",
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
    interleave: Some(super::avx512_bf16::interleave),
    round: Some(super::avx512::round),
    fixed: Some(Fixed { row, panel }),
};

/// Sums of squares between these have lost nothing to f32's range.
const SQUARES: (f32, f32) = (1e-24, 3e38);
/// # Safety
/// The machine has AVX-512 with VNNI; the operands are as [`Tile`] says, with units, and nobody else touches C.
unsafe fn tile(t: &Tile) {
    // SAFETY: as the caller promises.
    unsafe { by_size!(rows, t, 1 2 3 4 5 6 7 8 9 10 11 12) }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn rows<const R: usize, const V: usize>(t: &Tile) {
    let mut sums = [[_mm512_setzero_si512(); V]; R];
    if t.accumulate {
        // C comes from L2 or farther, and would be waited for at the end.
        for i in 0..R * V {
            _mm_prefetch::<_MM_HINT_T0>(t.c.wrapping_add(i / V * t.c_stride + i % V * LANES).cast());
        }
    }
    let (mut a, mut b) = (t.a.cast::<i32>(), t.b);
    for _ in 0..t.words {
        // SAFETY: panels have `words` rows of `columns` words, A has `words` columns.
        unsafe {
            let mut panel = [_mm512_setzero_si512(); V];
            for (v, panel) in panel.iter_mut().enumerate() {
                *panel = _mm512_loadu_si512(b.add(v * LANES).cast());
            }
            for (r, sums) in sums.iter_mut().enumerate() {
                let a = _mm512_set1_epi32(*a.add(r * t.a_stride));
                for (sum, panel) in sums.iter_mut().zip(panel) {
                    *sum = add_products(*sum, a, panel);
                }
            }
            (a, b) = (a.add(1), b.add(V * LANES));
        }
    }
    // SAFETY: there is a unit for each row and column; C has `rows` rows of `columns`, and is ours.
    unsafe {
        let units: [__m512; V] = std::array::from_fn(|v| _mm512_loadu_ps(t.units.1.add(v * LANES)));
        for (r, sums) in sums.iter().enumerate() {
            let unit = _mm512_set1_ps(*t.units.0.add(r));
            for (v, sum) in sums.iter().enumerate() {
                let c = t.c.add(r * t.c_stride + v * LANES);
                let sum = _mm512_mul_ps(_mm512_cvtepi32_ps(*sum), unit);
                let sum = if t.accumulate { _mm512_fmadd_ps(sum, units[v], _mm512_loadu_ps(c)) } else { _mm512_mul_ps(sum, units[v]) };
                _mm512_storeu_ps(c, sum);
            }
        }
    }
}

/// sum + a.low · b.low + a.high · b.high, word by word. In assembly, since LLVM makes a multiplication and an addition of the intrinsic
/// where sums are many, which takes twice as long.
#[target_feature(enable = "avx512f,avx512vnni")]
#[inline]
fn add_products(mut sum: __m512i, a: __m512i, b: __m512i) -> __m512i {
    // SAFETY: the function's features include the instruction, which touches registers only.
    unsafe {
        asm!("vpdpwssd {0}, {1}, {2}", inout(zmm_reg) sum, in(zmm_reg) a, in(zmm_reg) b, options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Both numbers of each word, as floats.
#[target_feature(enable = "avx512f")]
#[inline]
fn numbers(words: __m512i) -> [__m512; 2] {
    let high = _mm512_and_si512(words, _mm512_set1_epi32(0xffff_0000u32 as i32));
    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(words)), _mm512_castsi512_ps(high)]
}

/// Words of the integers nearest to `scale` times the numbers.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn integers(words: __m512i, scale: __m512) -> __m512i {
    let [low, high] = numbers(words).map(|n| _mm512_cvtps_epi32(_mm512_mul_ps(n, scale)));
    _mm512_mask_blend_epi16(0xaaaa_aaaa, low, _mm512_slli_epi32::<16>(high))
}

/// The units for these sums of squares; where they are out of range, for the largest magnitudes of `count` words.
#[target_feature(enable = "avx512f")]
#[inline]
fn units(squares: __m512, largest: impl Fn() -> __m512, count: usize) -> __m512 {
    let low = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(squares, _mm512_set1_ps(SQUARES.0));
    let fine = low & _mm512_cmp_ps_mask::<_CMP_LE_OQ>(squares, _mm512_set1_ps(SQUARES.1));
    let mut norms = _mm512_mul_ps(_mm512_sqrt_ps(squares), _mm512_set1_ps(1.0 / NORM));
    if fine != !0 {
        // ‖x‖ ≤ max |x| · √n
        let bound = _mm512_mul_ps(largest(), _mm512_set1_ps((2.0 * count as f32).sqrt() / NORM));
        norms = _mm512_mask_mov_ps(bound, fine, norms);
    }
    // The second operand is what a NaN passes through.
    let bits = _mm512_castps_si512(_mm512_max_ps(_mm512_set1_ps(LEAST_UNIT), norms));
    // Up to the next power of two.
    let power = _mm512_and_si512(_mm512_add_epi32(bits, _mm512_set1_epi32(0x007f_ffff)), _mm512_set1_epi32(0x7f80_0000));
    let finite = _mm512_cmp_ps_mask::<_CMP_LT_OQ>(norms, _mm512_set1_ps(f32::INFINITY));
    _mm512_mask_mov_ps(_mm512_set1_ps(f32::NAN), finite, _mm512_castsi512_ps(power))
}

/// The larger magnitude of each word's numbers and `most`, as bits: those of a NaN are beyond those of infinity.
#[target_feature(enable = "avx512f")]
#[inline]
fn larger(most: __m512i, words: __m512i) -> __m512i {
    let magnitude = _mm512_set1_epi32(0x7fff_ffff);
    let [low, high] = numbers(words).map(|n| _mm512_and_si512(_mm512_castps_si512(n), magnitude));
    _mm512_max_epu32(most, _mm512_max_epu32(low, high))
}

/// # Safety
/// The machine has AVX-512 BW; there are `count` words.
unsafe fn row(words: *mut u32, count: usize) -> f32 {
    // SAFETY: as the caller promises.
    unsafe { fix_row(words, count) }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn fix_row(words: *mut u32, count: usize) -> f32 {
    let mask = |at: usize| ((1u32 << (count - at).min(LANES)) - 1) as u16;
    // SAFETY: masks leave out what does not exist.
    let load = |at: usize| unsafe { _mm512_maskz_loadu_epi32(mask(at), words.add(at).cast()) };
    let mut squares = [_mm512_setzero_ps(); 2];
    for at in (0..count).step_by(LANES) {
        let n = numbers(load(at));
        squares = std::array::from_fn(|i| _mm512_fmadd_ps(n[i], n[i], squares[i]));
    }
    let squares = _mm512_reduce_add_ps(_mm512_add_ps(squares[0], squares[1]));
    let largest = || {
        let mut most = _mm512_setzero_si512();
        for at in (0..count).step_by(LANES) {
            most = larger(most, load(at));
        }
        _mm512_set1_ps(f32::from_bits(_mm512_reduce_max_epu32(most)))
    };
    let unit = _mm512_cvtss_f32(units(_mm512_set1_ps(squares), largest, count));
    let scale = _mm512_set1_ps(1.0 / unit);
    for at in (0..count).step_by(LANES) {
        // SAFETY: as above.
        unsafe { _mm512_mask_storeu_epi32(words.add(at).cast(), mask(at), integers(load(at), scale)) };
    }
    unit
}

/// # Safety
/// The machine has AVX-512 BW; the panel has `words` rows of `width` words, and there is room for `width` units.
unsafe fn panel(panel: *mut u32, words: usize, width: usize, into: *mut f32) {
    // SAFETY: as the caller promises.
    unsafe {
        match width / LANES {
            1 => fix_panel::<1>(panel, words, into),
            _ => fix_panel::<2>(panel, words, into),
        }
    }
}

#[target_feature(enable = "avx512f,avx512bw")]
unsafe fn fix_panel<const V: usize>(panel: *mut u32, words: usize, into: *mut f32) {
    // SAFETY: the panel has these words.
    let load = |w: usize, v: usize| unsafe { _mm512_loadu_si512(panel.add((w * V + v) * LANES).cast()) };
    let mut squares = [[_mm512_setzero_ps(); 2]; V];
    for w in 0..words {
        for (v, squares) in squares.iter_mut().enumerate() {
            let n = numbers(load(w, v));
            *squares = std::array::from_fn(|i| _mm512_fmadd_ps(n[i], n[i], squares[i]));
        }
    }
    let mut scales = [_mm512_setzero_ps(); V];
    for v in 0..V {
        let largest = || _mm512_castsi512_ps((0..words).fold(_mm512_setzero_si512(), |most, w| larger(most, load(w, v))));
        let unit = units(_mm512_add_ps(squares[v][0], squares[v][1]), largest, words);
        scales[v] = _mm512_div_ps(_mm512_set1_ps(1.0), unit);
        // SAFETY: there is room for a unit a column.
        unsafe { _mm512_storeu_ps(into.add(v * LANES), unit) };
    }
    for w in 0..words {
        for (v, scale) in scales.iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(panel.add((w * V + v) * LANES).cast(), integers(load(w, v), *scale)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::isa::Isa;
    use half::bf16;

    /// The row's unit, and its numbers as integers.
    fn fixed(numbers: &[f32]) -> Option<(f32, Vec<i16>)> {
        if !Isa::available().contains(&Isa::Avx512Vnni) {
            return None;
        }
        let mut row: Vec<bf16> = numbers.iter().map(|n| bf16::from_f32(*n)).collect();
        // SAFETY: the machine has VNNI; two bf16 are a word.
        let unit = unsafe { super::row(row.as_mut_ptr().cast(), numbers.len() / 2) };
        Some((unit, row.iter().map(|n| n.to_bits() as i16).collect()))
    }

    #[test]
    fn units_keep_what_bf16_holds_and_bound_the_norm() {
        for (spread, last) in [(1.0f32, 1.0f32), (1e-30, 1e-30), (1e30, 1e30), (1.0, 1000.0), (3e37, 3e38), (0.0, 0.0)] {
            let mut numbers: Vec<f32> = (0..446).map(|i| bf16::from_f32(((i * 37 % 101) as f32 / 50.0 - 1.0) * spread).to_f32()).collect();
            numbers[445] = bf16::from_f32(last).to_f32();
            let Some((unit, integers)) = fixed(&numbers) else { return };
            let norm: f64 = integers.iter().map(|i| f64::from(*i).powi(2)).sum::<f64>().sqrt();
            assert!(norm <= 32_768.0, "norm {norm} for spread {spread}");
            assert!(spread == 0.0 || norm > 1000.0, "norm {norm} for spread {spread} wastes bits");
            for (n, i) in numbers.iter().zip(&integers) {
                let error = (f64::from(*n) / f64::from(unit) - f64::from(*i)).abs();
                assert!(error <= 0.5, "{n} became {i} units of {unit}");
                assert!(i.unsigned_abs() < 128 || error == 0.0, "{n} is not exact at {i}");
            }
        }
    }

    #[test]
    fn a_row_with_an_infinity_or_a_nan_has_no_unit() {
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
            let mut numbers = vec![1.0; 40];
            numbers[37] = bad;
            let Some((unit, _)) = fixed(&numbers) else { return };
            assert!(unit.is_nan(), "{bad}");
        }
    }
}
