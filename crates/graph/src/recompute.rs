//! Which segments the backward computes again, so that the arena fits into a limit at the least cost in time.
//!
//! Up to [`EXACT`] free segments every subset is a candidate, so the answer is the cheapest there is. Beyond, a model of the peak
//! ([`peaks`]) proposes subsets; from the cheapest ones that fit, a descent drops segments and exchanges them for cheaper ones as long
//! as that fits too. Whatever the way, the real planner judges every step. On random graphs of a few segments, where the exact answer is
//! known, the searched choices take under 1 % more extra time, all together (`conform/tests/recompute.rs`).

mod peaks;
mod search;

use crate::autodiff::{Recompute, differentiate};
use crate::cost::Cost;
use crate::graph::{Graph, Node, ValueId};
use crate::plan::{Plan, Scratch};
use search::Search;
use std::collections::BTreeSet;

/// Most free segments of which all subsets are tried.
pub const EXACT: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// All subsets are candidates.
    Exact,
    /// Proposals of a model, and a descent from them.
    Search,
}

/// A choice among the segments of a run's training graphs, which all have the same ones.
pub struct Problem<'a> {
    /// Forward graphs, one for each shape, with their losses. The first is the one that costs are counted on.
    pub forwards: &'a [(Graph, ValueId)],
    pub scratch: Scratch<'a>,
    /// Seconds of a node of this cost.
    pub seconds: &'a dyn Fn(&Cost) -> f64,
    /// Segments that are computed again in any case.
    pub floor: Recompute,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    pub recompute: Recompute,
    /// The largest arena among the forwards'.
    pub arena_bytes: u64,
    /// Plans that were made to find it.
    pub plans: usize,
}

impl Problem<'_> {
    pub fn method(&self) -> Method {
        if self.free().len() <= EXACT { Method::Exact } else { Method::Search }
    }

    /// The cheapest choice found whose arenas all fit into `limit`.
    pub fn cheapest(&self, limit: u64) -> Option<Choice> {
        self.cheapest_by(self.method(), limit)
    }

    /// The same by a method of the caller's choice.
    pub fn cheapest_by(&self, method: Method, limit: u64) -> Option<Choice> {
        let mut search = Search::new(self, limit);
        let best = match method {
            Method::Exact => search.first_fits(self.subsets(), 1).pop(),
            Method::Search => search.run(),
        };
        best.map(|(recompute, arena_bytes)| Choice { recompute: Recompute(recompute), arena_bytes, plans: search.plans() })
    }

    /// The choice of the least memory found: seldom, but sometimes, it is not everything.
    pub fn least(&self) -> Choice {
        let mut search = Search::new(self, u64::MAX);
        let (recompute, arena_bytes) = match self.method() {
            Method::Exact => search.least_of(self.subsets()),
            Method::Search => search.least(),
        };
        Choice { recompute: Recompute(recompute), arena_bytes, plans: search.plans() }
    }

    /// The largest arena of a choice.
    pub fn arena_bytes(&self, recompute: &Recompute) -> u64 {
        let arena = |(graph, loss): &(Graph, ValueId)| Plan::new(&differentiate(graph.clone(), *loss, recompute), self.scratch).arena_bytes;
        self.forwards.iter().map(arena).max().unwrap_or(0)
    }

    /// Everything computed again: about the least memory.
    pub fn all(&self) -> Recompute {
        self.forwards.first().map_or_else(Recompute::none, |(graph, _)| Recompute::all(graph))
    }

    /// Seconds of a whole step's graph.
    pub fn step_seconds(&self, recompute: &Recompute) -> f64 {
        self.forwards.first().map_or(0.0, |(graph, loss)| self.graph_seconds(&differentiate(graph.clone(), *loss, recompute)))
    }

    fn graph_seconds(&self, graph: &Graph) -> f64 {
        let cost = |node: &Node| node.op.rule().cost(&graph.metas(&node.inputs), &graph.metas(&node.outputs));
        graph.nodes.iter().map(|node| (self.seconds)(&cost(node))).sum()
    }

    /// Segments about which there is a choice.
    fn free(&self) -> Vec<u32> {
        self.all().0.difference(&self.floor.0).copied().collect()
    }

    fn subsets(&self) -> Vec<BTreeSet<u32>> {
        let free = self.free();
        let chosen = |bits: usize| free.iter().enumerate().filter(move |(i, _)| bits >> i & 1 == 1).map(|(_, s)| *s);
        (0..1usize << free.len()).map(|bits| chosen(bits).chain(self.floor.0.iter().copied()).collect()).collect()
    }
}
