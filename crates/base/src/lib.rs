//! What every crate may use: data types, shapes, byte sizes, random numbers, and the one door to files.
//!
//! Nothing in here knows about graphs, models or training.

pub mod bytes;
pub mod code_page;
pub mod dtype;
pub mod fs;
pub mod nearest;
pub mod placeholder;
pub mod quantized;
pub mod rng;
pub mod shape;
pub mod words;

pub use bytes::human;
pub use dtype::DType;
pub use rng::Rng;
pub use shape::Shape;
pub use words::{counted, excerpt, some_of, visible};
