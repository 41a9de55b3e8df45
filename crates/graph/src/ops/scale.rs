//! y = factor · x.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Input: x. Output: factor · x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub factor: f32,
}

impl Rule for Scale {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        vec![inputs[0].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        vec![inputs[0].map(|x| x * self.factor)]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let dx = g.push(*self, &[g.upstream(0)]);
        g.set(0, dx[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(1.0, inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        vec![Case::new(Scale { factor: -0.7 }, vec![normal([3, 5, 7], types.activation)])]
    }
}

impl Builder {
    pub fn scale(&mut self, x: ValueId, factor: f32) -> ValueId {
        self.push_one(Scale { factor }, &[x])
    }
}
