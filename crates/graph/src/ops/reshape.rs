//! The same bytes under another shape. Never runs: the planner gives the output its input's place.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;
use base::Shape;

/// Input: x. Output: x with shape `to` (same number of elements).
#[derive(Clone, Debug, PartialEq)]
pub struct Reshape {
    pub to: Shape,
}

impl Rule for Reshape {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert_eq!(inputs[0].shape.elements(), self.to.elements(), "reshape: {} has not the elements of {}", inputs[0].shape, self.to);
        vec![Meta { shape: self.to.clone(), dtype: inputs[0].dtype }]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        vec![Array::new(self.to.clone(), inputs[0].data.clone())]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let back = Reshape { to: g.shape(g.inputs[0]) };
        let dx = g.push(back, &[g.upstream(0)]);
        g.set(0, dx[0]);
    }

    fn cost(&self, _: &[&Meta], _: &[&Meta]) -> Cost {
        Cost::default()
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        vec![Case::new(Reshape { to: Shape::from([3, 20, 4]) }, vec![normal([6, 10, 4], types.activation)])]
    }
}

impl Builder {
    pub fn reshape(&mut self, x: ValueId, to: impl Into<Shape>) -> ValueId {
        self.push_one(Reshape { to: to.into() }, &[x])
    }
}
