//! From scores and ∂P to P and ∂S, strip by strip.

use super::super::super::matmul::micro::LANES;
use crate::element::Element;
use crate::isa::vectorize;
use crate::math::exp;

/// A strip of Sᵀ and ∂Pᵀ on the way to Pᵀ and ∂Sᵀ.
pub struct Slopes<'a> {
    /// Fixed point leaves Pᵀ and ∂Sᵀ here in floats.
    pub scores: &'a mut [f32],
    pub slopes: &'a mut [f32],
    pub stride: usize,
    /// First row in Pᵀ, and their number.
    pub rows: (usize, usize),
    pub queries: usize,
    /// Columns of Pᵀ and ∂Sᵀ that are written: zeros beyond the queries.
    pub filled: usize,
    pub lse: &'a [f32],
    pub delta: &'a [f32],
    pub scale: f32,
    pub blind: isize,
    /// Words of a column of the panels of ∂Sᵀ.
    pub words: usize,
}

vectorize! {
    /// Pᵀ = exp(scale · Sᵀ − L) and ∂Sᵀ = scale · Pᵀ ∘ (∂Pᵀ − δ), rounded.
    pub fn slopes<P: Element>(strip: Slopes, p: *mut P, ds: *mut P) {
        let padded = strip.queries.next_multiple_of(LANES);
        for r in 0..strip.rows.1 {
            let blind = strip.blind + r as isize;
            let from = r * strip.stride;
            let to = (strip.rows.0 + r) * strip.stride;
            for c in (0..padded).step_by(LANES) {
                let scores: &[f32; LANES] = strip.scores[from + c..from + c + LANES].try_into().expect("16 scores");
                let slopes: &[f32; LANES] = strip.slopes[from + c..from + c + LANES].try_into().expect("16 slopes");
                let lse: &[f32; LANES] = strip.lse[c..c + LANES].try_into().expect("whole blocks");
                let delta: &[f32; LANES] = strip.delta[c..c + LANES].try_into().expect("whole blocks");
                // SAFETY: P and ∂S have whole blocks of rows of `stride` elements.
                let (p, ds) = unsafe { (&mut *p.add(to + c).cast::<[P; LANES]>(), &mut *ds.add(to + c).cast::<[P; LANES]>()) };
                for i in 0..LANES {
                    let seen = (c + i) as isize >= blind;
                    let e = exp(scores[i] * strip.scale - lse[i]);
                    p[i] = P::from_f32(if seen { e } else { 0.0 });
                    ds[i] = P::from_f32(if seen { strip.scale * e * (slopes[i] - delta[i]) } else { 0.0 });
                }
            }
        }
    }
}
