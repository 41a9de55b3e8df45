//! The contract of a graph, as code: run between passes in tests and debug builds.

use crate::graph::{Graph, Source};

/// Checks SSA order, shapes and gradient targets; the message names the first node that breaks the contract.
pub fn verify(graph: &Graph) -> Result<(), String> {
    let mut made = vec![false; graph.values.len()];
    for (i, value) in graph.values.iter().enumerate() {
        made[i] = !matches!(value.source, Source::Node { .. });
    }
    for (i, node) in graph.nodes.iter().enumerate() {
        let name = node.op.name();
        if let Some(v) = node.inputs.iter().find(|v| !made[v.0 as usize]) {
            return Err(format!("node {i} {name} reads {v:?} before it is made"));
        }
        let metas = node.op.rule().outputs(&graph.metas(&node.inputs));
        if metas.iter().ne(graph.metas(&node.outputs)) {
            return Err(format!("node {i} {name} makes other shapes than the graph says"));
        }
        for (output, v) in node.outputs.iter().enumerate() {
            made[v.0 as usize] = true;
            let is_gradient = graph.gradients.iter().any(|(_, g)| g == v);
            if is_gradient != (output >= node.op.rule().accumulates_from()) {
                return Err(format!("node {i} {name}: output {output} must accumulate exactly if it is a parameter's gradient"));
            }
        }
    }
    for (param, gradient) in &graph.gradients {
        if graph.meta(*param).shape != graph.meta(*gradient).shape || !matches!(graph.value(*param).source, Source::Param(_)) {
            return Err(format!("{gradient:?} is no gradient of {param:?}"));
        }
    }
    Ok(())
}
