//! y = a + b.

use super::{Call, Kernel};
use crate::block::{Binary, binary, with_activation};
use graph::ops::Add;

#[derive(Clone, Copy)]
struct Sum;

impl Binary for Sum {
    #[inline(always)]
    fn apply(self, a: f32, b: f32) -> f32 {
        a + b
    }
}

impl Kernel for Add {
    fn run(&self, call: &mut Call) {
        let (a, b, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        with_activation!(y.dtype(), T => binary::<T, T, T>(Sum, a, b, y));
    }
}
