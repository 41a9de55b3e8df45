//! The graph: values and the nodes that make them, in SSA order (a node's inputs stand before it).

use crate::ops::Op;
use base::{DType, Shape};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

/// Shape and element type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Meta {
    pub shape: Shape,
    pub dtype: DType,
}

impl Meta {
    pub fn new(shape: impl Into<Shape>, dtype: DType) -> Meta {
        Meta { shape: shape.into(), dtype }
    }

    pub fn bytes(&self) -> u64 {
        self.dtype.tensor_bytes(&self.shape) as u64
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Written by the caller before each run.
    Input(String),
    /// A frozen tensor of the checkpoint, by canonical name.
    Weight(String),
    /// A trained tensor (always f32), by name.
    Param(String),
    /// Output number `output` of a node.
    Node { node: NodeId, output: usize },
}

#[derive(Clone, Debug)]
pub struct Value {
    pub meta: Meta,
    pub source: Source,
}

#[derive(Clone, Debug)]
pub struct Node {
    pub op: Op,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    /// The stretch of the forward that this node, or the node whose gradient it computes, belongs to, if it may be recomputed.
    pub segment: Option<SegmentId>,
    /// Backward nodes and recomputed forward nodes.
    pub backward: bool,
}

/// A stretch of the forward (a resnet block, a transformer block) that the backward may compute again instead of keeping it.
#[derive(Clone, Debug)]
pub struct Segment {
    pub name: String,
}

#[derive(Clone, Debug, Default)]
pub struct Graph {
    pub values: Vec<Value>,
    pub nodes: Vec<Node>,
    pub segments: Vec<Segment>,
    /// Values that the caller reads after a run, by name.
    pub outputs: BTreeMap<String, ValueId>,
    /// (parameter, its gradient): the gradient is added into the parameter's place in the gradient buffer.
    /// A parameter that is used twice appears twice.
    pub gradients: Vec<(ValueId, ValueId)>,
}

impl Graph {
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.0 as usize]
    }

    pub fn meta(&self, id: ValueId) -> &Meta {
        &self.value(id).meta
    }

    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    pub fn metas(&self, ids: &[ValueId]) -> Vec<&Meta> {
        ids.iter().map(|id| self.meta(*id)).collect()
    }

    pub fn value_ids(&self) -> impl Iterator<Item = ValueId> + use<> {
        (0..self.values.len() as u32).map(ValueId)
    }

    fn leaves<'a>(&'a self, pick: impl Fn(&'a Source) -> Option<&'a str> + 'a) -> impl Iterator<Item = (&'a str, ValueId)> + 'a {
        self.values.iter().enumerate().filter_map(move |(i, v)| pick(&v.source).map(|name| (name, ValueId(i as u32))))
    }

    pub fn inputs(&self) -> impl Iterator<Item = (&str, ValueId)> {
        self.leaves(|s| if let Source::Input(name) = s { Some(name) } else { None })
    }

    pub fn weights(&self) -> impl Iterator<Item = (&str, ValueId)> {
        self.leaves(|s| if let Source::Weight(name) = s { Some(name) } else { None })
    }

    pub fn params(&self) -> impl Iterator<Item = (&str, ValueId)> {
        self.leaves(|s| if let Source::Param(name) = s { Some(name) } else { None })
    }

    /// Appends a node and the values that it makes.
    pub fn push(&mut self, op: Op, inputs: &[ValueId], segment: Option<SegmentId>, backward: bool) -> Vec<ValueId> {
        let metas = op.rule().outputs(&self.metas(inputs));
        let node = NodeId(self.nodes.len() as u32);
        let outputs: Vec<ValueId> = metas
            .into_iter()
            .enumerate()
            .map(|(output, meta)| {
                self.values.push(Value { meta, source: Source::Node { node, output } });
                ValueId(self.values.len() as u32 - 1)
            })
            .collect();
        self.nodes.push(Node { op, inputs: inputs.to_vec(), outputs: outputs.clone(), segment, backward });
        outputs
    }
}
