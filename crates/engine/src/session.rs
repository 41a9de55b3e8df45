//! A session: programs that share weights, parameters and one arena, bound to a backend's memory.
//!
//! Building one allocates everything; after that a run copies inputs, executes steps and copies outputs, and allocates nothing.

use crate::backend::{Backend, BufferId, Scratch, Step, View};
use crate::memory::Memory;
use crate::program::Program;
use anyhow::{Context, Result};
use base::{DType, Shape};
use graph::plan::align;
use graph::{Graph, Meta, Place, Source, ValueId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Gives the frozen tensors of a checkpoint.
pub trait WeightSource: Sync {
    /// Writes the elements of a tensor, in the memory layout and type that `meta` asks for, to `out`, which has just their length. An
    /// error names the tensor and what does not fit.
    fn read(&self, name: &str, meta: &Meta, out: &mut [u8]) -> Result<()>;
}

/// A trained tensor's place in the flat parameter slice, in elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamPlace {
    pub name: String,
    pub shape: Shape,
    pub range: Range<usize>,
}

/// A program with every value's view filled in.
struct Bound {
    name: String,
    steps: Vec<Step>,
    /// The first steps, so many, are the forward.
    forward: usize,
    inputs: BTreeMap<String, View>,
    outputs: BTreeMap<String, View>,
}

pub struct Session {
    backend: Box<dyn Backend>,
    programs: Vec<Bound>,
    params: Vec<ParamPlace>,
    buffers: Buffers,
    memory: Memory,
}

#[derive(Clone, Copy)]
struct Buffers {
    weights: BufferId,
    params: BufferId,
    gradients: BufferId,
    inputs: BufferId,
    arena: BufferId,
}

/// Tensors of one kind packed one after the other: name → (offset in bytes, form).
type Table = BTreeMap<String, (u64, Meta)>;

/// Input data for one run.
#[derive(Clone, Copy, Debug)]
pub enum Data<'a> {
    F32(&'a [f32]),
    U32(&'a [u32]),
}

impl Data<'_> {
    fn bytes(&self) -> &[u8] {
        match self {
            Data::F32(values) => bytemuck::cast_slice(values),
            Data::U32(values) => bytemuck::cast_slice(values),
        }
    }
}

/// Packs the named leaves of all programs; a name must have one form everywhere.
fn pack<'a>(leaves: impl Iterator<Item = (&'a Graph, &'a str, ValueId)>, alignment: fn(u64) -> u64) -> Result<(Table, u64)> {
    let mut table = Table::new();
    for (graph, name, id) in leaves {
        let meta = graph.meta(id);
        let known = table.entry(name.to_string()).or_insert_with(|| (0, meta.clone()));
        anyhow::ensure!(
            known.1 == *meta,
            "{name} has the form {} {} in one program and {} {} in another",
            known.1.shape,
            known.1.dtype,
            meta.shape,
            meta.dtype
        );
    }
    let mut offset = 0;
    for (at, meta) in table.values_mut() {
        *at = offset;
        offset += alignment(meta.bytes());
    }
    Ok((table, offset))
}

fn weight_table(programs: &[Program]) -> Result<(Table, u64)> {
    pack(programs.iter().flat_map(|p| p.graph.weights().map(|(n, id)| (&p.graph, n, id))), align)
}

fn param_table(programs: &[Program]) -> Result<(Table, u64)> {
    // Without padding, so that host code sees one flat slice of f32.
    pack(programs.iter().flat_map(|p| p.graph.params().map(|(n, id)| (&p.graph, n, id))), |bytes| bytes)
}

fn trains(programs: &[Program]) -> bool {
    programs.iter().any(|p| !p.graph.gradients.is_empty())
}

impl Session {
    /// The memory that [`Session::new`] would take.
    pub fn memory_of(programs: &[Program]) -> Result<Memory> {
        let params = align(param_table(programs)?.1);
        Ok(Memory {
            weights: weight_table(programs)?.1,
            params,
            gradients: if trains(programs) { params } else { 0 },
            inputs: programs.iter().map(Program::input_bytes).max().unwrap_or(0),
            arena: programs.iter().map(|p| p.plan.arena_bytes).max().unwrap_or(0),
        })
    }

    /// Bytes of the weights by their type; together they are [`Memory::weights`].
    pub fn weight_bytes(programs: &[Program]) -> Result<BTreeMap<DType, u64>> {
        let mut bytes = BTreeMap::new();
        for (_, meta) in weight_table(programs)?.0.into_values() {
            *bytes.entry(meta.dtype).or_insert(0) += align(meta.bytes());
        }
        Ok(bytes)
    }

    /// Allocates, and loads the weights that the programs name.
    pub fn new(mut backend: Box<dyn Backend>, programs: Vec<Program>, source: &dyn WeightSource) -> Result<Session> {
        let memory = Session::memory_of(&programs)?;
        let (weights, _) = weight_table(&programs)?;
        let (params, _) = param_table(&programs)?;
        let mut allocate = |what: &str, bytes: u64| {
            backend.allocate(bytes).with_context(|| {
                format!("no memory for {what}: {} of the {} that this run needs", base::human(bytes), base::human(memory.total()))
            })
        };
        let buffers = Buffers {
            weights: allocate("base weights", memory.weights)?,
            params: allocate("adapters", memory.params)?,
            gradients: allocate("gradients", memory.gradients)?,
            inputs: allocate("inputs", memory.inputs)?,
            arena: allocate("activations", memory.arena)?,
        };
        for (name, (offset, meta)) in &weights {
            backend.fill(buffers.weights, *offset, meta.bytes(), &mut |out| source.read(name, meta, out))?;
        }
        let bind = |program: &Program| Binder { program, weights: &weights, params: &params, buffers }.bind();
        let programs = programs.iter().map(bind).collect();
        let params = params
            .into_iter()
            .map(|(name, (offset, meta))| {
                let start = offset as usize / 4;
                ParamPlace { name, range: start..start + meta.shape.elements(), shape: meta.shape }
            })
            .collect();
        Ok(Session { backend, programs, params, buffers, memory })
    }

    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// Bytes that the backend holds now.
    pub fn allocated_bytes(&self) -> u64 {
        self.backend.allocated_bytes()
    }

    /// The trained tensors in the order of the flat slice: sorted by name.
    pub fn params(&self) -> &[ParamPlace] {
        &self.params
    }

    /// Writes all parameters.
    pub fn set_params(&mut self, values: &[f32]) -> Result<()> {
        self.backend.write(self.buffers.params, 0, bytemuck::cast_slice(values))
    }

    pub fn clear_gradients(&mut self) -> Result<()> {
        self.backend.clear(self.buffers.gradients, 0, self.memory.gradients)
    }

    /// Reads the gradients summed since they were cleared.
    pub fn read_gradients(&self, values: &mut [f32]) -> Result<()> {
        self.backend.read(self.buffers.gradients, 0, bytemuck::cast_slice_mut(values))
    }

    /// The number of the program with this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.programs.iter().position(|p| p.name == name)
    }

    /// Runs program number `program`. Every input of the program must be given, with its exact number of elements.
    pub fn run(&mut self, program: usize, inputs: &[(&str, Data)]) -> Result<()> {
        self.write_inputs(program, inputs)?;
        self.backend.run_all(&self.programs[program].steps)
    }

    /// Like [`Session::run`], and says how many seconds each of [`Session::steps`] took.
    pub fn run_timed(&mut self, program: usize, inputs: &[(&str, Data)], seconds: &mut Vec<f64>) -> Result<()> {
        self.write_inputs(program, inputs)?;
        let steps = &self.programs[program].steps;
        seconds.clear();
        seconds.resize(steps.len(), 0.0);
        self.backend.run_timed(steps, seconds)
    }

    /// What a program runs, in order: the forward, and the backward after it.
    pub fn steps(&self, program: usize) -> (&[Step], &[Step]) {
        let bound = &self.programs[program];
        bound.steps.split_at(bound.forward)
    }

    fn write_inputs(&mut self, program: usize, inputs: &[(&str, Data)]) -> Result<()> {
        let bound = &self.programs[program];
        for (name, view) in &bound.inputs {
            let (_, data) = inputs.iter().find(|(n, _)| n == name).with_context(|| format!("{} needs the input {name}", bound.name))?;
            let bytes = data.bytes();
            anyhow::ensure!(
                bytes.len() as u64 == view.meta.bytes(),
                "{}: input {name} has {} bytes where {} belong",
                bound.name,
                bytes.len(),
                view.meta.bytes()
            );
            self.backend.write(view.buffer, view.offset, bytes)?;
        }
        Ok(())
    }

    /// Reads an output (f32) of the program that ran last.
    pub fn read_output(&self, program: usize, name: &str, values: &mut [f32]) -> Result<()> {
        let bound = &self.programs[program];
        let view = bound.outputs.get(name).with_context(|| format!("{} has no output {name}", bound.name))?;
        anyhow::ensure!(view.meta.dtype == DType::F32, "output {name} is {}, not f32", view.meta.dtype);
        anyhow::ensure!(
            values.len() == view.meta.shape.elements(),
            "output {name} has {} elements, not {}",
            view.meta.shape.elements(),
            values.len()
        );
        self.backend.read(view.buffer, view.offset, bytemuck::cast_slice_mut(values))
    }

    /// Like [`Session::read_output`], into a new vector.
    pub fn output(&self, program: usize, name: &str) -> Result<Vec<f32>> {
        let elements = self.programs[program].outputs.get(name).map_or(0, |v| v.meta.shape.elements());
        let mut values = vec![0.0; elements];
        self.read_output(program, name, &mut values)?;
        Ok(values)
    }

    /// The backend, to build another session on it: this one's memory is freed.
    pub fn into_backend(mut self) -> Box<dyn Backend> {
        let Buffers { weights, params, gradients, inputs, arena } = self.buffers;
        [weights, params, gradients, inputs, arena].into_iter().for_each(|b| self.backend.free(b));
        self.backend
    }
}

/// Resolves the places of one program to views.
struct Binder<'a> {
    program: &'a Program,
    weights: &'a Table,
    params: &'a Table,
    buffers: Buffers,
}

impl Binder<'_> {
    fn bind(&self) -> Bound {
        let graph = &self.program.graph;
        let mut offset = 0;
        let mut inputs = BTreeMap::new();
        for (name, id) in graph.inputs() {
            let meta = graph.meta(id).clone();
            let bytes = align(meta.bytes());
            inputs.insert(name.to_string(), View { buffer: self.buffers.inputs, offset, meta });
            offset += bytes;
        }
        let view = |id: ValueId| self.view(id, &inputs);
        // A reshape shares its input's place: there is nothing to run.
        let runs = |node: &graph::Node| !matches!(node.op, graph::Op::Reshape(_));
        let forward = graph.nodes.iter().filter(|node| runs(node) && !node.backward).count();
        let steps = graph
            .nodes
            .iter()
            .zip(&self.program.plan.scratch)
            .filter(|(node, _)| runs(node))
            .map(|(node, (offset, bytes))| Step {
                op: node.op.clone(),
                inputs: node.inputs.iter().map(|v| view(*v)).collect(),
                outputs: node.outputs.iter().map(|v| view(*v)).collect(),
                scratch: Scratch { buffer: self.buffers.arena, offset: *offset, bytes: *bytes },
            })
            .collect();
        let outputs = graph.outputs.iter().map(|(name, id)| (name.clone(), view(*id))).collect();
        Bound { name: self.program.name.clone(), steps, forward, inputs, outputs }
    }

    fn view(&self, id: ValueId, inputs: &BTreeMap<String, View>) -> View {
        let meta = self.program.graph.meta(id).clone();
        let (buffer, offset) = match &self.program.plan.places[id.0 as usize] {
            Place::Arena(offset) => (self.buffers.arena, *offset),
            Place::Gradient(param) => (self.buffers.gradients, self.leaf(*param, inputs).1),
            Place::Leaf(leaf) => self.leaf(*leaf, inputs),
        };
        View { buffer, offset, meta }
    }

    fn leaf(&self, id: ValueId, inputs: &BTreeMap<String, View>) -> (BufferId, u64) {
        match &self.program.graph.value(id).source {
            Source::Input(name) => (self.buffers.inputs, inputs[name].offset),
            Source::Weight(name) => (self.buffers.weights, self.weights[name].0),
            Source::Param(name) => (self.buffers.params, self.params[name].0),
            Source::Node { .. } => unreachable!("a leaf is no node's output"),
        }
    }
}
