//! Low-rank adapters: which modules of a model get one, with what rank, and how its factors start.

mod file;
mod layout;
mod lora;
mod resolve;
mod targets;

pub use file::{from_file, to_file};
pub use layout::{Param, ParamLayout};
pub use lora::{Adapter, AdapterSpec, Factor};
pub use resolve::Adapters;
pub use targets::{Kind, Module, Place};
