//! Optimizers and learning-rate schedules, on the host, over flat f32 slices.
//!
//! All trained parameters lie in one slice; a [`Layout`] says which range has which name, shape and group, and the gradients
//! lie in an equally laid-out slice. Optimizer state is stored and loaded by parameter *name*, never by position.
//! One file per optimizer (`optimizers/`) and per schedule (`schedule/`); the lists in their `mod.rs` are what a config can name.
//!
//! An optimizer's file holds its *rule*: settings, what it keeps, and the update of one piece of a parameter. [`Optimizer`] is the
//! rule at work: it owns the state ([`cells`], at 32 or 8 bits), spreads pieces over the threads ([`table`]), saves and resumes.

pub mod cells;
pub mod clip;
pub mod dynamic;
pub mod ema;
pub mod hyper;
pub mod layout;
pub mod optimizer;
pub mod optimizers;
pub mod schedule;
pub mod state;
pub mod swap;
pub mod table;

pub use clip::{Clip, Clipped};
pub use ema::Ema;
pub use hyper::WEIGHT_DECAY;
pub use layout::{Group, Layout, Param};
pub use optimizer::Optimizer;
pub use optimizers::{Chosen, OPTIMIZERS, choose};
pub use schedule::Schedule;
pub use state::{Array, State, StateError};
pub use swap::Swap;

/// Elements that one task works on. Fixed, so that no result depends on the number of threads; 64 KB of each f32 slice
/// keeps parameter, gradient and two states inside the L2 of one core.
pub(crate) const CHUNK: usize = 16_384;
