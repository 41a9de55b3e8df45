//! Runs a planned graph on a backend, from nothing but the plan's offsets: what a session does, with the least code.

use crate::random_graph::RandomGraph;
use crate::values::{decode, encode};
use engine::backend::{Scratch, Step};
use engine::{Backend, BufferId, View};
use graph::{Array, Graph, Node, Op, Place, Plan, Source, ValueId};
use std::collections::HashMap;

/// A graph bound to buffers of a backend.
pub struct Planned<'a> {
    graph: &'a Graph,
    plan: Plan,
    backend: &'a mut dyn Backend,
    arena: BufferId,
    leaves: HashMap<ValueId, BufferId>,
    gradients: HashMap<ValueId, BufferId>,
}

/// What arena and gradients hold where nothing was written: NaN.
const POISON: u8 = 0xff;

impl<'a> Planned<'a> {
    pub fn new(graph: &'a Graph, random: &RandomGraph, backend: &'a mut dyn Backend) -> Planned<'a> {
        let plan = Plan::new(graph, &|op, inputs, outputs| backend.scratch_bytes(op, inputs, outputs));
        plan.verify().expect("a plan without overlaps");
        let arena = filled(backend, plan.arena_bytes, &vec![POISON; plan.arena_bytes as usize]);
        let (mut leaves, mut gradients) = (HashMap::new(), HashMap::new());
        for id in graph.value_ids() {
            let value = graph.value(id);
            if !matches!(value.source, Source::Node { .. }) {
                leaves.insert(id, filled(backend, value.meta.bytes(), &encode(&value.meta, random.leaf(&value.source))));
            }
            if matches!(value.source, Source::Param(_)) {
                gradients.insert(id, filled(backend, value.meta.bytes(), &[]));
            }
        }
        Planned { graph, plan, backend, arena, leaves, gradients }
    }

    fn view(&self, id: ValueId) -> View {
        let (buffer, offset) = match self.plan.places[id.0 as usize] {
            Place::Leaf(leaf) => (self.leaves[&leaf], 0),
            Place::Arena(offset) => (self.arena, offset),
            Place::Gradient(param) => (self.gradients[&param], 0),
        };
        View { buffer, offset, meta: self.graph.meta(id).clone() }
    }

    fn step(&self, index: usize, node: &Node) -> Step {
        let (offset, bytes) = self.plan.scratch[index];
        let views = |ids: &[ValueId]| ids.iter().map(|id| self.view(*id)).collect();
        let scratch = Scratch { buffer: self.arena, offset, bytes };
        Step { op: node.op.clone(), inputs: views(&node.inputs), outputs: views(&node.outputs), scratch }
    }

    pub fn run(&mut self) {
        for (index, node) in self.graph.nodes.iter().enumerate().filter(|(_, n)| !matches!(n.op, Op::Reshape(_))) {
            self.backend.run(&self.step(index, node)).expect("a step that the plan bound");
        }
    }

    fn read(&self, view: &View) -> Array {
        let mut bytes = vec![0; view.meta.bytes() as usize];
        self.backend.read(view.buffer, view.offset, &mut bytes).expect("in range");
        decode(&view.meta, &bytes)
    }

    /// The graph's outputs, by name.
    pub fn outputs(&self) -> HashMap<String, Array> {
        self.graph.outputs.iter().map(|(name, id)| (name.clone(), self.read(&self.view(*id)))).collect()
    }

    /// The parameters' gradients, by name; those that no node writes are zero.
    pub fn gradients(&self) -> HashMap<String, Array> {
        let read = |id: ValueId| self.read(&View { buffer: self.gradients[&id], offset: 0, meta: self.graph.meta(id).clone() });
        self.graph.params().map(|(name, id)| (name.to_owned(), read(id))).collect()
    }
}

fn filled(backend: &mut dyn Backend, bytes: u64, content: &[u8]) -> BufferId {
    let buffer = backend.allocate(bytes).expect("memory for a test");
    backend.write(buffer, 0, content).expect("in range");
    buffer
}
