//! y = a · gelu(b) where x = [a | b] along the channels (Shazeer, "GLU Variants Improve Transformer", 2020); exact gelu.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Input: x [..., 2F]. Output: [..., F].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Geglu;

/// Inputs: ∂y [..., F], x [..., 2F]. Output: ∂x = [∂y · gelu(b) | ∂y · a · gelu'(b)].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GegluGrad;

const GELU: ActivationKind = ActivationKind::Gelu;

impl Rule for Geglu {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let channels = inputs[0].shape.channels();
        assert!(channels.is_multiple_of(2), "geglu needs an even number of channels, not {channels}");
        vec![Meta { shape: inputs[0].shape.with_channels(channels / 2), dtype: inputs[0].dtype }]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let x = inputs[0];
        let f = x.shape.channels() / 2;
        let data = (0..x.shape.rows()).flat_map(|i| (0..f).map(move |c| x.row(i)[c] * GELU.value(x.row(i)[f + c]))).collect();
        vec![Array::new(x.shape.with_channels(f), data)]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let dx = g.push(GegluGrad, &[g.upstream(0), g.inputs[0]]);
        g.set(0, dx[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(20.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        [[2, 8, 64], [3, 5, 14], [1, 1, 2]].map(|s| Case::new(Geglu, vec![normal(s, types.activation)])).into()
    }
}

impl Rule for GegluGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert_eq!(2 * inputs[0].shape.channels(), inputs[1].shape.channels(), "geglu gradient: ∂y does not fit x");
        vec![inputs[1].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (dy, x) = (inputs[0], inputs[1]);
        let f = dy.shape.channels();
        let mut dx = Array::zeros(x.shape.clone());
        for i in 0..x.shape.rows() {
            for c in 0..f {
                let (a, b, d) = (x.row(i)[c], x.row(i)[f + c], dy.row(i)[c]);
                dx.row_mut(i)[c] = d * GELU.value(b);
                dx.row_mut(i)[f + c] = d * a * GELU.slope(b);
            }
        }
        vec![dx]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(20.0, inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[1]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case =
            |s: [usize; 3]| Case::new(GegluGrad, vec![normal(s, types.activation), normal([s[0], s[1], 2 * s[2]], types.activation)]);
        vec![case([2, 8, 32]), case([3, 5, 7]), case([1, 1, 1])]
    }
}

impl Builder {
    pub fn geglu(&mut self, x: ValueId) -> ValueId {
        self.push_one(Geglu, &[x])
    }
}
