//! What a node costs, before it runs: the planner and the benchmark table read it.

use crate::graph::Meta;

/// Floating-point operations (a multiply-add is two) and bytes that must cross memory at least once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cost {
    pub flops: f64,
    pub bytes: f64,
}

impl Cost {
    /// An op that touches every input and output once and does `per_element` operations for each output element.
    pub fn elementwise(per_element: f64, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        let elements: usize = outputs.iter().map(|m| m.shape.elements()).sum();
        Cost::new(per_element * elements as f64, inputs, outputs)
    }

    pub fn new(flops: f64, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost { flops, bytes: inputs.iter().chain(outputs).map(|m| m.bytes() as f64).sum() }
    }
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Cost) {
        self.flops += other.flops;
        self.bytes += other.bytes;
    }
}
