//! What a run takes of memory, before it starts: exact for tensors, by purpose and by program.

use crate::prepare::Prepared;
use anyhow::{Result, ensure};
use base::human;
use engine::{Backend, Memory, Program, Session};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// The arena that one program needs, what no plan of it could go below, and what fills it at its peak.
#[derive(Clone, Debug, Serialize)]
pub struct Arena {
    pub program: String,
    pub bytes: u64,
    pub floor_bytes: u64,
    /// The largest values alive at the peak.
    pub holders: Vec<Holder>,
}

/// One value (or a kernel's scratch) at the peak.
#[derive(Clone, Debug, Serialize)]
pub struct Holder {
    pub bytes: u64,
    pub op: String,
    pub segment: Option<String>,
    pub scratch: bool,
}

/// Holders that are listed.
const MOST_HOLDERS: usize = 5;

/// Bytes of a run. Encoding (VAE encoder, text encoder) ends before training begins, so the peak is the larger of the two.
#[derive(Clone, Debug, Serialize)]
pub struct MemoryPlan {
    pub base_weights: u64,
    /// The same by element type.
    pub base_weights_by_type: BTreeMap<&'static str, u64>,
    pub adapters: u64,
    pub gradients: u64,
    pub optimizer_state: u64,
    pub inputs: u64,
    /// Activations and scratch: the largest program's.
    pub arena: u64,
    /// The host's copies of adapters and gradients, which the optimizer works on, and averages of the adapters.
    pub host: u64,
    pub training: u64,
    pub encoding: u64,
    pub peak: u64,
    pub arenas: Vec<Arena>,
}

impl MemoryPlan {
    pub fn new(run: &Prepared, backend: &dyn Backend) -> Result<MemoryPlan> {
        let (programs, _) = run.session_programs(backend)?;
        let encoders = run.encode_programs(backend)?;
        let (session, encoding) = (Session::memory_of(&programs)?, Session::memory_of(&encoders)?);
        let elements: u64 = run.adapters.iter().flat_map(|a| a.params()).map(|(_, shape)| shape.elements() as u64).sum();
        let chosen = run.chosen()?;
        let optimizer_state = chosen.held_bytes(&run.layout()?);
        let copies = 2 + u64::from(chosen.averages()) + u64::from(run.config.train.ema_config.use_ema);
        let host = copies * 4 * elements;
        let training = session.total() + optimizer_state + host;
        let Memory { weights, params, gradients, inputs, arena } = session;
        Ok(MemoryPlan {
            base_weights: weights,
            base_weights_by_type: Session::weight_bytes(&programs)?.into_iter().map(|(dtype, bytes)| (dtype.name(), bytes)).collect(),
            adapters: params,
            gradients,
            optimizer_state,
            inputs,
            arena,
            host,
            training,
            encoding: encoding.total(),
            peak: training.max(encoding.total()),
            arenas: programs.iter().chain(&encoders).map(arena_of).collect(),
        })
    }

    /// Refuses a run that can't fit into the user's budget or into what the machine has free.
    pub fn check(&self, budget: u64) -> Result<()> {
        let advice = "; train.gradient_checkpointing: true, a smaller resolution or batch_size, or a lower rank need less";
        ensure!(
            budget == 0 || self.peak <= budget,
            "this run needs {}, more than memory.budget ({}){advice}",
            human(self.peak),
            human(budget)
        );
        let free = free_bytes().unwrap_or(u64::MAX);
        ensure!(self.peak <= free, "this run needs {}, but only {} of memory are free{advice}", human(self.peak), human(free));
        Ok(())
    }
}

fn arena_of(program: &Program) -> Arena {
    let held = program.plan.holders(&program.graph).into_iter().take(MOST_HOLDERS);
    let holders = held.map(|h| Holder { bytes: h.bytes, op: h.op, segment: h.segment, scratch: h.scratch }).collect();
    Arena { program: program.name.clone(), bytes: program.plan.arena_bytes, floor_bytes: program.plan.floor_bytes, holders }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.scratch { format!("scratch of {}", self.op) } else { self.op.clone() };
        let place = self.segment.as_ref().map(|s| format!(" in {s}")).unwrap_or_default();
        write!(f, "{} {what}{place}", human(self.bytes))
    }
}

/// Memory that the system can still give, where it says so.
fn free_bytes() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

impl fmt::Display for MemoryPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("base weights", self.base_weights),
            ("adapters", self.adapters),
            ("gradients", self.gradients),
            ("optimizer state", self.optimizer_state),
            ("inputs", self.inputs),
            ("activations and scratch", self.arena),
            ("host copies", self.host),
            ("training", self.training),
            ("encoding, before training", self.encoding),
            ("peak (the program itself not counted)", self.peak),
        ];
        rows.iter().try_for_each(|(name, bytes)| writeln!(f, "  {name:<40}{:>10}", human(*bytes)))?;
        let types: Vec<String> = self.base_weights_by_type.iter().map(|(name, bytes)| format!("{} {name}", human(*bytes))).collect();
        writeln!(f, "base weights by type: {}", types.join(", "))?;
        writeln!(f, "activations and scratch by program")?;
        self.arenas.iter().try_for_each(|arena| writeln!(f, "  {:<44}{:>10}", arena.program, human(arena.bytes)))?;
        let largest = self.arenas.iter().max_by_key(|arena| arena.bytes);
        let holders: Vec<String> = largest.iter().flat_map(|a| &a.holders).map(Holder::to_string).collect();
        writeln!(f, "the largest holds at its peak: {}", holders.join(", "))
    }
}
