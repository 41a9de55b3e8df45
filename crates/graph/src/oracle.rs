//! The oracle: runs a graph in plain f32, one obvious loop an op. Every kernel of every backend is tested against it.

use crate::graph::{Graph, Source, ValueId};
use base::Shape;
use std::collections::HashMap;

/// A tensor in f32; ids and counters are stored as whole numbers (below 2²⁴).
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    pub shape: Shape,
    pub data: Vec<f32>,
}

impl Array {
    pub fn new(shape: impl Into<Shape>, data: Vec<f32>) -> Array {
        let shape = shape.into();
        assert_eq!(shape.elements(), data.len(), "{shape} needs another number of elements");
        Array { shape, data }
    }

    pub fn zeros(shape: impl Into<Shape>) -> Array {
        let shape = shape.into();
        let data = vec![0.0; shape.elements()];
        Array { shape, data }
    }

    /// Row `i` of the array seen as a matrix of [`Shape::rows`] × [`Shape::channels`].
    pub fn row(&self, i: usize) -> &[f32] {
        let c = self.shape.channels();
        &self.data[i * c..(i + 1) * c]
    }

    pub fn row_mut(&mut self, i: usize) -> &mut [f32] {
        let c = self.shape.channels();
        &mut self.data[i * c..(i + 1) * c]
    }

    /// The same shape, each element through `f`.
    pub fn map(&self, f: impl Fn(f32) -> f32) -> Array {
        Array { shape: self.shape.clone(), data: self.data.iter().map(|v| f(*v)).collect() }
    }

    pub fn zip(&self, other: &Array, f: impl Fn(f32, f32) -> f32) -> Array {
        assert_eq!(self.shape, other.shape);
        Array { shape: self.shape.clone(), data: self.data.iter().zip(&other.data).map(|(a, b)| f(*a, *b)).collect() }
    }
}

/// Results of a run of the oracle.
pub struct Run {
    values: Vec<Option<Array>>,
    outputs: HashMap<String, ValueId>,
    /// Sum of the gradients of each parameter, by name.
    pub gradients: HashMap<String, Array>,
}

impl Run {
    pub fn output(&self, name: &str) -> &Array {
        self.value(self.outputs[name])
    }

    pub fn value(&self, id: ValueId) -> &Array {
        self.values[id.0 as usize].as_ref().expect("every node was evaluated")
    }
}

/// Evaluates the whole graph. `leaf` gives each input, weight and parameter by its source.
pub fn run(graph: &Graph, leaf: &dyn Fn(&Source) -> Array) -> Run {
    let mut values: Vec<Option<Array>> = vec![None; graph.values.len()];
    for (slot, value) in values.iter_mut().zip(&graph.values) {
        if !matches!(value.source, Source::Node { .. }) {
            let array = leaf(&value.source);
            assert_eq!(array.shape, value.meta.shape, "{:?} was given in another shape", value.source);
            *slot = Some(array);
        }
    }
    for node in &graph.nodes {
        let inputs: Vec<&Array> = node.inputs.iter().map(|v| values[v.0 as usize].as_ref().expect("SSA order")).collect();
        let outputs = node.op.rule().evaluate(&inputs);
        assert_eq!(outputs.len(), node.outputs.len(), "{}", node.op.name());
        for (id, array) in node.outputs.iter().zip(outputs) {
            assert_eq!(array.shape, graph.meta(*id).shape, "{} makes another shape than it says", node.op.name());
            values[id.0 as usize] = Some(array);
        }
    }
    let mut gradients: HashMap<String, Array> = HashMap::new();
    for (param, gradient) in &graph.gradients {
        let Source::Param(name) = &graph.value(*param).source else { unreachable!("gradients are of parameters") };
        let new = values[gradient.0 as usize].as_ref().expect("evaluated");
        let sum = gradients.entry(name.clone()).or_insert_with(|| Array::zeros(new.shape.clone()));
        *sum = sum.zip(new, |a, b| a + b);
    }
    let outputs = graph.outputs.iter().map(|(name, id)| (name.clone(), *id)).collect();
    Run { values, outputs, gradients }
}
