//! The same values in another element type (f32 ↔ bf16, f16).

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;
use base::DType;

/// Input: x. Output: x as `to`, rounded to nearest even.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cast {
    pub to: DType,
}

impl Rule for Cast {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let float = |t| matches!(t, DType::F32 | DType::BF16 | DType::F16);
        assert!(float(self.to) && float(inputs[0].dtype), "cast is between floats, not {} → {}", inputs[0].dtype, self.to);
        vec![Meta { shape: inputs[0].shape.clone(), dtype: self.to }]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        vec![inputs[0].clone()]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let back = Cast { to: g.dtype(g.inputs[0]) };
        let dx = g.push(back, &[g.upstream(0)]);
        g.set(0, dx[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(0.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        [DType::F32, DType::BF16, DType::F16].map(|to| Case::new(Cast { to }, vec![normal([3, 5, 19], types.activation)])).into()
    }
}

impl Builder {
    /// x itself if it has that type already.
    pub fn cast(&mut self, x: ValueId, to: DType) -> ValueId {
        if self.graph.meta(x).dtype == to { x } else { self.push_one(Cast { to }, &[x]) }
    }
}
