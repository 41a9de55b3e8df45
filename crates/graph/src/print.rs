//! A graph as text, a line a node: for snapshots and for people.

use crate::graph::{Graph, Source};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, value) in self.values.iter().enumerate() {
            let (kind, name) = match &value.source {
                Source::Input(name) => ("input", name),
                Source::Weight(name) => ("weight", name),
                Source::Param(name) => ("param", name),
                Source::Node { .. } => continue,
            };
            writeln!(f, "%{i} = {kind} {name} {} {}", value.meta.shape, value.meta.dtype)?;
        }
        for node in &self.nodes {
            let outputs: Vec<String> =
                node.outputs.iter().map(|v| format!("%{} {} {}", v.0, self.meta(*v).shape, self.meta(*v).dtype)).collect();
            let inputs: Vec<String> = node.inputs.iter().map(|v| format!("%{}", v.0)).collect();
            let segment = node.segment.map(|s| format!("  ; {}", self.segments[s.0 as usize].name)).unwrap_or_default();
            writeln!(f, "{} = {:?}({}){segment}", outputs.join(", "), node.op, inputs.join(", "))?;
        }
        for (name, id) in &self.outputs {
            writeln!(f, "output {name} = %{}", id.0)?;
        }
        Ok(())
    }
}
