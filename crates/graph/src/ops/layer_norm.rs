//! Layer normalisation (Ba et al., 2016): y = γ (x − μ)ρ + β with μ, ρ = 1/√(variance + ε) over the channels of each row.

use super::group_norm::moments;
use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Inputs: x [..., C], γ [C], β [C]. Outputs: y, and statistics [rows, 2] f32 holding (μ, ρ).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNorm {
    pub eps: f32,
}

/// Inputs: ∂y, x, γ, statistics. Output: ∂x = ρ (g − mean(g) − x̂ mean(g x̂)) with g = γ ∂y, x̂ = (x − μ)ρ, means over the row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LayerNormGrad;

impl Rule for LayerNorm {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let x = inputs[0];
        let c = x.shape.channels();
        assert_eq!((inputs[1].shape.elements(), inputs[2].shape.elements()), (c, c), "layer_norm: γ, β don't fit x {}", x.shape);
        vec![x.clone(), Meta::new([x.shape.rows(), 2], DType::F32)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (x, gamma, beta) = (inputs[0], inputs[1], inputs[2]);
        let mut y = x.clone();
        let mut statistics = Array::zeros([x.shape.rows(), 2]);
        for row in 0..x.shape.rows() {
            let (mean, rstd) = moments(x.row(row).iter().copied(), self.eps);
            statistics.row_mut(row).copy_from_slice(&[mean, rstd]);
            for (c, y) in y.row_mut(row).iter_mut().enumerate() {
                *y = gamma.data[c] * (*y - mean) * rstd + beta.data[c];
            }
        }
        vec![y, statistics]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let inputs = [g.upstream(0), g.inputs[0], g.inputs[1], g.outputs[1]];
        let dx = g.push(LayerNormGrad, &inputs);
        g.set(0, dx[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(8.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |s: [usize; 3]| {
            let x = (Meta::new(s, types.activation), Fill::Normal(2.0));
            Case::new(LayerNorm { eps: 1e-5 }, vec![x, normal([s[2]], DType::F32), normal([s[2]], DType::F32)])
        };
        vec![case([2, 8, 64]), case([3, 5, 7]), case([1, 77, 129])]
    }
}

impl Rule for LayerNormGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert_eq!(inputs[0].shape, inputs[1].shape, "layer_norm gradient: ∂y does not fit x");
        assert_eq!(inputs[3].shape.elements(), inputs[1].shape.rows() * 2, "layer_norm gradient: statistics don't fit");
        vec![inputs[1].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (dy, x, gamma, statistics) = (inputs[0], inputs[1], inputs[2], inputs[3]);
        let mut dx = Array::zeros(x.shape.clone());
        let n = x.shape.channels() as f32;
        for row in 0..x.shape.rows() {
            let &[mean, rstd] = statistics.row(row) else { unreachable!("two statistics a row") };
            let hat: Vec<f32> = x.row(row).iter().map(|x| (x - mean) * rstd).collect();
            let grad: Vec<f32> = dy.row(row).iter().zip(&gamma.data).map(|(d, g)| d * g).collect();
            let sum = grad.iter().sum::<f32>() / n;
            let dot = grad.iter().zip(&hat).map(|(g, h)| g * h).sum::<f32>() / n;
            for (c, d) in dx.row_mut(row).iter_mut().enumerate() {
                *d = rstd * (grad[c] - sum - hat[c] * dot);
            }
        }
        vec![dx]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(12.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |s: [usize; 3]| {
            let statistics = (Meta::new([s[0] * s[1], 2], DType::F32), Fill::Positive);
            Case::new(LayerNormGrad, vec![normal(s, types.activation), normal(s, types.activation), normal([s[2]], DType::F32), statistics])
        };
        vec![case([2, 8, 64]), case([3, 5, 7]), case([1, 77, 129])]
    }
}

impl Builder {
    pub fn layer_norm(&mut self, x: ValueId, gamma: ValueId, beta: ValueId, eps: f32) -> ValueId {
        self.push_one(LayerNorm { eps }, &[x, gamma, beta])
    }
}
