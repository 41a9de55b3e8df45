//! What was planned beside what was used: the promise of the plan, kept or not, for people and in the run's `memory.json`.

use crate::memory::MemoryPlan;
use crate::metrics::peak_bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Bytes at the peak of a stretch of work, the program itself included on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    pub planned_bytes: u64,
    /// The process's largest resident memory up to the end of the stretch; 0 where the system does not say.
    pub used_bytes: u64,
}

/// `memory.json`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Resident memory of the program before the run took any.
    pub process_bytes: u64,
    /// Absent if the caches held everything.
    pub encoding: Option<Usage>,
    /// Up to the end of the run.
    pub training: Usage,
}

impl Usage {
    /// Against the largest resident memory so far.
    pub fn so_far(planned_bytes: u64) -> Usage {
        Usage { planned_bytes, used_bytes: peak_bytes() }
    }
}

impl Report {
    /// At the end of a run. `encoding` is what was read after the caches were filled, if anything was encoded.
    pub fn new(memory: &MemoryPlan, encoding: Option<Usage>) -> Report {
        let before = encoding.map_or(0, |usage| usage.planned_bytes);
        Report { process_bytes: memory.process, encoding, training: Usage::so_far(memory.whole_training.max(before)) }
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        write!(f, "{:.0} MB planned, {:.0} MB used at the peak", megabytes(self.planned_bytes), megabytes(self.used_bytes))
    }
}
