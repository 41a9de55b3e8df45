//! `velatura plan`: everything that a run would do, as one value: for people and, as JSON, for programs.

use crate::memory::MemoryPlan;
use crate::prepare::Prepared;
use crate::text::TextReport;
use anyhow::Result;
use base::{counted, visible};
use data::{Bucket, ImageRow};
use serde::Serialize;
use std::fmt;

/// One bucket of the run.
#[derive(Clone, Debug, Serialize)]
pub struct BucketRow {
    pub bucket: Bucket,
    /// Pictures to learn in an epoch, repeats included.
    pub pictures: u64,
    /// Pictures for regularisation (`reg_ratio`) in an epoch, on average.
    pub regularisation: f64,
    /// Sizes of its batches.
    pub batches: Vec<usize>,
}

impl fmt::Display for BucketRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bucket {}: ", self.bucket)?;
        // Which pictures of a set an epoch takes is drawn: its buckets get so many on average.
        let about = format!("{} for regularisation", (self.regularisation * 10.0).round() / 10.0);
        match (self.pictures, self.regularisation > 0.0) {
            (0, true) => write!(f, "about {about} an epoch")?,
            (pictures, true) => write!(f, "{} and about {about} an epoch", counted(pictures, "picture"))?,
            (pictures, false) => write!(f, "{} an epoch", counted(pictures, "picture"))?,
        }
        let sizes: Vec<String> = self.batches.iter().map(usize::to_string).collect();
        write!(f, ", batches of {}", sizes.join(" and "))
    }
}

/// Rates that a plan holds at most: those of every step up to this length, and beyond it of every second, third, … step.
const MOST_RATES: u64 = 100_000;

/// The learning rate over the steps, and which parameters have which share of it.
#[derive(Clone, Debug, Serialize)]
pub struct RatePlan {
    pub schedule: String,
    pub warmup_steps: u64,
    /// What `rates` are shares of; a group's own rate is `lr` of it.
    pub base_lr: f64,
    /// Steps from one of `rates` to the next.
    pub stride: u64,
    /// Before the groups' own factors; the first is that of step 1.
    pub rates: Vec<f64>,
    pub groups: Vec<GroupRow>,
}

/// Parameters that share a rate.
#[derive(Clone, Debug, Serialize)]
pub struct GroupRow {
    pub name: String,
    pub parameters: usize,
    pub lr: f64,
    /// Absent: the optimizer's own.
    pub weight_decay: Option<f64>,
}

impl RatePlan {
    fn new(run: &Prepared) -> Result<RatePlan> {
        let layout = run.layout()?;
        let sizes = |group: usize| layout.params().iter().filter(|p| p.group == group).map(|p| p.shape.elements()).sum();
        let rows = layout.groups().iter().enumerate().map(|(i, group)| GroupRow {
            name: group.name.clone(),
            parameters: sizes(i),
            lr: group.lr_scale * run.lr.base_lr(),
            weight_decay: group.weight_decay,
        });
        let groups = rows.collect();
        let stride = run.steps.div_ceil(MOST_RATES).max(1);
        let rates = (0..run.steps.div_ceil(stride)).map(|i| run.lr.lr(i * stride)).collect();
        let schedule = run.lr.name().to_string();
        Ok(RatePlan { schedule, warmup_steps: run.lr.warmup_steps(), base_lr: run.lr.base_lr(), stride, rates, groups })
    }
}

impl RatePlan {
    /// The rates of one of the groups.
    pub fn curve(&self, group: &GroupRow) -> Vec<f64> {
        let factor = if self.base_lr > 0.0 { group.lr / self.base_lr } else { 0.0 };
        self.rates.iter().map(|rate| rate * factor).collect()
    }
}

#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    pub images: Vec<ImageRow>,
    pub buckets: Vec<BucketRow>,
    /// Optimizer steps.
    pub steps: u64,
    /// Passes over the data; the last may be cut short by `train.steps`.
    pub epochs: f64,
    pub steps_per_epoch: u64,
    pub mean_batch_size: f64,
    pub texts: TextReport,
    pub adapted_modules: usize,
    pub trained_parameters: usize,
    pub optimizer: String,
    pub learning_rate: RatePlan,
    pub family: String,
    pub output: String,
    pub notices: Vec<String>,
    pub memory: MemoryPlan,
    pub config: serde_json::Value,
    /// What the scan found, for people.
    pub summary: Vec<String>,
}

impl Plan {
    pub fn new(run: &Prepared, memory: MemoryPlan) -> Result<Plan> {
        let (counts, regularisation) = (run.dataset.bucket_counts(), run.batches.regularisation());
        let buckets = run.batches.shapes().into_iter().map(|(bucket, batches)| BucketRow {
            bucket,
            pictures: counts.get(&bucket).copied().unwrap_or(0),
            regularisation: regularisation.get(&bucket).copied().unwrap_or(0.0),
            batches,
        });
        let steps_per_epoch = run.batches.steps_per_epoch();
        let mut notices = run.notices.clone();
        notices.extend(memory.check().err().map(|error| format!("it does not fit: {error}")));
        Ok(Plan {
            images: run.image_rows(),
            buckets: buckets.collect(),
            steps: run.steps,
            epochs: run.steps as f64 / steps_per_epoch as f64,
            steps_per_epoch,
            mean_batch_size: run.batches.mean_batch_size(),
            texts: run.texts.clone(),
            adapted_modules: run.adapters.len(),
            trained_parameters: run.adapters.iter().flat_map(|a| a.params()).map(|(_, shape)| shape.elements()).sum(),
            optimizer: run.config.train.optimizer.clone(),
            learning_rate: RatePlan::new(run)?,
            family: run.model.parts.family.describe().to_string(),
            output: std::path::absolute(run.folder()).unwrap_or_else(|_| run.folder()).display().to_string(),
            notices,
            memory,
            config: run.config.to_json()?,
            summary: run.dataset.summary(),
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.notices.iter().try_for_each(|line| writeln!(f, "note: {}", visible(line)))?;
        writeln!(f, "base model: {}", self.family)?;
        self.summary.iter().try_for_each(|line| writeln!(f, "{}", visible(line)))?;
        self.buckets.iter().try_for_each(|row| writeln!(f, "  {row}"))?;
        if let Some(asked) = self.config["train"]["batch_size"].as_u64().filter(|asked| *asked > 1) {
            writeln!(f, "batches hold {:.2} pictures on average (train.batch_size: {asked})", self.mean_batch_size)?;
        }
        writeln!(f, "adapters: {}, {} trained numbers", counted(self.adapted_modules, "module"), self.trained_parameters)?;
        writeln!(f, "{}, {} an epoch, {:.2} epochs", counted(self.steps, "step"), self.steps_per_epoch, self.epochs)?;
        let rates = &self.learning_rate;
        let warmup = counted(rates.warmup_steps, "step");
        writeln!(f, "optimizer: {}, rates by the schedule {} ({warmup} of warm-up)", self.optimizer, rates.schedule)?;
        for group in &rates.groups {
            let decay = group.weight_decay.map(|decay| format!(", weight decay {decay}")).unwrap_or_default();
            writeln!(f, "  {}: {} numbers at {:e}{decay}", group.name, group.parameters, group.lr)?;
        }
        write!(f, "memory\n{}", self.memory)?;
        writeln!(f, "output: {}", self.output)
    }
}
