//! y = [a | b] along the channel axis (skip connections of a UNet).

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Inputs: a [..., C₁], b [..., C₂]. Output: [..., C₁ + C₂].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Concat;

impl Rule for Concat {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let (a, b) = (inputs[0], inputs[1]);
        let channels = a.shape.channels() + b.shape.channels();
        assert_eq!(a.shape.with_channels(0), b.shape.with_channels(0), "concat: {} and {} differ before the channels", a.shape, b.shape);
        assert_eq!(a.dtype, b.dtype, "concat: the operands differ in type");
        vec![Meta { shape: a.shape.with_channels(channels), dtype: a.dtype }]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (a, b) = (inputs[0], inputs[1]);
        let data = (0..a.shape.rows()).flat_map(|i| [a.row(i), b.row(i)].concat()).collect();
        vec![Array::new(a.shape.with_channels(a.shape.channels() + b.shape.channels()), data)]
    }

    /// ∂a and ∂b are the two slices of ∂y.
    fn gradient(&self, g: &mut Adjoint) {
        let (a, b) = (g.shape(g.inputs[0]).channels(), g.shape(g.inputs[1]).channels());
        for (input, start, channels) in [(0, 0, a), (1, a, b)] {
            if g.wanted(input) {
                let part = g.push(Slice { start, channels }, &[g.upstream(0)]);
                g.set(input, part[0]);
            }
        }
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(0.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |h, a, b| Case::new(Concat, vec![normal([2, h, 3, a], types.activation), normal([2, h, 3, b], types.activation)]);
        vec![case(4, 32, 64), case(5, 7, 3), case(1, 1, 33)]
    }
}

impl Builder {
    pub fn concat(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.push_one(Concat, &[a, b])
    }
}
