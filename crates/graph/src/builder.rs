//! Writes a graph forward. Each op's file adds its method here (`b.silu(x)`), so that model code reads like the paper.
//!
//! A wrong shape inside a graph is a bug of the model code and panics; that a checkpoint's tensors have the shapes that the graph
//! asks for is checked when the graph is bound to the checkpoint, with an error that names the tensor.

use crate::graph::{Graph, Meta, Segment, SegmentId, Source, Value, ValueId};
use crate::ops::Op;
use base::{DType, Shape};
use std::collections::HashMap;

/// Tells the stored element type of a frozen matrix by its name; rank-1 weights are always f32.
pub type WeightDType = Box<dyn Fn(&str) -> DType>;

pub struct Builder {
    pub graph: Graph,
    /// Type of activations: f32, bf16 or f16.
    pub dtype: DType,
    weight_dtype: WeightDType,
    leaves: HashMap<String, ValueId>,
    segment: Option<SegmentId>,
}

impl Builder {
    pub fn new(dtype: DType, weight_dtype: WeightDType) -> Builder {
        assert!(matches!(dtype, DType::F32 | DType::BF16 | DType::F16), "activations are floats, not {dtype}");
        Builder { graph: Graph::default(), dtype, weight_dtype, leaves: HashMap::new(), segment: None }
    }

    fn leaf(&mut self, key: String, meta: Meta, source: Source) -> ValueId {
        if let Some(id) = self.leaves.get(&key) {
            assert_eq!(self.graph.meta(*id), &meta, "{key} is asked for twice in different forms");
            return *id;
        }
        self.graph.values.push(Value { meta, source });
        let id = ValueId(self.graph.values.len() as u32 - 1);
        self.leaves.insert(key, id);
        id
    }

    /// A value that the caller writes before each run.
    pub fn input(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> ValueId {
        self.leaf(format!("input {name}"), Meta::new(shape, dtype), Source::Input(name.into()))
    }

    /// A frozen tensor, by canonical name. Rank-4 shapes are `[out, kh, kw, in]`.
    pub fn weight(&mut self, name: &str, shape: impl Into<Shape>) -> ValueId {
        let shape = shape.into();
        let dtype = if shape.rank() < 2 { DType::F32 } else { (self.weight_dtype)(name) };
        self.leaf(format!("weight {name}"), Meta { shape, dtype }, Source::Weight(name.into()))
    }

    /// A trained tensor (f32), by name.
    pub fn param(&mut self, name: &str, shape: impl Into<Shape>) -> ValueId {
        self.leaf(format!("param {name}"), Meta::new(shape, DType::F32), Source::Param(name.into()))
    }

    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Vec<ValueId> {
        self.graph.push(op.into(), inputs, self.segment, false)
    }

    /// Pushes an op that has one output.
    pub fn push_one(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> ValueId {
        self.push(op, inputs)[0]
    }

    pub fn shape(&self, id: ValueId) -> &Shape {
        &self.graph.meta(id).shape
    }

    /// Marks everything that `body` builds as one stretch that the backward may recompute. Segments don't nest.
    pub fn segment<T>(&mut self, name: &str, body: impl FnOnce(&mut Builder) -> T) -> T {
        assert!(self.segment.is_none(), "segment {name} stands inside another one");
        self.graph.segments.push(Segment { name: name.into() });
        self.segment = Some(SegmentId(self.graph.segments.len() as u32 - 1));
        let result = body(self);
        self.segment = None;
        result
    }

    /// Names a value that the caller reads after a run.
    pub fn output(&mut self, name: &str, id: ValueId) {
        let before = self.graph.outputs.insert(name.into(), id);
        assert!(before.is_none(), "two outputs are named {name}");
    }

    pub fn finish(self) -> Graph {
        self.graph
    }
}
