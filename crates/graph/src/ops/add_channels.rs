//! y[b, t, c] = x[b, t, c] + e[b, c]: a vector for each batch item, on every token or pixel (the timestep embedding in a resnet block).

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;
use base::Shape;

/// Inputs: x [B, ..., C], e [B, C]. Output: x + e.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AddChannels;

/// Input: x [B, ..., C]. Output: [B, C], summed over tokens (in f32): the gradient of e.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SumTokens;

impl Rule for AddChannels {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let (x, e) = (inputs[0], inputs[1]);
        assert_eq!(e.shape, Shape::from([x.shape.batch(), x.shape.channels()]), "add_channels: e does not fit x {}", x.shape);
        vec![x.clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let mut y = inputs[0].clone();
        let tokens = y.shape.tokens();
        for row in 0..y.shape.rows() {
            y.row_mut(row).iter_mut().zip(inputs[1].row(row / tokens)).for_each(|(y, e)| *y += e);
        }
        vec![y]
    }

    /// ∂x = ∂y, ∂e = Σ over tokens of ∂y
    fn gradient(&self, g: &mut Adjoint) {
        g.set(0, g.upstream(0));
        if g.wanted(1) {
            let de = g.push(SumTokens, &[g.upstream(0)]);
            g.set(1, de[0]);
        }
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(1.0, inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |s: [usize; 4]| Case::new(AddChannels, vec![normal(s, types.activation), normal([s[0], s[3]], types.activation)]);
        vec![case([2, 4, 4, 32]), case([3, 5, 1, 7]), case([1, 9, 3, 65])]
    }
}

impl Rule for SumTokens {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        vec![Meta::new([inputs[0].shape.batch(), inputs[0].shape.channels()], inputs[0].dtype)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let x = inputs[0];
        let mut sum = Array::zeros([x.shape.batch(), x.shape.channels()]);
        for row in 0..x.shape.rows() {
            sum.row_mut(row / x.shape.tokens()).iter_mut().zip(x.row(row)).for_each(|(s, x)| *s += x);
        }
        vec![sum]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::new(inputs[0].shape.elements() as f64, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        [[2, 4, 4, 32], [3, 5, 1, 7], [1, 9, 3, 65]].map(|s| Case::new(SumTokens, vec![normal(s, types.activation)])).into()
    }
}

impl Builder {
    /// Adds e [B, C] to every token of x [B, ..., C].
    pub fn add_channels(&mut self, x: ValueId, e: ValueId) -> ValueId {
        self.push_one(AddChannels, &[x, e])
    }
}
