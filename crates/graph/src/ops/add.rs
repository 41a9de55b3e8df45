//! y = a + b, same shapes. Residual connections, and sums of gradients.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Inputs: a, b. Output: a + b.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Add;

impl Rule for Add {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        assert_eq!(inputs[0], inputs[1], "add: the operands differ in form");
        vec![inputs[0].clone()]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        vec![inputs[0].zip(inputs[1], |a, b| a + b)]
    }

    /// ∂a = ∂b = ∂y
    fn gradient(&self, g: &mut Adjoint) {
        g.set(0, g.upstream(0));
        g.set(1, g.upstream(0));
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(1.0, inputs, outputs)
    }

    fn in_place(&self) -> &'static [usize] {
        &[0, 1]
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        [[2, 8, 32], [3, 5, 7], [1, 1, 1037]].map(|s| Case::new(Add, vec![normal(s, types.activation), normal(s, types.activation)])).into()
    }
}

impl Builder {
    pub fn add(&mut self, a: ValueId, b: ValueId) -> ValueId {
        self.push_one(Add, &[a, b])
    }
}
