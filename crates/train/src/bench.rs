//! `velatura bench`: real steps of a run, timed op by op, beside what the machine can do at most. Nothing of the run's folder or
//! caches is touched.
//!
//! The roofline share of an op is the least time that its arithmetic and its memory traffic allow, over the time that it took. Traffic is
//! counted as if every input and output crossed memory once, so ops whose tensors stay in a cache may exceed 100 %.

use crate::encode::Caches;
use crate::event::{Event, Reporter};
use crate::feed;
use crate::interrupt::Interrupt;
use crate::loader::{self, Loaded};
use crate::metrics::processor_seconds;
use crate::planned::Planned;
use crate::prepare::Prepared;
use crate::run;
use crate::step::{Trainer, Verdict};
use anyhow::{Result, ensure};
use data::View;
use engine::backend::Step;
use engine::{Backend, Session, Speed};
use graph::{Cost, Meta};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

/// What makes two ops one row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    Kind,
    KindAndShapes,
}

/// The machine's ceilings, all threads together.
#[derive(Clone, Debug, Serialize)]
pub struct Roofline {
    pub instruction: String,
    pub gflop_per_second: f64,
    pub read_gb_per_second: f64,
    pub write_gb_per_second: f64,
}

/// Wall time of one optimizer step. `forward` and `backward` are sums over ops; `other` is what lies between: copies into and out of
/// the session.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct StepSeconds {
    pub data: f64,
    pub forward: f64,
    pub backward: f64,
    pub other: f64,
    pub optimizer: f64,
    pub total: f64,
}

/// A row of the table: the ops of one kind (and shapes), per optimizer step.
#[derive(Clone, Debug, Serialize)]
pub struct OpRow {
    pub op: String,
    /// Inputs → outputs, if ops are told apart by them.
    pub shapes: Option<String>,
    pub calls: f64,
    pub seconds: f64,
    /// Of all ops' time.
    pub share: f64,
    pub gflop_per_second: f64,
    pub gb_per_second: f64,
    pub roofline_share: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    pub device: String,
    pub roofline: Roofline,
    pub grouping: Grouping,
    /// Processor time that this process had during the timed steps, of what its threads could have had. Well below 1, other programs
    /// took the rest and every time here is too long; none where the system does not say.
    pub processor_share: Option<f64>,
    /// In the order in which they ran, after one that is not counted.
    pub steps: Vec<StepSeconds>,
    /// Of each column over the steps.
    pub medians: StepSeconds,
    /// The longest first.
    pub ops: Vec<OpRow>,
}

/// What is known of a row while steps run.
#[derive(Clone, Copy, Default)]
struct Tally {
    calls: u64,
    seconds: f64,
    cost: Cost,
    least_seconds: f64,
}

type Tallies = BTreeMap<(String, Option<String>), Tally>;

impl Bench {
    /// Runs one step to warm up, and `steps` that count.
    pub fn run(
        run: &Prepared,
        planned: Planned,
        backend: Box<dyn Backend>,
        steps: u64,
        grouping: Grouping,
        interrupt: &Interrupt,
        reporter: &mut dyn Reporter,
    ) -> Result<Bench> {
        ensure!(steps > 0, "no steps to time: --steps must be 1 or more");
        reporter.report(Event::Begin { what: "measuring this machine", total: 1 });
        let (device, speed) = (backend.describe(), backend.measure_speed(run.config.train.dtype)?);
        reporter.report(Event::End);
        let caches = Caches::open_untouched(run)?;
        let backend = caches.fill_views(run, &views(run, steps), backend, interrupt, reporter)?;
        let trainer = run::trainer(run, planned, backend, None, reporter)?;
        let mut timer = Timer { run, caches: &caches, trainer, speed: &speed, grouping, tallies: Tallies::new() };
        reporter.report(Event::Begin { what: "timing steps", total: steps });
        timer.step(0)?;
        timer.tallies.clear();
        let (mut times, began, before) = (Vec::new(), Instant::now(), processor_seconds());
        for step in 1..=steps {
            if let Some(signal) = interrupt.signal() {
                return Err(crate::Interrupted { signal, saved: None }.into());
            }
            times.push(timer.step(step)?);
            reporter.report(Event::Done { done: step });
        }
        reporter.report(Event::End);
        let available = began.elapsed().as_secs_f64() * speed.threads as f64;
        let processor_share = before.zip(processor_seconds()).map(|(before, after)| (after - before) / available);
        let ops = rows(&timer.tallies, steps);
        let roofline = Roofline::of(&speed);
        Ok(Bench { device, roofline, grouping, processor_share, medians: medians(&times), steps: times, ops })
    }
}

/// The pictures that the warm-up and the timed steps take.
fn views(run: &Prepared, steps: u64) -> Vec<View> {
    let items = (0..=steps).flat_map(|step| run.batches.step(step).batches).flat_map(|(_, batch)| batch.items);
    let views: BTreeSet<View> = items.map(|item| (item.item, item.flip)).collect();
    views.into_iter().collect()
}

struct Timer<'a> {
    run: &'a Prepared,
    caches: &'a Caches,
    trainer: Trainer,
    speed: &'a Speed,
    grouping: Grouping,
    tallies: Tallies,
}

impl Timer<'_> {
    fn step(&mut self, step: u64) -> Result<StepSeconds> {
        let whole = Instant::now();
        let mut times = StepSeconds::default();
        let began = Instant::now();
        let loaded = loader::step(self.run, self.caches, step)?;
        times.data += began.elapsed().as_secs_f64();
        for Loaded { number, mut batch, open, .. } in loaded {
            if let Some((_, error)) = open.failed.into_iter().next() {
                return Err(error);
            }
            let began = Instant::now();
            feed::encode(self.run, number, &open.pictures, self.trainer.session(), &mut batch)?;
            let runs = self.trainer.accumulate_timed(&batch)?;
            times.other += began.elapsed().as_secs_f64();
            for (program, seconds) in runs {
                let [forward, backward] = self.tally(program, &seconds);
                times.forward += forward;
                times.backward += backward;
                times.other -= forward + backward;
            }
        }
        let began = Instant::now();
        let update = self.trainer.update(self.run.lr.lr(step))?;
        times.optimizer = began.elapsed().as_secs_f64();
        times.total = whole.elapsed().as_secs_f64();
        ensure!(
            update.verdict != Verdict::NotFinite,
            "the loss or a gradient is not a finite number: times of such a step mean nothing; try a lower train.lr"
        );
        Ok(times)
    }

    /// Adds the ops of a program's run; returns the seconds of forward and backward.
    fn tally(&mut self, program: usize, seconds: &[f64]) -> [f64; 2] {
        let session: &Session = self.trainer.session();
        let (forward, backward) = session.steps(program);
        for (step, seconds) in forward.iter().chain(backward).zip(seconds) {
            let cost = cost(step);
            let shapes = (self.grouping == Grouping::KindAndShapes).then(|| shapes(step));
            let tally = self.tallies.entry((step.op.name().to_string(), shapes)).or_default();
            tally.calls += 1;
            tally.seconds += seconds;
            tally.cost += cost;
            tally.least_seconds += self.speed.seconds(&cost);
        }
        let (forward, backward) = seconds.split_at(forward.len());
        [forward.iter().sum(), backward.iter().sum()]
    }
}

fn cost(step: &Step) -> Cost {
    let metas = |views: &[engine::View]| views.iter().map(|view| view.meta.clone()).collect::<Vec<Meta>>();
    let (inputs, outputs) = (metas(&step.inputs), metas(&step.outputs));
    step.op.rule().cost(&inputs.iter().collect::<Vec<_>>(), &outputs.iter().collect::<Vec<_>>())
}

fn shapes(step: &Step) -> String {
    let list = |views: &[engine::View]| views.iter().map(|view| view.meta.shape.to_string()).collect::<Vec<_>>().join(" ");
    format!("{} → {}", list(&step.inputs), list(&step.outputs))
}

fn rows(tallies: &Tallies, steps: u64) -> Vec<OpRow> {
    let all: f64 = tallies.values().map(|tally| tally.seconds).sum();
    let mut rows: Vec<OpRow> = tallies
        .iter()
        .map(|((op, shapes), tally)| OpRow {
            op: op.clone(),
            shapes: shapes.clone(),
            calls: tally.calls as f64 / steps as f64,
            seconds: tally.seconds / steps as f64,
            share: tally.seconds / all,
            gflop_per_second: tally.cost.flops / tally.seconds / 1e9,
            gb_per_second: tally.cost.bytes / tally.seconds / 1e9,
            roofline_share: tally.least_seconds / tally.seconds,
        })
        .collect();
    rows.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    rows
}

fn medians(steps: &[StepSeconds]) -> StepSeconds {
    let median = |column: fn(&StepSeconds) -> f64| {
        let mut values: Vec<f64> = steps.iter().map(column).collect();
        values.sort_by(f64::total_cmp);
        (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
    };
    StepSeconds {
        data: median(|s| s.data),
        forward: median(|s| s.forward),
        backward: median(|s| s.backward),
        other: median(|s| s.other),
        optimizer: median(|s| s.optimizer),
        total: median(|s| s.total),
    }
}

impl Roofline {
    fn of(speed: &Speed) -> Roofline {
        Roofline {
            instruction: speed.instruction.clone(),
            gflop_per_second: speed.flops / 1e9,
            read_gb_per_second: speed.read / 1e9,
            write_gb_per_second: speed.write / 1e9,
        }
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Roofline { instruction, gflop_per_second, read_gb_per_second, write_gb_per_second } = &self.roofline;
        writeln!(f, "{}", self.device)?;
        writeln!(
            f,
            "roofline: {gflop_per_second:.0} GFLOP/s ({instruction}), memory {read_gb_per_second:.1} GB/s read, {write_gb_per_second:.1} GB/s written"
        )?;
        let column = |name: &str, pick: fn(&StepSeconds) -> f64| {
            let (least, most) = self.steps.iter().map(pick).fold((f64::INFINITY, 0.0), |(a, b): (f64, f64), v| (a.min(v), b.max(v)));
            format!("  {name:<14}{:>9.3} s  ({least:.3} to {most:.3})", pick(&self.medians))
        };
        if let Some(share) = self.processor_share {
            writeln!(f, "this process had {:.0} % of its threads' time: the less, the more other programs disturbed", share * 100.0)?;
        }
        writeln!(f, "a step, median of {}", self.steps.len())?;
        writeln!(f, "{}", column("data", |s| s.data))?;
        writeln!(f, "{}", column("forward", |s| s.forward))?;
        writeln!(f, "{}", column("backward", |s| s.backward))?;
        writeln!(f, "{}", column("other", |s| s.other))?;
        writeln!(f, "{}", column("optimizer", |s| s.optimizer))?;
        writeln!(f, "{}", column("all", |s| s.total))?;
        writeln!(f, "{:<20}{:>8}{:>12}{:>9}{:>11}{:>9}{:>11}", "op", "calls", "ms a step", "share", "GFLOP/s", "GB/s", "roofline")?;
        for row in &self.ops {
            write!(
                f,
                "{:<20}{:>8}{:>12.2}{:>7.1} %{:>11.1}{:>9.1}{:>9.0} %",
                row.op,
                // A mean over steps of different shapes may be no whole number.
                format!("{:.1}", row.calls).trim_end_matches(".0"),
                row.seconds * 1e3,
                row.share * 100.0,
                row.gflop_per_second,
                row.gb_per_second,
                row.roofline_share * 100.0
            )?;
            writeln!(f, "{}", row.shapes.as_ref().map(|shapes| format!("  {shapes}")).unwrap_or_default())?;
        }
        Ok(())
    }
}
