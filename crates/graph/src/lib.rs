//! The static graph: what a training step or a sampler step computes, before anything is allocated or run.
//!
//! Pure: no I/O, no threads, no device. The way of a program through this crate:
//! [`Builder`] (forward, written once) → [`differentiate`] (backward by each op's rule, with chosen segments recomputed)
//! → [`Plan`] (an offset for every value in one arena; the exact peak). [`oracle`] runs a graph in plain f32.
//!
//! Everything about one op stands in one file under `ops/`: formula, shapes, meaning, gradient, cost, test cases.

pub mod autodiff;
pub mod builder;
pub mod cost;
pub mod graph;
pub mod ops;
pub mod oracle;
pub mod plan;
pub mod print;
pub mod recompute;
pub mod verify;

pub use autodiff::{Recompute, differentiate};
pub use builder::Builder;
pub use cost::Cost;
pub use graph::{Graph, Meta, Node, NodeId, Segment, SegmentId, Source, Value, ValueId};
pub use ops::Op;
pub use oracle::Array;
pub use plan::{Place, Plan};
