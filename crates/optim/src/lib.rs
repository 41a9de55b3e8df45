//! Optimizers and learning-rate schedules, on the host, over flat f32 slices.
//!
//! All trained parameters lie in one slice; a [`Layout`] says which range has which name, shape and group, and the gradients
//! lie in an equally laid-out slice. Optimizer state is stored and loaded by parameter *name*, never by position.
//! One file per optimizer (`optimizers/`) and per schedule (`schedule/`); the lists in their `mod.rs` are what a config can name.

pub mod clip;
pub mod hyper;
pub mod layout;
pub mod optimizers;
pub mod schedule;
pub mod state;

pub use clip::{Clip, Clipped};
pub use layout::{Group, Layout, Param};
pub use optimizers::{OPTIMIZERS, Optimizer, find};
pub use schedule::Schedule;
pub use state::{Array, State, StateError};

/// Elements that one task works on. Fixed, so that no result depends on the number of threads; 64 KB of each f32 slice
/// keeps parameter, gradient and two states inside the L2 of one core.
pub(crate) const CHUNK: usize = 16_384;
