//! The element-wise parts of attention in AVX-512: exponentials cost as much as the products around them when heads are narrow.
//!
//! e^x = 2^(x · log₂ e) = 2^⌊t⌋ · 2^(t − ⌊t⌋): `vreduceps` leaves the fraction, a polynomial (least maximal relative error on [0, 1), exact
//! at 0) takes its power, and `vscalefps` adds the whole to the exponent.

use super::super::matmul::fixed::unit;
use super::super::matmul::micro::LANES;
use super::backward::Slopes;
use super::forward::Softmax;
use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;
use std::mem::transmute;

/// 2ᵗ. Relative error 3e-6, which bf16 can't see, or 2e-7 if `FINE`. NaN stays NaN, −∞ becomes 0.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn power<const FINE: bool>(t: __m512) -> __m512 {
    /// Round down, quietly, to whole numbers.
    const DOWN: i32 = 0b1001;
    let f = _mm512_reduce_ps::<DOWN>(t);
    let step = |p, c: f32| _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
    let p = if FINE {
        let p = step(_mm512_set1_ps(1.867_130_2e-3), 9.017_03e-3);
        step(step(step(p, 5.579_991_3e-2), 2.401_644_5e-1), 6.931_513e-1)
    } else {
        step(step(step(_mm512_set1_ps(1.342_668_5e-2), 5.224_247e-2), 2.412_802e-1), 6.930_448_4e-1)
    };
    _mm512_scalef_ps(step(p, 1.0), t)
}

/// As the plain version says, but with maxima in units of ln 2; P in bf16 if `NARROW`, else f32.
///
/// # Safety
/// The machine has AVX-512, with bf16 if `NARROW`; P has the strip's rows.
pub unsafe fn softmax<const NARROW: bool>(strip: Softmax, p: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe { if NARROW { softmax_narrow(strip, p) } else { softmax_wide(strip, p) } }
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
unsafe fn softmax_narrow(strip: Softmax, p: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe {
        let store = |at, e| {
            _mm256_storeu_si256(p.cast::<u16>().add(at).cast(), transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(e)));
        };
        softmax_rows::<false>(strip, store, |_, _| ());
    }
}

#[target_feature(enable = "avx512f,avx512dq")]
unsafe fn softmax_wide(strip: Softmax, p: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe { softmax_rows::<true>(strip, |at, e| _mm512_storeu_ps(p.cast::<f32>().add(at), e), |_, _| ()) }
}

/// The same with P in fixed point, and the units of its rows.
///
/// # Safety
/// The machine has AVX-512; P and the units have the strip's rows.
#[target_feature(enable = "avx512f,avx512dq")]
pub unsafe fn softmax_fixed(strip: Softmax, p: *mut i16, units: &mut [f32]) {
    let (stride, padded) = (strip.stride, strip.padded);
    let floats = strip.scores.as_mut_ptr();
    // SAFETY: as the caller promises; P in floats takes the place of the scores.
    unsafe {
        let store = |at, e| _mm512_storeu_ps(floats.add(at), e);
        softmax_rows::<false>(strip, store, |r, sum| {
            // No element is beyond 1, so ‖p‖² ≤ Σ p.
            units[r] = unit(sum.sqrt());
            let scale = _mm512_set1_ps(1.0 / units[r]);
            for at in (r * stride..r * stride + padded).step_by(LANES) {
                let whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(floats.add(at)), scale));
                _mm256_storeu_si256(p.add(at).cast(), _mm512_cvtepi32_epi16(whole));
            }
        });
    }
}

#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn softmax_rows<const FINE: bool>(strip: Softmax, store: impl Fn(usize, __m512), mut row_done: impl FnMut(usize, f32)) {
    let padded = strip.padded;
    let scale = _mm512_set1_ps(strip.scale * LOG2_E);
    for r in 0..strip.rows {
        let seen = (strip.seen + r as isize).clamp(0, strip.keys as isize) as usize;
        // `store` may write to where scores were read.
        let scores = strip.scores.as_ptr().wrapping_add(r * strip.stride);
        let (whole, rest) = (seen / LANES * LANES, ((1u32 << (seen % LANES)) - 1) as u16);
        // SAFETY: chunks lie within the row.
        let scaled = |c: usize| unsafe { _mm512_mul_ps(_mm512_loadu_ps(scores.add(c)), scale) };
        let mut most = _mm512_set1_ps(f32::NEG_INFINITY);
        for c in (0..whole).step_by(LANES) {
            most = _mm512_max_ps(scaled(c), most);
        }
        if rest > 0 {
            most = _mm512_mask_max_ps(most, rest, scaled(whole), most);
        }
        let before = strip.most[r];
        let now = _mm512_reduce_max_ps(most);
        let now = if now > before { now } else { before };
        // A row of −∞ only: any finite reference will do.
        let reference = if now == f32::NEG_INFINITY { 0.0 } else { now };
        let shift = _mm512_set1_ps(reference);
        // SAFETY: as above.
        let power = |c: usize| power::<FINE>(_mm512_fmsub_ps(unsafe { _mm512_loadu_ps(scores.add(c)) }, scale, shift));
        let mut sums = _mm512_setzero_ps();
        for c in (0..whole).step_by(LANES) {
            let e = power(c);
            sums = _mm512_add_ps(sums, e);
            store(r * strip.stride + c, e);
        }
        if whole < padded {
            let e = if rest > 0 { _mm512_maskz_mov_ps(rest, power(whole)) } else { _mm512_setzero_ps() };
            sums = _mm512_add_ps(sums, e);
            store(r * strip.stride + whole, e);
        }
        for c in (whole + LANES..padded).step_by(LANES) {
            store(r * strip.stride + c, _mm512_setzero_ps());
        }
        let factor = if before == now { 1.0 } else { (before - reference).exp2() };
        strip.most[r] = now;
        let sum = _mm512_reduce_add_ps(sums);
        row_done(r, sum);
        strip.sum[r] = strip.sum[r] * factor + sum;
        if factor != 1.0 && before != f32::NEG_INFINITY {
            let factor = _mm512_set1_ps(factor);
            for o in strip.o[r * strip.wide..(r + 1) * strip.wide].chunks_exact_mut(LANES) {
                // SAFETY: a chunk has 16 floats.
                unsafe { _mm512_storeu_ps(o.as_mut_ptr(), _mm512_mul_ps(_mm512_loadu_ps(o.as_ptr()), factor)) };
            }
        }
    }
}

/// Pᵀ and ∂Sᵀ in bf16, and the panels of ∂Sᵀ too.
///
/// # Safety
/// The machine has AVX-512 with bf16. P and ∂S have the strip's rows, `panels` its pairs of rows; the strip begins at an even row.
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")]
pub unsafe fn slopes(strip: Slopes, p: *mut u16, ds: *mut u16, panels: *mut u32) {
    let padded = strip.queries.next_multiple_of(LANES);
    let units = _mm512_set1_ps(LOG2_E);
    let (scale, scale_log) = (_mm512_set1_ps(strip.scale), _mm512_set1_ps(strip.scale * LOG2_E));
    // (0, 16, 1, 17, …): pairs of the two rows.
    let order: [u16; 32] = std::array::from_fn(|i| (i / 2 + i % 2 * 16) as u16);
    // SAFETY: an array of 32 words of 16 bits.
    let order = unsafe { _mm512_loadu_si512(order.as_ptr().cast()) };
    for c in (0..padded).step_by(LANES) {
        // SAFETY: L and δ have whole blocks.
        let (lse, delta) = unsafe { (_mm512_loadu_ps(strip.lse[c..].as_ptr()), _mm512_loadu_ps(strip.delta[c..].as_ptr())) };
        let lse = _mm512_mul_ps(lse, units);
        let slope_shift = _mm512_mul_ps(delta, scale);
        let row = |r: usize| {
            let from = r * strip.stride + c;
            // SAFETY: the strip has this row.
            let (score, slope) =
                unsafe { (_mm512_loadu_ps(strip.scores[from..].as_ptr()), _mm512_loadu_ps(strip.slopes[from..].as_ptr())) };
            let e = power::<false>(_mm512_fmsub_ps(score, scale_log, lse));
            let factor = _mm512_fmsub_ps(slope, scale, slope_shift);
            let blind = strip.blind + r as isize - c as isize;
            if blind <= 0 {
                return (e, _mm512_mul_ps(e, factor));
            }
            let mask = (0xffffu32 << blind.min(LANES as isize)) as u16;
            let e = _mm512_maskz_mov_ps(mask, e);
            (e, _mm512_maskz_mul_ps(mask, e, factor))
        };
        // Column c of a panel of 32 columns.
        let (panel, column) = (c / (2 * LANES) * (2 * LANES), c % (2 * LANES));
        let width = (padded - panel).min(2 * LANES);
        for r in (0..strip.rows.1).step_by(2) {
            let two = r + 1 < strip.rows.1;
            let (first, second) = (row(r), if two { row(r + 1) } else { (_mm512_setzero_ps(), _mm512_setzero_ps()) });
            let at = (strip.rows.0 + r) * strip.stride + c;
            // SAFETY: as the caller promises.
            unsafe {
                let bits = |high, low| transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                let (e, d) = (bits(second.0, first.0), bits(second.1, first.1));
                _mm256_storeu_si256(p.add(at).cast(), _mm512_castsi512_si256(e));
                _mm256_storeu_si256(ds.add(at).cast(), _mm512_castsi512_si256(d));
                if two {
                    _mm256_storeu_si256(p.add(at + strip.stride).cast(), _mm512_extracti64x4_epi64::<1>(e));
                    _mm256_storeu_si256(ds.add(at + strip.stride).cast(), _mm512_extracti64x4_epi64::<1>(d));
                }
                let word = panel * strip.words + (strip.rows.0 + r) / 2 * width + column;
                _mm512_storeu_si512(panels.add(word).cast(), _mm512_permutexvar_epi16(order, d));
            }
        }
    }
    for r in strip.rows.0..strip.rows.0 + strip.rows.1 {
        let (from, beyond) = (r * strip.stride + padded, strip.filled - padded);
        // SAFETY: rows have `filled` elements.
        unsafe { [p, ds].into_iter().for_each(|to| to.add(from).write_bytes(0, beyond)) };
    }
}

/// The same in fixed point: Pᵀ and ∂Sᵀ with the units of their rows; the panels take ∂Sᵀ with the same units.
///
/// # Safety
/// As [`slopes`]; there are units for the strip's rows.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
pub unsafe fn slopes_fixed(strip: Slopes, [p, ds]: [*mut i16; 2], panels: *mut u32, [p_units, ds_units]: [&mut [f32]; 2]) {
    let padded = strip.queries.next_multiple_of(LANES);
    for r in 0..strip.rows.1 {
        let row = strip.rows.0 + r;
        let from = r * strip.stride;
        // SAFETY: the strip has this row.
        unsafe {
            let floats = [strip.scores[from..].as_mut_ptr(), strip.slopes[from..].as_mut_ptr()];
            [p_units[row], ds_units[row]] = slope_row(&strip, strip.blind + r as isize, floats);
            let scale = _mm512_set1_ps(1.0 / p_units[row]);
            for c in (0..padded).step_by(LANES) {
                let whole = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(floats[0].add(c)), scale));
                _mm256_storeu_si256(p.add(row * strip.stride + c).cast(), _mm512_cvtepi32_epi16(whole));
            }
        }
    }
    for r in (0..strip.rows.1).step_by(2) {
        // SAFETY: as the caller promises.
        unsafe { slope_pair(&strip, r, ds, panels, ds_units) };
    }
}

/// One row of scores and slopes to P and ∂S in place, and the units for both.
///
/// # Safety
/// The rows have the strip's columns.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
unsafe fn slope_row(strip: &Slopes, blind: isize, [scores, slopes]: [*mut f32; 2]) -> [f32; 2] {
    let padded = strip.queries.next_multiple_of(LANES);
    let units = _mm512_set1_ps(LOG2_E);
    let (scale, scale_log) = (_mm512_set1_ps(strip.scale), _mm512_set1_ps(strip.scale * LOG2_E));
    let (mut sum, mut slope_sum, mut most) = (_mm512_setzero_ps(), _mm512_setzero_ps(), _mm512_setzero_ps());
    for c in (0..padded).step_by(LANES) {
        let mask = (0xffffu32 << (blind - c as isize).clamp(0, LANES as isize)) as u16;
        // SAFETY: rows, L and δ have whole blocks.
        unsafe {
            let lse = _mm512_mul_ps(_mm512_loadu_ps(strip.lse[c..].as_ptr()), units);
            let delta = _mm512_loadu_ps(strip.delta[c..].as_ptr());
            let e = power::<false>(_mm512_fmsub_ps(_mm512_loadu_ps(scores.add(c)), scale_log, lse));
            let e = _mm512_maskz_mov_ps(mask, e);
            let d = _mm512_maskz_mul_ps(mask, _mm512_mul_ps(e, scale), _mm512_sub_ps(_mm512_loadu_ps(slopes.add(c)), delta));
            _mm512_storeu_ps(scores.add(c), e);
            _mm512_storeu_ps(slopes.add(c), d);
            let size = _mm512_abs_ps(d);
            sum = _mm512_add_ps(sum, e);
            slope_sum = _mm512_add_ps(slope_sum, size);
            // The second operand is what a NaN passes through, and the sum has it anyway.
            most = _mm512_max_ps(size, most);
        }
    }
    // Hölder: ‖x‖² ≤ max |x| · Σ |x|. P is at most 1, but for rounding.
    let bound = _mm512_reduce_max_ps(most).sqrt() * _mm512_reduce_add_ps(slope_sum).sqrt();
    [unit(_mm512_reduce_add_ps(sum).sqrt() * 1.01), unit(bound)]
}

/// Two rows of ∂S from floats to integers, as rows and as words of the panels.
///
/// # Safety
/// As [`slopes_fixed`].
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
unsafe fn slope_pair(strip: &Slopes, r: usize, ds: *mut i16, panels: *mut u32, units: &[f32]) {
    let (padded, row) = (strip.queries.next_multiple_of(LANES), strip.rows.0 + r);
    let two = r + 1 < strip.rows.1;
    let scales = [0, 1].map(|i| _mm512_set1_ps(if i == 0 || two { 1.0 / units[row + i] } else { 0.0 }));
    for c in (0..padded).step_by(LANES) {
        let whole = |i: usize| {
            // SAFETY: the strip has these rows.
            let d = unsafe { _mm512_loadu_ps(strip.slopes[(r + i) * strip.stride + c..].as_ptr()) };
            _mm512_cvtps_epi32(_mm512_mul_ps(d, scales[i]))
        };
        let first = whole(0);
        let second = if two { whole(1) } else { _mm512_setzero_si512() };
        let panel = c / (2 * LANES) * (2 * LANES);
        let width = (padded - panel).min(2 * LANES);
        let word = panel * strip.words + row / 2 * width + c % (2 * LANES);
        // SAFETY: as the caller promises.
        unsafe {
            _mm256_storeu_si256(ds.add(row * strip.stride + c).cast(), _mm512_cvtepi32_epi16(first));
            if two {
                _mm256_storeu_si256(ds.add((row + 1) * strip.stride + c).cast(), _mm512_cvtepi32_epi16(second));
            }
            let words = _mm512_mask_blend_epi16(0xaaaa_aaaa, first, _mm512_slli_epi32::<16>(second));
            _mm512_storeu_si512(panels.add(word).cast(), words);
        }
    }
}

/// Rows of Kᵀ times the units of ∂Sᵀ, in fixed point: `into` has a row of words for each of `units`. What they meet are integers of up to
/// 2¹⁵ each, in any pattern, so these keep a norm smaller by the square root of their number.
///
/// # Safety
/// The machine has AVX-512; `from` has `units.len()` rows of whole vectors, `into` as many rows of words for `keys`.
#[target_feature(enable = "avx512f,avx512bw,avx512dq")]
pub unsafe fn scale_rows((from, stride): (&mut [f32], usize), keys: usize, by: &[f32], (into, row): (*mut u32, usize), units: &mut [f32]) {
    let spread = (keys as f32).sqrt();
    for (c, to) in units.iter_mut().enumerate() {
        let line = from[c * stride..].as_ptr();
        let chunk = |at: usize| {
            let mask = ((1u32 << (keys - at).min(LANES)) - 1) as u16;
            // SAFETY: masks leave out what does not exist.
            unsafe { _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, line.add(at)), _mm512_maskz_loadu_ps(mask, by[at..].as_ptr())) }
        };
        let (mut most, mut sum) = (_mm512_setzero_ps(), _mm512_setzero_ps());
        for at in (0..keys).step_by(LANES) {
            let size = _mm512_abs_ps(chunk(at));
            (most, sum) = (_mm512_max_ps(size, most), _mm512_add_ps(sum, size));
        }
        *to = unit(_mm512_reduce_max_ps(most).sqrt() * _mm512_reduce_add_ps(sum).sqrt() * spread);
        let scale = _mm512_set1_ps(1.0 / *to);
        for at in (0..keys).step_by(LANES) {
            let whole = _mm512_cvtps_epi32(_mm512_mul_ps(chunk(at), scale));
            // SAFETY: rows of `into` have whole cache lines.
            unsafe { _mm256_storeu_si256(into.add(c * row).cast::<i16>().add(at).cast(), _mm512_cvtepi32_epi16(whole)) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn powers_are_as_exact_as_they_say_and_keep_special_values() {
        if !Isa::available().contains(&Isa::Avx512) {
            return;
        }
        let run = |fine: bool, t: f32| -> f32 {
            // SAFETY: the machine has AVX-512, and the register is 16 plain floats.
            unsafe {
                let t = _mm512_set1_ps(t);
                let e = if fine { power::<true>(t) } else { power::<false>(t) };
                transmute::<__m512, [f32; 16]>(e)[3]
            }
        };
        for i in -120_000..=1000 {
            let t = i as f32 / 1000.0;
            for (fine, most) in [(true, 3e-7), (false, 4e-6)] {
                let error = (f64::from(run(fine, t)) / f64::from(t).exp2() - 1.0).abs();
                assert!(error < most, "2^{t} is off by {error} (fine: {fine})");
            }
        }
        for fine in [true, false] {
            assert_eq!((run(fine, f32::NEG_INFINITY), run(fine, -5000.0), run(fine, 0.0)), (0.0, 0.0, 1.0));
            assert!(run(fine, f32::NAN).is_nan());
        }
    }
}
