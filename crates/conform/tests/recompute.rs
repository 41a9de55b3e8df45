//! Choosing segments for recompute: by search against all subsets.
#![allow(clippy::unwrap_used)]

use base::DType;
use conform::random_graph::RandomGraph;
use conform::rng;
use graph::recompute::{EXACT, Method, Problem};
use graph::{Cost, Recompute};

/// Extra seconds of a choice, by the measure that it is made with.
fn extra(problem: &Problem, recompute: &Recompute) -> f64 {
    problem.step_seconds(recompute) - problem.step_seconds(&problem.floor)
}

/// What all comparisons of exact and found choices come to.
#[derive(Default)]
struct Sums {
    exact: f64,
    found: f64,
    choices: usize,
    dearer: usize,
}

/// Compares both ways at `limits` limits between everything kept and everything computed again.
fn compare(random: &RandomGraph, limits: u64, about: &str, sums: &mut Sums) {
    let forwards = [(random.graph.clone(), random.loss)];
    let seconds = |cost: &Cost| cost.flops + cost.bytes;
    let problem = Problem { forwards: &forwards, scratch: &|_, _, _| 0, seconds: &seconds, floor: Recompute::none() };
    let (none, all) = (problem.arena_bytes(&Recompute::none()), problem.arena_bytes(&problem.all()));
    assert!(problem.least().arena_bytes <= none.min(all), "{about}");
    let mut last = 0.0;
    for limit in (0..=limits).map(|i| all.min(none) + all.abs_diff(none) * (limits - i) / limits) {
        let Some(exact) = problem.cheapest_by(Method::Exact, limit) else { continue };
        let about = format!("{about}, limit {limit} of {all} to {none}");
        let found = problem.cheapest_by(Method::Search, limit).unwrap_or_else(|| panic!("{about}: nothing was found"));
        for choice in [&exact, &found] {
            assert!(choice.arena_bytes <= limit, "{about}");
            assert_eq!(problem.arena_bytes(&choice.recompute), choice.arena_bytes, "{about}");
        }
        let (best, near) = (extra(&problem, &exact.recompute), extra(&problem, &found.recompute));
        assert!(best >= last * (1.0 - 1e-9), "{about}: less memory takes less time, {best} after {last}");
        last = best;
        assert!(near >= best * (1.0 - 1e-9), "{about}: {near} is better than the best, {best}");
        sums.exact += best;
        sums.found += near;
        sums.choices += 1;
        sums.dearer += usize::from(near > best * (1.0 + 1e-9));
    }
}

#[test]
fn a_search_finds_nearly_what_all_subsets_hold() {
    let mut rng = rng("recompute by search");
    let mut sums = Sums::default();
    for number in 0..20 {
        compare(&RandomGraph::new(DType::F32, &mut rng), 10, &format!("short graph {number}"), &mut sums);
    }
    assert!(sums.choices > 150, "only {} choices were compared", sums.choices);
    assert_eq!(sums.dearer, 0, "of few segments the best choice is always found");
    let mut sums = Sums::default();
    while sums.choices < 60 {
        let random = RandomGraph::of_parts(DType::F32, &mut rng, 12);
        if (8..=EXACT).contains(&random.graph.segments.len()) {
            compare(&random, 10, "long graph", &mut sums);
        }
    }
    let Sums { exact, found, choices, dearer } = sums;
    println!("{dearer} of {choices} choices are dearer than the best; all together {found} to {exact}");
    assert!(found <= 1.005 * exact, "the found choices take {found} where the best take {exact}");
}

#[test]
fn a_floor_is_kept_and_a_limit_that_nothing_fits_gives_nothing() {
    let mut rng = rng("recompute floors");
    for number in 0..20 {
        let random = RandomGraph::new(DType::F32, &mut rng);
        let last = random.graph.segments.len() as u32;
        let Some(last) = last.checked_sub(1) else { continue };
        let floor = Recompute([last].into());
        let forwards = [(random.graph.clone(), random.loss)];
        let problem = Problem { forwards: &forwards, scratch: &|_, _, _| 0, seconds: &|cost| cost.flops + 1.0, floor: floor.clone() };
        for method in [Method::Exact, Method::Search] {
            assert_eq!(problem.cheapest_by(method, u64::MAX).unwrap().recompute, floor, "graph {number}: no limit, nothing more");
            let tight = problem.arena_bytes(&floor) - 1;
            if let Some(choice) = problem.cheapest_by(method, tight) {
                assert!(choice.recompute.0.is_superset(&floor.0) && choice.arena_bytes <= tight, "graph {number}");
            }
            assert_eq!(problem.cheapest_by(method, 0), None);
        }
    }
}
