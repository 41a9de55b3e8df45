//! Random graphs through their plans: run from offsets in one arena, they must give what a run without a plan gives.

use base::DType;
use conform::compare::relative_error;
use conform::oracle_backend::OracleBackend;
use conform::planned::Planned;
use conform::random_graph::RandomGraph;
use conform::rng;
use cpu::Cpu;
use graph::{Graph, Recompute, differentiate, verify::verify};

fn trained(random: &RandomGraph, recompute: bool) -> Graph {
    let chosen = if recompute { Recompute::all(&random.graph) } else { Recompute::none() };
    let graph = differentiate(random.graph.clone(), random.loss, &chosen);
    verify(&graph).unwrap();
    graph
}

/// Runs `graph` by its plan on a backend and compares everything that can be read with the oracle.
fn compare(random: &RandomGraph, graph: &Graph, backend: &mut dyn engine::Backend, tolerance: f64, about: &str) {
    let want = random.run(graph);
    let mut planned = Planned::new(graph, random, backend);
    planned.run();
    for (name, got) in planned.outputs() {
        let error = relative_error(&got, want.output(&name));
        assert!(error <= tolerance, "{about}: output {name} is off by {error:.2e}");
    }
    for (name, got) in planned.gradients() {
        match want.gradients.get(&name) {
            Some(want) => {
                let error = relative_error(&got, want);
                assert!(error <= tolerance, "{about}: gradient of {name} is off by {error:.2e}");
            }
            None => assert!(got.data.iter().all(|v| *v == 0.0), "{about}: {name} is not used, yet has a gradient"),
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
                compare(&random, &graph, &mut OracleBackend::new(scratch), 1e-6, &about);
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
        compare(&random, &graph, &mut Cpu::with_threads(2).unwrap(), 1e-3, &format!("graph {number}"));
    }
}

#[test]
fn the_cpu_runs_whole_graphs_in_bf16_near_the_oracle() {
    let mut rng = rng("graphs on the cpu in bf16");
    for number in 0..20 {
        let random = RandomGraph::new(DType::BF16, &mut rng);
        let graph = trained(&random, number % 2 == 1);
        compare(&random, &graph, &mut Cpu::with_threads(2).unwrap(), 0.1, &format!("graph {number}"));
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
