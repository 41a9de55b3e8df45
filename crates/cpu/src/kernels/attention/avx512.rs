//! The element-wise parts of attention in AVX-512: exponentials cost as much as the products around them when heads are narrow.
//!
//! e^x = 2^(x · log₂ e) by range reduction to |f| ≤ ½, a polynomial in f, and `vscalefps` for the power.

use super::super::matmul::micro::LANES;
use super::backward::Slopes;
use super::forward::Softmax;
use std::arch::x86_64::*;
use std::f32::consts::LOG2_E;
use std::mem::transmute;

/// 2ᵗ. Relative error 3e-6, which bf16 can't see, or 2e-7 if `FINE`. NaN stays NaN; below −1000 it is 0.
#[target_feature(enable = "avx512f")]
#[inline]
fn power<const FINE: bool>(t: __m512) -> __m512 {
    // The second operand is what a NaN passes through.
    let t = _mm512_max_ps(_mm512_set1_ps(-1000.0), t);
    let whole = _mm512_roundscale_ps::<0>(t);
    let f = _mm512_sub_ps(t, whole);
    let step = |p, c: f32| _mm512_fmadd_ps(p, f, _mm512_set1_ps(c));
    let p = if FINE {
        let p = step(_mm512_set1_ps(1.535_335_3e-4), 1.339_887_5e-3);
        step(step(step(step(p, 9.618_437e-3), 5.550_332_5e-2), 2.402_264_8e-1), 6.931_472e-1)
    } else {
        step(step(step(_mm512_set1_ps(9.582_843e-3), 5.590_642_5e-2), 2.402_409_9e-1), 6.931_242e-1)
    };
    let p = step(p, 1.0);
    _mm512_scalef_ps(p, whole)
}

/// As the plain version says, but with maxima in units of ln 2; P in bf16 if `NARROW`, else f32.
///
/// # Safety
/// The machine has AVX-512, with bf16 if `NARROW`; P has the strip's rows.
pub unsafe fn softmax<const NARROW: bool>(strip: Softmax, p: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe { if NARROW { softmax_narrow(strip, p) } else { softmax_wide(strip, p) } }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn softmax_narrow(strip: Softmax, p: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe {
        softmax_rows::<false>(strip, |at, e| {
            _mm256_storeu_si256(p.cast::<u16>().add(at).cast(), transmute::<__m256bh, __m256i>(_mm512_cvtneps_pbh(e)));
        });
    }
}

#[target_feature(enable = "avx512f")]
unsafe fn softmax_wide(strip: Softmax, p: *mut u32) {
    // SAFETY: as the caller promises.
    unsafe { softmax_rows::<true>(strip, |at, e| _mm512_storeu_ps(p.cast::<f32>().add(at), e)) }
}

#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn softmax_rows<const FINE: bool>(strip: Softmax, store: impl Fn(usize, __m512)) {
    let padded = strip.keys.next_multiple_of(LANES);
    let scale = _mm512_set1_ps(strip.scale * LOG2_E);
    for r in 0..strip.rows {
        let seen = (strip.seen + r as isize).clamp(0, strip.keys as isize) as usize;
        let scores = &strip.scores[r * strip.stride..r * strip.stride + padded];
        let mask = |c: usize| ((1u32 << seen.saturating_sub(c).min(LANES)) - 1) as u16;
        // SAFETY: chunks lie within the row.
        let load = |c: usize| unsafe { _mm512_loadu_ps(scores.as_ptr().add(c)) };
        let nothing = _mm512_set1_ps(f32::NEG_INFINITY);
        let mut most = nothing;
        for c in (0..seen).step_by(LANES) {
            let t = _mm512_mul_ps(load(c), scale);
            most = _mm512_mask_max_ps(most, mask(c), t, most);
        }
        let before = strip.most[r];
        let now = _mm512_reduce_max_ps(most);
        let now = if now > before { now } else { before };
        // A row of −∞ only: any finite reference will do.
        let reference = if now == f32::NEG_INFINITY { 0.0 } else { now };
        let shift = _mm512_set1_ps(reference);
        let mut sums = _mm512_setzero_ps();
        for c in (0..padded).step_by(LANES) {
            let e = power::<FINE>(_mm512_fmsub_ps(load(c), scale, shift));
            let e = _mm512_maskz_mov_ps(mask(c), e);
            sums = _mm512_add_ps(sums, e);
            store(r * strip.stride + c, e);
        }
        let factor = if before == now { 1.0 } else { (before - reference).exp2() };
        strip.most[r] = now;
        strip.sum[r] = strip.sum[r] * factor + _mm512_reduce_add_ps(sums);
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
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
        let row = |r: usize| {
            let blind = (strip.blind + r as isize - c as isize).clamp(0, LANES as isize);
            let mask = (0xffffu32 << blind) as u16;
            let from = r * strip.stride + c;
            // SAFETY: the strip has this row.
            let (score, slope) =
                unsafe { (_mm512_loadu_ps(strip.scores[from..].as_ptr()), _mm512_loadu_ps(strip.slopes[from..].as_ptr())) };
            let e = power::<false>(_mm512_fmsub_ps(score, scale_log, lse));
            let e = _mm512_maskz_mov_ps(mask, e);
            (e, _mm512_maskz_mul_ps(mask, _mm512_mul_ps(e, scale), _mm512_sub_ps(slope, delta)))
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
