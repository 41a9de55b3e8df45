//! What a run takes of memory, before it starts: exact for tensors, by purpose and by program.

use crate::loader;
use crate::prepare::Prepared;
use crate::recompute::Report;
use anyhow::{Result, ensure};
use base::human;
use engine::{Memory, Program, Session};
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
    /// The host's copies of adapters and gradients, which the optimizer works on, averages of the adapters, and the batch.
    pub host: u64,
    /// What saving a checkpoint or drawing a sample makes and drops again.
    pub between_steps: u64,
    /// Latents and embeddings, where the config keeps them in memory.
    pub cached: u64,
    pub training: u64,
    /// Pictures on their way to the encoder.
    pub pictures: u64,
    pub encoding: u64,
    /// The larger of the two.
    pub peak: u64,
    /// What the program itself had in memory when this was planned: code, threads, the tokenizer, the list of pictures.
    pub process: u64,
    /// Training and the program; the peak and the program: what the budget counts.
    pub whole_training: u64,
    pub whole: u64,
    pub recompute: Report,
    pub arenas: Vec<Arena>,
}

impl MemoryPlan {
    pub fn new(run: &Prepared, programs: &[Program], encoders: &[Program], recompute: Report, process: u64) -> Result<MemoryPlan> {
        let (session, encoding) = (Session::memory_of(programs)?, Session::memory_of(encoders)?);
        let optimizer_state = run.optimizer_bytes()?;
        // A batch is held as it was drawn and as it goes into the session; others wait behind it.
        let ahead = loader::reach(&run.config).window as u64 * run.batches.most_batches_per_step();
        let host = run.host_bytes()? + (2 + ahead) * session.inputs;
        let (between_steps, cached, pictures) = (run.between_steps_bytes()?, run.cached_bytes(), run.picture_bytes());
        let training = session.total() + optimizer_state + host + between_steps + cached;
        let encoding = encoding.total() + pictures + cached;
        let Memory { weights, params, gradients, inputs, arena } = session;
        Ok(MemoryPlan {
            base_weights: weights,
            base_weights_by_type: Session::weight_bytes(programs)?.into_iter().map(|(dtype, bytes)| (dtype.name(), bytes)).collect(),
            adapters: params,
            gradients,
            optimizer_state,
            inputs,
            arena,
            host,
            between_steps,
            cached,
            training,
            pictures,
            encoding,
            peak: training.max(encoding),
            process,
            whole_training: training + process,
            whole: training.max(encoding) + process,
            recompute,
            arenas: programs.iter().chain(encoders).map(arena_of).collect(),
        })
    }

    /// Refuses a run that can't fit into what the machine has free.
    pub fn check(&self) -> Result<()> {
        let free = free_bytes().unwrap_or(u64::MAX);
        ensure!(
            self.peak <= free,
            "this run needs {}, but only {} of memory are free; train.gradient_checkpointing: true, a smaller resolution or batch_size, or a \
             lower rank need less",
            human(self.peak),
            human(free)
        );
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
            ("saving and drawing, between steps", self.between_steps),
            ("encoded pictures and texts", self.cached),
            ("training", self.training),
            ("encoding, before training", self.encoding),
            ("the program itself", self.process),
            ("peak, all together", self.whole),
        ];
        rows.iter().try_for_each(|(name, bytes)| writeln!(f, "  {name:<40}{:>10}", human(*bytes)))?;
        let types: Vec<String> = self.base_weights_by_type.iter().map(|(name, bytes)| format!("{} {name}", human(*bytes))).collect();
        writeln!(f, "base weights by type: {}", types.join(", "))?;
        writeln!(f, "{}", self.recompute)?;
        writeln!(f, "activations and scratch by program")?;
        self.arenas.iter().try_for_each(|arena| writeln!(f, "  {:<44}{:>10}", arena.program, human(arena.bytes)))?;
        let largest = self.arenas.iter().max_by_key(|arena| arena.bytes);
        let holders: Vec<String> = largest.iter().flat_map(|a| &a.holders).map(Holder::to_string).collect();
        writeln!(f, "the largest holds at its peak: {}", holders.join(", "))
    }
}
