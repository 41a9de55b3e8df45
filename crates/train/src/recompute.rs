//! Which segments of the UNet (and a trained text encoder) the backward computes again: as the config says, or the cheapest choice that
//! fits into `memory.budget`.
//!
//! A list in `train.gradient_checkpointing` is a floor that a budget adds to; `true` leaves nothing to choose, `false` forbids choosing.
//! Time is modelled: an op takes as long as its arithmetic or its memory traffic, whichever is longer, at the backend's typical rates.

use crate::step::Form;
use anyhow::{Result, ensure};
use config::Checkpointing;
use engine::{Backend, Speed};
use graph::recompute::{Method, Problem};
use graph::{Graph, Recompute, ValueId};
use serde::Serialize;
use std::fmt;

/// The forward of a training program, up to the loss.
pub struct Forward {
    pub form: Form,
    pub graph: Graph,
    pub loss: ValueId,
}

/// How the segments came to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Chosen {
    /// As the config says, or by default.
    Setting,
    /// For the budget: the cheapest of all subsets.
    Exact,
    /// For the budget: the cheapest that a search found.
    Search,
}

/// What is computed again, for people and programs.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub chosen: Chosen,
    /// Choices that were planned to find this one, counted by shape.
    pub plans: usize,
    pub segments: Vec<String>,
    /// Segments that there are.
    pub of: usize,
    /// Predicted, of the largest shape: seconds that a micro-batch takes longer, and their share of one without recompute.
    pub extra_seconds: f64,
    pub extra_share: f64,
}

/// The segments that are computed again whatever the budget.
pub fn floor(graph: &Graph, setting: &Checkpointing, budget: u64) -> Result<Recompute> {
    match setting {
        Checkpointing::Auto if budget > 0 => Ok(Recompute::none()),
        Checkpointing::Auto | Checkpointing::All(true) => Ok(Recompute::all(graph)),
        Checkpointing::All(false) => Ok(Recompute::none()),
        Checkpointing::Segments(patterns) => {
            patterns.iter().try_for_each(|pattern| check_pattern(graph, pattern))?;
            Ok(Recompute::matching(graph, patterns))
        }
    }
}

/// A pattern that picks no segment is a mistake: the run would take more memory than its author thinks.
fn check_pattern(graph: &Graph, pattern: &str) -> Result<()> {
    let names: Vec<&str> = graph.segments.iter().map(|segment| segment.name.as_str()).collect();
    ensure!(
        names.iter().any(|name| name.contains(pattern)),
        "train.gradient_checkpointing: no segment's name contains \"{pattern}\"; the segments are {}",
        names.join(", ")
    );
    Ok(())
}

/// The question that the budget asks, over all forwards of a run.
pub struct Question<'a> {
    /// Graphs with their losses, the largest first.
    graphs: Vec<(Graph, ValueId)>,
    backend: &'a dyn Backend,
    speed: Speed,
    floor: Recompute,
}

impl<'a> Question<'a> {
    pub fn new(forwards: &[Forward], floor: Recompute, speed: Speed, backend: &'a dyn Backend) -> Question<'a> {
        let mut order: Vec<&Forward> = forwards.iter().collect();
        order.sort_by_key(|f| std::cmp::Reverse(f.form.batch * f.form.size[0] * f.form.size[1]));
        let graphs = order.into_iter().map(|f| (f.graph.clone(), f.loss)).collect();
        Question { graphs, backend, speed, floor }
    }

    fn ask<T>(&self, ask: impl FnOnce(&Problem) -> T) -> T {
        let scratch = |op: &graph::Op, inputs: &[&graph::Meta], outputs: &[&graph::Meta]| self.backend.scratch_bytes(op, inputs, outputs);
        let seconds = |cost: &graph::Cost| self.speed.seconds(cost);
        ask(&Problem { forwards: &self.graphs, scratch: &scratch, seconds: &seconds, floor: self.floor.clone() })
    }

    /// The cheapest choice whose arenas fit into `limit` bytes.
    pub fn cheapest(&self, limit: u64) -> Option<(Recompute, Report)> {
        self.ask(|problem| {
            let chosen = if problem.method() == Method::Exact { Chosen::Exact } else { Chosen::Search };
            let choice = problem.cheapest(limit)?;
            let report = report(problem, &choice.recompute, chosen, choice.plans);
            Some((choice.recompute, report))
        })
    }

    /// The least arena that any choice needs.
    pub fn least_arena(&self) -> u64 {
        self.ask(|problem| problem.least().arena_bytes)
    }

    /// Says what a choice means that nothing had to be searched for.
    pub fn as_set(&self, recompute: &Recompute) -> Report {
        self.ask(|problem| report(problem, recompute, Chosen::Setting, 0))
    }
}

fn report(problem: &Problem, recompute: &Recompute, chosen: Chosen, plans: usize) -> Report {
    let names = problem.forwards.first().map_or(&[][..], |(graph, _)| &graph.segments);
    let segments = recompute.0.iter().map(|s| names[*s as usize].name.clone()).collect();
    let (kept, again) = (problem.step_seconds(&Recompute::none()), problem.step_seconds(recompute));
    Report { chosen, plans, segments, of: names.len(), extra_seconds: again - kept, extra_share: (again - kept) / kept }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.chosen {
            Chosen::Setting => "as set".to_string(),
            Chosen::Exact => format!("for the budget, the cheapest of all choices; {} plans", self.plans),
            Chosen::Search => format!("for the budget, the cheapest that a search found; {} plans", self.plans),
        };
        let (count, of, share) = (self.segments.len(), self.of, self.extra_share * 100.0);
        write!(f, "recompute: {count} of {of} segments ({how}), predicted to take {share:.1} % more time a step")?;
        if count > 0 && count < of {
            write!(f, ": {}", self.segments.join(", "))?;
        }
        Ok(())
    }
}
