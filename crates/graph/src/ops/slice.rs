//! A range of the channel axis.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Input: x [..., C]. Output: x[..., start .. start + channels].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    pub start: usize,
    pub channels: usize,
}

/// Input: ∂y. Output: ∂x [..., total] with ∂y at `start` and zeros elsewhere.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SliceGrad {
    pub start: usize,
    pub total: usize,
}

impl Rule for Slice {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let x = inputs[0];
        assert!(self.start + self.channels <= x.shape.channels(), "slice {self:?} leaves {}", x.shape);
        vec![Meta { shape: x.shape.with_channels(self.channels), dtype: x.dtype }]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let x = inputs[0];
        let data = (0..x.shape.rows()).flat_map(|i| x.row(i)[self.start..self.start + self.channels].to_vec()).collect();
        vec![Array::new(x.shape.with_channels(self.channels), data)]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let back = SliceGrad { start: self.start, total: g.shape(g.inputs[0]).channels() };
        let dx = g.push(back, &[g.upstream(0)]);
        g.set(0, dx[0]);
    }

    fn cost(&self, _: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(0.0, outputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |start, channels| Case::new(Slice { start, channels }, vec![normal([2, 3, 5, 37], types.activation)]);
        vec![case(0, 16), case(16, 21), case(36, 1)]
    }
}

impl Rule for SliceGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert!(self.start + inputs[0].shape.channels() <= self.total, "slice gradient {self:?} has no room for {}", inputs[0].shape);
        vec![Meta { shape: inputs[0].shape.with_channels(self.total), dtype: inputs[0].dtype }]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let dy = inputs[0];
        let mut dx = Array::zeros(dy.shape.with_channels(self.total));
        (0..dy.shape.rows()).for_each(|i| dx.row_mut(i)[self.start..self.start + dy.shape.channels()].copy_from_slice(dy.row(i)));
        vec![dx]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(0.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |start, total| Case::new(SliceGrad { start, total }, vec![normal([2, 3, 5, 7], types.activation)]);
        vec![case(0, 16), case(5, 12), case(9, 37)]
    }
}

impl Builder {
    pub fn slice(&mut self, x: ValueId, start: usize, channels: usize) -> ValueId {
        self.push_one(Slice { start, channels }, &[x])
    }
}
