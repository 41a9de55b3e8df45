//! The gradient graph: reverse walk over the forward, by each op's rule, only towards trained parameters.
//!
//! Segments chosen for recompute ([`Recompute`]) are built once more, from their inputs, right before their backward; rules then see the
//! recomputed values, so the first ones die early. What nobody reads is removed at the end (a segment's last linear layer is never
//! computed twice).

use crate::graph::{Graph, Node, NodeId, SegmentId, Source, Value, ValueId};
use crate::ops::Op;
use std::collections::{BTreeSet, HashMap};

/// Which segments the backward computes again, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recompute(pub BTreeSet<u32>);

impl Recompute {
    pub fn none() -> Recompute {
        Recompute::default()
    }

    pub fn all(graph: &Graph) -> Recompute {
        Recompute((0..graph.segments.len() as u32).collect())
    }

    /// The segments whose name contains one of `patterns`.
    pub fn matching(graph: &Graph, patterns: &[String]) -> Recompute {
        let chosen = |name: &str| patterns.iter().any(|p| name.contains(p.as_str()));
        Recompute((0..graph.segments.len() as u32).filter(|i| chosen(&graph.segments[*i as usize].name)).collect())
    }
}

/// What an op's gradient rule sees: its own node (with recomputed values where chosen) and the gradients of its outputs.
pub struct Adjoint<'a> {
    graph: &'a mut Graph,
    segment: Option<SegmentId>,
    pub inputs: Vec<ValueId>,
    pub outputs: Vec<ValueId>,
    upstream: Vec<Option<ValueId>>,
    wanted: Vec<bool>,
    gradients: Vec<Option<ValueId>>,
}

impl Adjoint<'_> {
    /// The gradient of output `index`. The walk only calls a rule when output 0 has one.
    pub fn upstream(&self, index: usize) -> ValueId {
        self.upstream[index].expect("the walk calls a rule only with a gradient of its first output")
    }

    /// Whether input `index` leads to a trained parameter.
    pub fn wanted(&self, index: usize) -> bool {
        self.wanted[index]
    }

    pub fn push(&mut self, op: impl Into<Op>, inputs: &[ValueId]) -> Vec<ValueId> {
        self.graph.push(op.into(), inputs, self.segment, true)
    }

    /// States the gradient of input `index`.
    pub fn set(&mut self, index: usize, gradient: ValueId) {
        self.gradients[index] = Some(gradient);
    }

    pub fn shape(&self, id: ValueId) -> base::Shape {
        self.graph.meta(id).shape.clone()
    }

    pub fn dtype(&self, id: ValueId) -> base::DType {
        self.graph.meta(id).dtype
    }
}

/// Appends the backward of `loss` to `graph` and removes what nobody reads. `loss` is the output of an op that starts a backward by
/// itself (a loss op: its own gradient counts as 1).
pub fn differentiate(mut graph: Graph, loss: ValueId, recompute: &Recompute) -> Graph {
    let wanted = reaches_param(&graph);
    assert!(wanted[loss.0 as usize], "the loss depends on no trained parameter");
    let mut walk =
        Walk { forward: graph.nodes.len(), wanted, gradients: HashMap::new(), recomputed: HashMap::new(), done: BTreeSet::new() };
    for index in (0..walk.forward).rev() {
        walk.visit(&mut graph, NodeId(index as u32), loss, recompute);
    }
    let params: Vec<ValueId> = graph.params().map(|(_, id)| id).collect();
    for param in params {
        for gradient in walk.gradients.remove(&param).unwrap_or_default() {
            graph.gradients.push((param, gradient));
        }
    }
    without_dead_nodes(&graph)
}

/// For each value: does a trained parameter stand before it?
fn reaches_param(graph: &Graph) -> Vec<bool> {
    let mut wanted: Vec<bool> = graph.values.iter().map(|v| matches!(v.source, Source::Param(_))).collect();
    for node in &graph.nodes {
        if node.inputs.iter().any(|v| wanted[v.0 as usize]) {
            node.outputs.iter().for_each(|v| wanted[v.0 as usize] = true);
        }
    }
    wanted
}

struct Walk {
    /// Number of forward nodes.
    forward: usize,
    wanted: Vec<bool>,
    /// Gradients of a value so far: one sum for ordinary values, a list for parameters (their place accumulates).
    gradients: HashMap<ValueId, Vec<ValueId>>,
    /// Forward value → its recomputed twin.
    recomputed: HashMap<ValueId, ValueId>,
    done: BTreeSet<u32>,
}

impl Walk {
    fn visit(&mut self, graph: &mut Graph, id: NodeId, loss: ValueId, recompute: &Recompute) {
        let node = graph.node(id).clone();
        let is_loss = node.outputs[0] == loss;
        let upstream: Vec<Option<ValueId>> = node.outputs.iter().map(|o| self.gradients.get(o).map(|g| g[0])).collect();
        if !self.wanted[node.outputs[0].0 as usize] || (!is_loss && upstream[0].is_none()) {
            return;
        }
        if let Some(segment) = node.segment.filter(|s| recompute.0.contains(&s.0) && self.done.insert(s.0)) {
            self.emit_again(graph, segment.0);
        }
        // A rule sees recomputed values only inside the segment that they belong to: other segments keep what crosses the border.
        let twin = |v: &ValueId| match (node.segment, &graph.value(*v).source) {
            (Some(segment), Source::Node { node: maker, .. }) if graph.node(*maker).segment == Some(segment) => {
                self.recomputed.get(v).copied().unwrap_or(*v)
            }
            _ => *v,
        };
        let inputs = node.inputs.iter().map(twin).collect();
        let outputs = node.outputs.iter().map(twin).collect();
        let wanted: Vec<bool> = node.inputs.iter().map(|v| self.wanted[v.0 as usize]).collect();
        let gradients = vec![None; node.inputs.len()];
        let mut adjoint = Adjoint { graph, segment: node.segment, inputs, outputs, upstream, wanted, gradients };
        node.op.rule().gradient(&mut adjoint);
        let Adjoint { gradients, wanted, .. } = adjoint;
        for ((input, gradient), wanted) in node.inputs.iter().zip(gradients).zip(wanted) {
            assert!(!wanted || gradient.is_some(), "{} states no gradient for a wanted input", node.op.name());
            if let Some(gradient) = gradient.filter(|_| wanted) {
                self.add(graph, *input, gradient);
            }
        }
    }

    fn add(&mut self, graph: &mut Graph, value: ValueId, gradient: ValueId) {
        let is_param = matches!(graph.value(value).source, Source::Param(_));
        let list = self.gradients.entry(value).or_default();
        match list.first() {
            Some(sum) if !is_param => list[0] = graph.push(crate::ops::Add.into(), &[*sum, gradient], None, true)[0],
            _ => list.push(gradient),
        }
    }

    fn emit_again(&mut self, graph: &mut Graph, segment: u32) {
        let nodes: Vec<Node> = graph.nodes[..self.forward].iter().filter(|n| n.segment.is_some_and(|s| s.0 == segment)).cloned().collect();
        for node in nodes {
            let inputs: Vec<ValueId> = node.inputs.iter().map(|v| self.recomputed_in(graph, segment, *v)).collect();
            let outputs = graph.push(node.op, &inputs, node.segment, true);
            self.recomputed.extend(node.outputs.iter().copied().zip(outputs));
        }
    }

    fn recomputed_in(&self, graph: &Graph, segment: u32, value: ValueId) -> ValueId {
        match graph.value(value).source {
            Source::Node { node, .. } if graph.node(node).segment.is_some_and(|s| s.0 == segment) => self.recomputed[&value],
            _ => value,
        }
    }
}

/// The same graph without nodes that lead to no output and no parameter gradient, and without leaves that nobody reads.
fn without_dead_nodes(graph: &Graph) -> Graph {
    let mut live = vec![false; graph.values.len()];
    graph.outputs.values().chain(graph.gradients.iter().map(|(_, g)| g)).for_each(|v| live[v.0 as usize] = true);
    let mut keep = vec![false; graph.nodes.len()];
    for (index, node) in graph.nodes.iter().enumerate().rev() {
        keep[index] = node.outputs.iter().any(|v| live[v.0 as usize]);
        if keep[index] {
            node.inputs.iter().for_each(|v| live[v.0 as usize] = true);
        }
    }
    let mut renamed: HashMap<ValueId, ValueId> = HashMap::new();
    let mut out = Graph { segments: graph.segments.clone(), ..Graph::default() };
    for id in graph.value_ids() {
        let value = graph.value(id);
        // Parameters stay even when unread: their place in the gradient buffer must exist for every program of a run.
        let stays = matches!(value.source, Source::Param(_)) || live[id.0 as usize];
        if stays && !matches!(value.source, Source::Node { .. }) {
            out.values.push(Value { meta: value.meta.clone(), source: value.source.clone() });
            renamed.insert(id, ValueId(out.values.len() as u32 - 1));
        }
    }
    for (node, _) in graph.nodes.iter().zip(&keep).filter(|(_, keep)| **keep) {
        let inputs: Vec<ValueId> = node.inputs.iter().map(|v| renamed[v]).collect();
        let outputs = out.push(node.op.clone(), &inputs, node.segment, node.backward);
        renamed.extend(node.outputs.iter().copied().zip(outputs));
    }
    out.outputs = graph.outputs.iter().map(|(name, v)| (name.clone(), renamed[v])).collect();
    out.gradients = graph.gradients.iter().map(|(p, g)| (renamed[p], renamed[g])).collect();
    out
}
