//! From a plan to a run: a backend's buffers, and sessions that bind a planned graph to them.
//!
//! Nothing here computes, and nothing above here knows where bytes live: a value is an offset in a buffer.

pub mod backend;
pub mod memory;
pub mod program;
pub mod session;
pub mod speed;

pub use backend::{Backend, BufferId, View};
pub use memory::Memory;
pub use program::Program;
pub use session::{Session, WeightSource};
pub use speed::Speed;
