//! y = factor · x.

use super::{Call, Kernel};
use crate::block::{Unary, unary, with_activation};
use graph::ops::Scale;

#[derive(Clone, Copy)]
struct Times(f32);

impl Unary for Times {
    #[inline(always)]
    fn apply(self, x: f32) -> f32 {
        x * self.0
    }
}

impl Kernel for Scale {
    fn run(&self, call: &mut Call) {
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        with_activation!(y.dtype(), T => unary::<T, T>(Times(self.factor), x, y));
    }
}
