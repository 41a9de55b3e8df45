//! A program: a graph with its plan, ready to be bound to memory.

use crate::backend::Backend;
use graph::plan::align;
use graph::{Graph, Plan};

/// One computation at one batch shape.
#[derive(Clone, Debug)]
pub struct Program {
    pub name: String,
    pub graph: Graph,
    pub plan: Plan,
}

impl Program {
    /// Plans `graph` with the scratch that `backend`'s kernels need.
    pub fn new(name: impl Into<String>, graph: Graph, backend: &dyn Backend) -> Program {
        debug_assert_eq!(graph::verify::verify(&graph), Ok(()));
        let plan = Plan::new(&graph, &|op, inputs, outputs| backend.scratch_bytes(op, inputs, outputs));
        debug_assert_eq!(plan.verify(), Ok(()));
        Program { name: name.into(), graph, plan }
    }

    pub fn input_bytes(&self) -> u64 {
        self.graph.inputs().map(|(_, id)| align(self.graph.meta(id).bytes())).sum()
    }
}
