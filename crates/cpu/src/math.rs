//! exp, σ, Φ and the non-linearities made of them, in f32, branch-free so that loops vectorise. Relative error below 2e-6.
//!
//! Fused multiply-adds are written out, never left to the compiler: the result is the same on every machine.

/// a·b + c, rounded once.
#[inline(always)]
pub fn fma(a: f32, b: f32, c: f32) -> f32 {
    a.mul_add(b, c)
}

/// eˣ: 2ⁿ·eʳ with |r| ≤ ½ ln 2 and a minimax polynomial for eʳ (error 3e-9). 0 below −87.7, ∞ above 88.4; NaN stays NaN.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0; // 1.5·2²³
    const LN2_HIGH: f32 = 0.693_359_4; // few bits: n·LN2_HIGH is exact
    const LN2_LOW: f32 = -2.121_944_4e-4;
    // At these ends n is −127 and 128, for which the bits below are those of 0 and ∞. Not `clamp`: a NaN must pass.
    let x = if x < -88.0 { -88.0 } else { x };
    let x = if x > 88.8 { 88.8 } else { x };
    let shifted = fma(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x));
    let q = fma(1.381_459_8e-3, r, 8.368_717_5e-3);
    let q = fma(q, r, 4.166_839e-2);
    let q = fma(q, r, 1.666_652_1e-1);
    let q = fma(q, r, 4.999_999_4e-1);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    (fma(q * r, r, r) + 1.0) * power
}

/// σ(x) = 1 / (1 + e⁻ˣ)
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// x·σ(x)
#[inline(always)]
pub fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// d/dx of x·σ(kx) = σ(kx)·(1 + kx·(1 − σ(kx)))
#[inline(always)]
pub fn swish_slope(k: f32, x: f32) -> f32 {
    let (s, kx) = (sigmoid(k * x), k * x);
    s * fma(kx, 1.0 - s, 1.0)
}

/// Φ(x), the normal distribution function, and its density φ(x) = e^(−x²/2)/√2π.
///
/// Φ(−a) = e^(−a²/2)·t·P(t) with t = 1/(1 + 0.35a): P is a minimax fit of degree 8 over 0 ≤ a ≤ 14 (error 3e-8, in f32 3e-7).
#[inline(always)]
pub fn normal(x: f32) -> (f32, f32) {
    let a = x.abs();
    let t = 1.0 / fma(0.35, a, 1.0);
    let p = fma(-0.029_145_049, t, 0.143_967_57);
    let p = fma(p, t, -0.255_706);
    let p = fma(p, t, 0.159_165);
    let p = fma(p, t, -0.023_103_641);
    let p = fma(p, t, 0.105_505_414);
    let p = fma(p, t, 0.119_833_52);
    let p = fma(p, t, 0.139_861_78);
    let p = fma(p, t, 0.139_621_4);
    let e = exp(-0.5 * x * x);
    let tail = e * t * p;
    (if x < 0.0 { tail } else { 1.0 - tail }, e * 0.398_942_3)
}

/// x·Φ(x)
#[inline(always)]
pub fn gelu(x: f32) -> f32 {
    x * normal(x).0
}

/// Φ(x) + x·φ(x)
#[inline(always)]
pub fn gelu_slope(x: f32) -> f32 {
    let (cdf, density) = normal(x);
    fma(x, density, cdf)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graph::ops::ActivationKind;

    fn worst(from: f32, to: f32, error: impl Fn(f32) -> f64) -> f64 {
        (0..=200_000).map(|i| error(from + (to - from) * i as f32 / 200_000.0)).fold(0.0, f64::max)
    }

    #[test]
    fn exp_is_within_two_millionths() {
        let error = worst(-87.2, 88.2, |x| (f64::from(exp(x)) / f64::from(x).exp() - 1.0).abs());
        assert!(error < 5e-7, "{error}");
        assert_eq!((exp(-200.0), exp(200.0), exp(f32::NEG_INFINITY)), (0.0, f32::INFINITY, 0.0));
        assert!(exp(f32::NAN).is_nan() && normal(f32::NAN).0.is_nan() && silu(f32::NAN).is_nan());
    }

    #[test]
    fn huge_numbers_give_their_limits() {
        for x in [100.0f32, 1e4, 1e19, 1e38] {
            assert_eq!((silu(x), gelu(x), swish_slope(1.702, x), gelu_slope(x)), (x, x, 1.0, 1.0), "at {x}");
            assert_eq!((silu(-x), gelu(-x), swish_slope(1.702, -x), gelu_slope(-x)), (0.0, 0.0, 0.0, 0.0), "at -{x}");
        }
    }

    #[test]
    fn nonlinearities_are_within_two_millionths() {
        let relative = |value: f32, want: f32| (f64::from(value) / f64::from(want) - 1.0).abs();
        for (x, y) in [(1e-3f32, 80.0f32), (-80.0, -1e-3)] {
            let error = worst(x, y, |x| relative(silu(x), ActivationKind::Silu.value(x)));
            assert!(error < 2e-6, "silu {error}");
        }
        for (x, y) in [(1e-3f32, 12.0f32), (-5.0, -1e-3)] {
            let error = worst(x, y, |x| relative(gelu(x), ActivationKind::Gelu.value(x)));
            assert!(error < 2e-6, "gelu {error}");
        }
        for kind in [ActivationKind::Silu, ActivationKind::Gelu, ActivationKind::QuickGelu] {
            let slope = |x| match kind {
                ActivationKind::Silu => swish_slope(1.0, x),
                ActivationKind::Gelu => gelu_slope(x),
                ActivationKind::QuickGelu => swish_slope(1.702, x),
            };
            // The slopes cross zero, so here the error is absolute.
            let error = worst(-30.0, 30.0, |x| (f64::from(slope(x)) - f64::from(kind.slope(x))).abs());
            assert!(error < 2e-6, "{kind:?} slope {error}");
        }
    }
}
