//! What a session takes of a device's memory, by purpose, known before anything is allocated.

use base::human;
use std::fmt;

/// Bytes by purpose. Their sum is the peak: a step allocates nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    pub weights: u64,
    pub params: u64,
    pub gradients: u64,
    pub inputs: u64,
    /// Activations, gradients of activations and kernel scratch: one arena, as large as the largest program needs.
    pub arena: u64,
}

impl Memory {
    pub fn total(&self) -> u64 {
        self.weights + self.params + self.gradients + self.inputs + self.arena
    }
}

impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("base weights", self.weights),
            ("adapters", self.params),
            ("gradients", self.gradients),
            ("inputs", self.inputs),
            ("activations and scratch", self.arena),
        ];
        rows.iter().try_for_each(|(name, bytes)| writeln!(f, "  {name:<26}{:>10}", human(*bytes)))
    }
}
