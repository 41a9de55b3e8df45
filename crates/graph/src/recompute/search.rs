//! Going through choices, each judged by the planner.

use super::Problem;
use super::peaks::Peaks;
use crate::autodiff::{Recompute, differentiate};
use crate::plan;
use std::collections::{BTreeSet, HashMap};

/// Fitting proposals from which a descent begins.
const STARTS: usize = 3;
/// Plans after which a search is content with what it has.
const MOST_PLANS: usize = 600;

type Set = BTreeSet<u32>;

/// A choice with its largest arena.
type Found = (Set, u64);

pub struct Search<'a> {
    problem: &'a Problem<'a>,
    limit: u64,
    peaks: Peaks,
    /// Largest arena of what was tried; none: more than the limit.
    tried: HashMap<Set, Option<u64>>,
    /// The problem's forwards, those first that refused a choice last.
    order: Vec<usize>,
    plans: usize,
}

impl Search<'_> {
    pub fn new<'a>(problem: &'a Problem<'a>, limit: u64) -> Search<'a> {
        let order = (0..problem.forwards.len()).collect();
        Search { problem, limit, peaks: Peaks::new(problem), tried: HashMap::new(), order, plans: 0 }
    }

    pub fn plans(&self) -> usize {
        self.plans
    }

    /// The cheapest choice found.
    pub fn run(&mut self) -> Option<Found> {
        let proposals = self.peaks.proposals();
        let mut starts = self.first_fits(proposals.into_iter().collect(), STARTS);
        if starts.is_empty() {
            let least = self.least();
            starts.extend(self.arena(&least.0).map(|arena| (least.0, arena)));
        }
        let ends: Vec<Found> = starts.into_iter().map(|start| self.descend(start)).collect();
        ends.into_iter().min_by(|a, b| self.peaks.seconds(&a.0).total_cmp(&self.peaks.seconds(&b.0)))
    }

    /// The `most` cheapest of the candidates that fit; of equal cost, those of fewer segments.
    pub fn first_fits(&mut self, mut candidates: Vec<Set>, most: usize) -> Vec<Found> {
        candidates.sort_by(|a, b| self.peaks.seconds(a).total_cmp(&self.peaks.seconds(b)).then_with(|| (a.len(), a).cmp(&(b.len(), b))));
        let mut fits = Vec::new();
        for set in candidates {
            if fits.len() == most {
                break;
            }
            fits.extend(self.arena(&set).map(|arena| (set, arena)));
        }
        fits
    }

    /// Goes on to the cheapest neighbour that fits until there is none, or until enough plans were made.
    fn descend(&mut self, start: Found) -> Found {
        let mut at = start;
        'steps: loop {
            for next in self.neighbours(&at) {
                if self.plans >= MOST_PLANS {
                    return at;
                }
                if let Some(arena) = self.arena(&next) {
                    at = (next, arena);
                    continue 'steps;
                }
            }
            return at;
        }
    }

    /// Cheaper choices that differ by one segment dropped, or by one exchanged for another. First those of which the model, set right
    /// by the arena of the choice at hand, says that they fit; among these the cheapest first.
    fn neighbours(&self, (set, arena): &Found) -> Vec<Set> {
        let chosen: Vec<u32> = set.difference(&self.problem.floor.0).copied().collect();
        let others: Vec<u32> = self.problem.free().into_iter().filter(|s| !set.contains(s)).collect();
        let without = |dropped: u32| set.iter().copied().filter(move |s| *s != dropped);
        let with = |dropped: u32, taken: Option<u32>| without(dropped).chain(taken).collect::<Set>();
        let near = chosen.iter().flat_map(|c| std::iter::once(None).chain(others.iter().copied().map(Some)).map(|taken| with(*c, taken)));
        let seconds = self.peaks.seconds(set);
        let expected = self.peaks.of(set);
        let doubtful = |next: &Set| self.peaks.of(next) + arena > self.limit.saturating_add(expected);
        let mut rated: Vec<(bool, f64, Set)> = near.map(|next| (doubtful(&next), self.peaks.seconds(&next), next)).collect();
        rated.retain(|(_, cost, _)| *cost < seconds);
        rated.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then_with(|| a.2.cmp(&b.2)));
        rated.into_iter().map(|(_, _, next)| next).collect()
    }

    /// The choice of the least arena found: everything, and from there whatever single segment less helps.
    pub fn least(&mut self) -> Found {
        let (limit, tried) = (std::mem::replace(&mut self.limit, u64::MAX), std::mem::take(&mut self.tried));
        let all = self.problem.all().0;
        let mut best = self.least_of(vec![all]);
        for segment in self.problem.free() {
            let next = best.0.iter().copied().filter(|s| *s != segment).collect();
            if let Some(arena) = self.arena(&next).filter(|arena| *arena < best.1) {
                best = (next, arena);
            }
        }
        (self.limit, self.tried) = (limit, tried);
        best
    }

    pub fn least_of(&mut self, candidates: Vec<Set>) -> Found {
        let all: Vec<Found> = candidates.into_iter().filter_map(|set| self.arena(&set).map(|arena| (set, arena))).collect();
        all.into_iter().min_by_key(|found| found.1).unwrap_or_default()
    }

    /// The largest arena of a choice, if it fits.
    fn arena(&mut self, set: &Set) -> Option<u64> {
        if let Some(known) = self.tried.get(set) {
            return *known;
        }
        let arena = self.planned(set);
        self.tried.insert(set.clone(), arena);
        arena
    }

    fn planned(&mut self, set: &Set) -> Option<u64> {
        let recompute = Recompute(set.clone());
        let mut largest = 0;
        for place in 0..self.order.len() {
            let (graph, loss) = &self.problem.forwards[self.order[place]];
            self.plans += 1;
            match plan::arena_within(&differentiate(graph.clone(), *loss, &recompute), self.problem.scratch, self.limit) {
                Some(arena) => largest = largest.max(arena),
                None => {
                    self.order[..=place].rotate_right(1);
                    return None;
                }
            }
        }
        Some(largest)
    }
}
