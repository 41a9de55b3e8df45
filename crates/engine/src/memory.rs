//! What a session takes of a device's memory, by purpose, known before anything is allocated.

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
