//! How fast a device is: the two rates that bound every kernel (the roofline of Williams, Waterman and Patterson, 2009).

use graph::Cost;

/// What a device reaches at most, all of its threads together.
#[derive(Clone, Debug, PartialEq)]
pub struct Speed {
    pub threads: usize,
    /// The instruction that multiplies, for people.
    pub instruction: String,
    /// Floating-point operations a second; a multiply-add is two.
    pub flops: f64,
    /// Bytes a second out of and into memory that no cache holds.
    pub read: f64,
    pub write: f64,
}

impl Speed {
    /// The seconds that work of this cost takes at least: as many as its arithmetic, or its memory traffic at the faster direction's rate.
    pub fn seconds(&self, cost: &Cost) -> f64 {
        (cost.flops / self.flops).max(cost.bytes / self.read.max(self.write))
    }
}
