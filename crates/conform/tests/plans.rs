//! Random graphs through their plans: run from offsets in one arena, they must give what a run without a plan gives.

use base::DType;
use conform::compare::error_against;
use conform::oracle_backend::OracleBackend;
use conform::planned::Planned;
use conform::random_graph::RandomGraph;
use conform::rng;
use cpu::Cpu;
use graph::{Array, Graph, Recompute, ValueId, differentiate, verify::verify};
use std::collections::HashMap;

fn cpu() -> Cpu {
    Cpu::with_threads(2).expect("a machine with threads")
}

fn trained(random: &RandomGraph, recompute: bool) -> Graph {
    let chosen = if recompute { Recompute::all(&random.graph) } else { Recompute::none() };
    let graph = differentiate(random.graph.clone(), random.loss, &chosen);
    verify(&graph).expect("a graph that keeps the contract");
    graph
}

/// What can be read after a run.
struct Results {
    outputs: HashMap<String, Array>,
    gradients: HashMap<String, Array>,
}

/// Runs `graph` by its plan on a backend.
fn planned(random: &RandomGraph, graph: &Graph, backend: &mut dyn engine::Backend) -> Results {
    let mut planned = Planned::new(graph, random, backend);
    planned.run();
    Results { outputs: planned.outputs(), gradients: planned.gradients() }
}

/// The oracle's results; parameters that no node reads have zero gradients.
fn unplanned(random: &RandomGraph, graph: &Graph) -> Results {
    let run = random.run(graph);
    let gradient = |(name, id): (&str, ValueId)| {
        let zeros = || Array::zeros(graph.meta(id).shape.clone());
        (name.to_owned(), run.gradients.get(name).cloned().unwrap_or_else(zeros))
    };
    Results {
        outputs: graph.outputs.keys().map(|name| (name.clone(), run.output(name).clone())).collect(),
        gradients: graph.params().map(gradient).collect(),
    }
}

/// Root mean square over all arrays.
fn size(arrays: &HashMap<String, Array>) -> f64 {
    let values = || arrays.values().flat_map(|a| &a.data);
    (values().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values().count() as f64).sqrt()
}

/// How near two runs must be. Gradients that are small (of what stands before a norm, say, zero but for rounding) are measured by this
/// share of the size of all of them.
struct Near {
    tolerance: f64,
    share: f64,
}

const F32: Near = Near { tolerance: 1e-3, share: 0.02 };

fn compare(got: &Results, want: &Results, near: &Near, about: &str) {
    for (kind, got, want) in [("output", &got.outputs, &want.outputs), ("gradient of", &got.gradients, &want.gradients)] {
        assert_eq!(got.len(), want.len());
        let all = size(want);
        for (name, got) in got {
            let error = error_against(got, &want[name], near.share * all);
            let own = size(&HashMap::from([(name.clone(), want[name].clone())]));
            assert!(error <= near.tolerance, "{about}: {kind} {name} (of size {own:.1e}, all together {all:.1e}) is off by {error:.2e}");
        }
    }
}

#[test]
fn a_plan_changes_no_result() {
    let mut rng = rng("plans");
    for number in 0..60 {
        let random = RandomGraph::new(DType::F32, &mut rng);
        for recompute in [false, true] {
            let graph = trained(&random, recompute);
            for scratch in [0, 200] {
                let about = format!("graph {number}, recompute {recompute}, scratch {scratch}");
                // Sums of gradients may run in another order.
                compare(
                    &planned(&random, &graph, &mut OracleBackend::new(scratch)),
                    &unplanned(&random, &graph),
                    &Near { tolerance: 1e-6, ..F32 },
                    &about,
                );
            }
        }
    }
}

#[test]
fn the_cpu_runs_whole_graphs_like_the_oracle() {
    let mut rng = rng("graphs on the cpu");
    for number in 0..20 {
        let random = RandomGraph::new(DType::F32, &mut rng);
        let graph = trained(&random, number % 2 == 1);
        compare(&planned(&random, &graph, &mut cpu()), &unplanned(&random, &graph), &F32, &format!("graph {number}"));
    }
}

/// ‖got − want‖ / ‖want‖ over all gradients together.
fn distance(got: &Results, want: &Results) -> f64 {
    let difference = want.gradients.iter().map(|(name, w)| (name.clone(), w.zip(&got.gradients[name], |w, g| w - g))).collect();
    size(&difference) / size(&want.gradients)
}

/// How far rounding every value to half the bits moves the gradients depends on the graph: the oracle as a backend, which does just
/// that, tells.
#[test]
fn the_cpu_in_half_the_bits_is_about_as_near_as_rounding_allows() {
    let mut rng = rng("graphs on the cpu in bf16");
    for number in 0..40 {
        let random = RandomGraph::new(if number < 20 { DType::BF16 } else { DType::F16 }, &mut rng);
        let graph = trained(&random, number % 2 == 1);
        let exact = unplanned(&random, &graph);
        let rounding = distance(&planned(&random, &graph, &mut OracleBackend::new(0)), &exact);
        let error = distance(&planned(&random, &graph, &mut cpu()), &exact);
        assert!(error <= 2.5 * rounding + 0.01, "graph {number}: off by {error:.2e}, where rounding alone makes {rounding:.2e}");
    }
}

#[test]
fn the_report_of_the_peak_adds_up_to_it() {
    let mut rng = rng("arena");
    let bytes = |graph: &Graph| graph::Plan::new(graph, &|_, _, _| 0);
    for number in 0..60 {
        let random = RandomGraph::new(DType::F32, &mut rng);
        for recompute in [false, true] {
            let plan = bytes(&trained(&random, recompute));
            assert!(plan.floor_bytes <= plan.arena_bytes, "graph {number}");
            let held: u64 = plan.holders(&trained(&random, recompute)).iter().map(|h| h.bytes).sum();
            assert_eq!(held, plan.floor_bytes, "graph {number}: the report does not add up to the peak");
        }
    }
}
