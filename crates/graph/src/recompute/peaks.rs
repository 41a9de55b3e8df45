//! A model of the arena's peak: what lives along the backward, by segment.
//!
//! Walking the backward from the last segment to the first, what lives is what earlier segments keep, and what the segment at hand
//! needs, with or without recompute. Those numbers are read off real plans (of nothing, of everything, and of each segment alone).
//! Dynamic programming over the kept bytes then gives the cheapest subset for each of [`LEVELS`] peaks. What segments share, and what
//! placing storages wastes, the model does not see: it proposes, the planner judges.

use super::Problem;
use crate::autodiff::{Recompute, differentiate};
use crate::graph::Graph;
use crate::plan::{Plan, Scratch};
use std::collections::BTreeSet;

/// Peaks, evenly between nothing and the most, for which the model is asked.
const LEVELS: u64 = 64;
/// Steps in which the model counts kept bytes.
const GRAIN: u64 = 1024;

/// Bytes and seconds that decide about one segment.
#[derive(Clone, Copy, Debug, Default)]
struct Segment {
    /// What keeping it holds until its backward.
    kept: u64,
    /// What computing it again takes.
    seconds: f64,
    /// The most that lives in its backward beside what earlier segments keep: when it was kept, and when it is computed again.
    peak_kept: u64,
    peak_again: u64,
    /// The same between its backward and that of the segment before it.
    after: u64,
}

pub struct Peaks {
    floor: BTreeSet<u32>,
    segments: Vec<Segment>,
}

impl Peaks {
    /// Reads off plans of the problem's first graph what the model needs to know.
    pub fn new(problem: &Problem) -> Peaks {
        let Some((graph, loss)) = problem.forwards.first() else { return Peaks { floor: BTreeSet::new(), segments: Vec::new() } };
        let floor = problem.floor.0.clone();
        let with = |extra: Option<u32>| differentiate(graph.clone(), *loss, &Recompute(floor.iter().copied().chain(extra).collect()));
        let without = with(None);
        let (base, base_seconds) = (Profile::new(&without, problem.scratch), problem.graph_seconds(&without));
        let mut segments = vec![Segment::default(); graph.segments.len()];
        for segment in problem.free() {
            let alone = with(Some(segment));
            let kept = base.kept.saturating_sub(Profile::new(&alone, problem.scratch).kept);
            let seconds = (problem.graph_seconds(&alone) - base_seconds).max(0.0);
            segments[segment as usize] = Segment { kept, seconds, ..Segment::default() };
        }
        let all = Profile::new(&differentiate(graph.clone(), *loss, &problem.all()), problem.scratch);
        let mut before = 0;
        for (i, segment) in segments.iter_mut().enumerate() {
            segment.peak_kept = base.inside[i].saturating_sub(before);
            segment.peak_again = all.inside[i];
            segment.after = base.outside[i].saturating_sub(before).max(all.outside[i]);
            before += segment.kept;
        }
        Peaks { floor, segments }
    }

    /// Seconds that a choice adds to those of the floor.
    pub fn seconds(&self, set: &BTreeSet<u32>) -> f64 {
        set.iter().map(|s| self.segments[*s as usize].seconds).sum()
    }

    /// The peak that the model expects of a choice.
    pub fn of(&self, set: &BTreeSet<u32>) -> u64 {
        let (mut kept, mut peak) = (0, 0);
        for (i, segment) in self.segments.iter().enumerate() {
            let again = set.contains(&(i as u32));
            let inside = if again { segment.peak_again } else { segment.peak_kept };
            peak = peak.max(kept + inside.max(segment.after));
            kept += if again { 0 } else { segment.kept };
        }
        peak
    }

    /// The model's cheapest subset for each of the levels, and both ends.
    pub fn proposals(&self) -> BTreeSet<BTreeSet<u32>> {
        let all: BTreeSet<u32> = (0..self.segments.len() as u32).collect();
        let most = self.of(&self.floor).max(self.of(&all));
        let levels = (1..=LEVELS).filter_map(|level| self.at_peak(most.div_ceil(LEVELS) * level));
        levels.chain([self.floor.clone(), all.clone()]).collect()
    }

    /// The cheapest subset of which the model says that its peak is at most `limit`.
    fn at_peak(&self, limit: u64) -> Option<BTreeSet<u32>> {
        let total: u64 = self.segments.iter().map(|s| s.kept).sum();
        let grain = (total / GRAIN).max(1);
        let mut states = vec![State { kept: 0, seconds: 0.0, set: self.floor.clone() }];
        for (i, segment) in self.segments.iter().enumerate() {
            let mut next = Vec::new();
            let number = i as u32;
            for State { kept, seconds, set } in &states {
                if kept + segment.after > limit {
                    continue;
                }
                let fixed = self.floor.contains(&number);
                if !fixed && kept + segment.peak_kept <= limit {
                    next.push(State { kept: kept + segment.kept, seconds: *seconds, set: set.clone() });
                }
                if kept + segment.peak_again <= limit {
                    let set = set.iter().copied().chain([number]).collect();
                    next.push(State { kept: *kept, seconds: seconds + segment.seconds, set });
                }
            }
            states = undominated(next, grain);
        }
        states.into_iter().min_by(|a, b| a.seconds.total_cmp(&b.seconds)).map(|state| state.set)
    }
}

/// A choice among the segments so far.
struct State {
    kept: u64,
    seconds: f64,
    set: BTreeSet<u32>,
}

/// Drops states that keep as many bytes as another (counted in `grain`) and take longer.
fn undominated(mut states: Vec<State>, grain: u64) -> Vec<State> {
    states.sort_by(|a, b| (a.kept / grain).cmp(&(b.kept / grain)).then(a.seconds.total_cmp(&b.seconds)));
    let mut best = f64::INFINITY;
    states.retain(|state| {
        let better = state.seconds < best;
        best = best.min(state.seconds);
        better
    });
    states
}

/// What lives along a training graph's backward.
struct Profile {
    /// Bytes that the forward leaves to the backward.
    kept: u64,
    /// For each segment, the most that lives while its backward runs, and after it until the next one's begins.
    inside: Vec<u64>,
    outside: Vec<u64>,
}

impl Profile {
    fn new(graph: &Graph, scratch: Scratch) -> Profile {
        let plan = Plan::new(graph, scratch);
        let alive = plan.alive(graph);
        let (mut inside, mut outside) = (vec![0; graph.segments.len()], vec![0; graph.segments.len()]);
        let first = graph.nodes.iter().position(|node| node.backward).unwrap_or(graph.nodes.len());
        let mut at = None;
        for (node, alive) in graph.nodes.iter().zip(&alive).skip(first) {
            let (list, segment) = match (node.segment, at) {
                (Some(segment), _) => (&mut inside, segment.0),
                (None, Some(segment)) => (&mut outside, segment),
                (None, None) => continue,
            };
            at = Some(segment);
            list[segment as usize] = list[segment as usize].max(*alive);
        }
        Profile { kept: plan.across(first), inside, outside }
    }
}
