//! Whose random numbers: every draw of training is a pure function of (seed, step, item), so a resumed run draws the same, in any
//! order, on any thread.

use base::Rng;

/// One item of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    pub seed: u64,
    /// Number of the micro-batch in the run.
    pub step: u64,
    /// Place in the micro-batch.
    pub item: u64,
}

impl Draw {
    /// The numbers for one purpose: what one setting draws never shifts what another draws.
    pub fn rng(self, purpose: &str) -> Rng {
        Rng::new(self.seed, purpose, &[self.step, self.item])
    }
}
