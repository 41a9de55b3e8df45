//! The CPU backend: memory, and a kernel for every op.
//!
//! `kernels/<op>.rs` has the file name of the op's room in the graph crate. Kernels allocate nothing: what they need beside inputs and
//! outputs is planned scratch. Work is cut into pieces whose size does not depend on the number of threads, so results don't either.

pub mod backend;
mod block;
mod element;
pub mod isa;
mod kernels;
mod lanes;
mod math;
mod memory;
mod pieces;
mod scratch;
pub mod speed;
mod tensor;
mod threads;

pub use backend::Cpu;
