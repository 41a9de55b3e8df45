//! Group normalisation (Wu & He, 2018), optionally followed by SiLU: z = γ (x − μ)·ρ + β with μ, ρ = 1/√(variance + ε) over a group's
//! channels and all pixels of one batch item; y = z or z·σ(z).

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Inputs: x [B, ..., C], γ [C], β [C]. Outputs: y, and statistics [B, groups, 2] f32 holding (μ, ρ).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNorm {
    pub groups: usize,
    pub eps: f32,
    pub silu: bool,
}

/// Inputs: ∂y, x, γ, β, statistics. Output: ∂x.
///
/// With x̂ = (x − μ)ρ, g = γ ∂z (∂z = ∂y · silu'(z) if SiLU follows) and means over the group: ∂x = ρ (g − mean(g) − x̂ mean(g x̂)).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupNormGrad {
    pub groups: usize,
    pub silu: bool,
}

const SILU: ActivationKind = ActivationKind::Silu;

/// The element indices of group `g` of batch item `b`.
fn members(x: &Array, groups: usize, b: usize, g: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
    let (tokens, c) = (x.shape.tokens(), x.shape.channels());
    let width = c / groups;
    (b * tokens..(b + 1) * tokens).flat_map(move |row| (g * width..(g + 1) * width).map(move |channel| (row * c + channel, channel)))
}

/// Mean and 1/√(variance + eps) of values.
pub(super) fn moments(values: impl Iterator<Item = f32> + Clone, eps: f32) -> (f32, f32) {
    let n = values.clone().count() as f64;
    let mean = values.clone().map(f64::from).sum::<f64>() / n;
    let variance = values.map(|v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
    (mean as f32, (1.0 / (variance + f64::from(eps)).sqrt()) as f32)
}

impl Rule for GroupNorm {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let x = inputs[0];
        let c = x.shape.channels();
        assert!(c.is_multiple_of(self.groups), "group_norm: {c} channels don't divide into {} groups", self.groups);
        assert_eq!((inputs[1].shape.elements(), inputs[2].shape.elements()), (c, c), "group_norm: γ, β don't fit x {}", x.shape);
        vec![x.clone(), Meta::new([x.shape.batch(), self.groups, 2], DType::F32)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (x, gamma, beta) = (inputs[0], inputs[1], inputs[2]);
        let mut y = x.clone();
        let mut statistics = Array::zeros([x.shape.batch(), self.groups, 2]);
        for (b, g) in (0..x.shape.batch()).flat_map(|b| (0..self.groups).map(move |g| (b, g))) {
            let (mean, rstd) = moments(members(x, self.groups, b, g).map(|(i, _)| x.data[i]).collect::<Vec<_>>().into_iter(), self.eps);
            statistics.row_mut(b * self.groups + g).copy_from_slice(&[mean, rstd]);
            for (i, c) in members(x, self.groups, b, g) {
                let z = gamma.data[c] * (x.data[i] - mean) * rstd + beta.data[c];
                y.data[i] = if self.silu { SILU.value(z) } else { z };
            }
        }
        vec![y, statistics]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let inputs = [g.upstream(0), g.inputs[0], g.inputs[1], g.inputs[2], g.outputs[1]];
        let dx = g.push(GroupNormGrad { groups: self.groups, silu: self.silu }, &inputs);
        g.set(0, dx[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(12.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |s: [usize; 4], groups, silu| {
            let x = (Meta::new(s, types.activation), Fill::Normal(2.0));
            Case::new(GroupNorm { groups, eps: 1e-5, silu }, vec![x, normal([s[3]], DType::F32), normal([s[3]], DType::F32)])
        };
        vec![case([2, 8, 8, 64], 32, true), case([3, 5, 7, 15], 5, false), case([1, 3, 1, 33], 1, true), case([2, 9, 4, 96], 32, false)]
    }
}

impl Rule for GroupNormGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert_eq!(inputs[0].shape, inputs[1].shape, "group_norm gradient: ∂y does not fit x");
        assert_eq!(inputs[4].shape.elements(), inputs[1].shape.batch() * self.groups * 2, "group_norm gradient: statistics don't fit");
        vec![inputs[1].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (dy, x, gamma, beta, statistics) = (inputs[0], inputs[1], inputs[2], inputs[3], inputs[4]);
        let mut dx = Array::zeros(x.shape.clone());
        for (b, g) in (0..x.shape.batch()).flat_map(|b| (0..self.groups).map(move |g| (b, g))) {
            let &[mean, rstd] = statistics.row(b * self.groups + g) else { unreachable!("two statistics a group") };
            let pair = |i: usize, c: usize| {
                let hat = (x.data[i] - mean) * rstd;
                let slope = if self.silu { SILU.slope(gamma.data[c] * hat + beta.data[c]) } else { 1.0 };
                (hat, gamma.data[c] * dy.data[i] * slope)
            };
            let (mut sum, mut dot, mut n) = (0.0f64, 0.0f64, 0.0f64);
            for (i, c) in members(x, self.groups, b, g) {
                let (hat, grad) = pair(i, c);
                sum += f64::from(grad);
                dot += f64::from(grad * hat);
                n += 1.0;
            }
            for (i, c) in members(x, self.groups, b, g) {
                let (hat, grad) = pair(i, c);
                dx.data[i] = rstd * (grad - (sum / n) as f32 - hat * (dot / n) as f32);
            }
        }
        vec![dx]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(24.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |s: [usize; 4], groups, silu| {
            let statistics = (Meta::new([s[0], groups, 2], DType::F32), Fill::Positive);
            let map = || normal(s, types.activation);
            Case::new(
                GroupNormGrad { groups, silu },
                vec![map(), map(), normal([s[3]], DType::F32), normal([s[3]], DType::F32), statistics],
            )
        };
        vec![case([2, 8, 8, 64], 32, true), case([3, 5, 7, 15], 5, false), case([1, 3, 1, 33], 1, true), case([2, 9, 4, 96], 32, false)]
    }
}

impl Builder {
    pub fn group_norm(&mut self, x: ValueId, gamma: ValueId, beta: ValueId, groups: usize, eps: f32, silu: bool) -> ValueId {
        self.push_one(GroupNorm { groups, eps, silu }, &[x, gamma, beta])
    }
}
