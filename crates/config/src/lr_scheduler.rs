//! `train.lr_scheduler` and `train.lr_scheduler_params`. The names, settings and ranges are those of the schedules' files in `optim`.
//! Everything is counted in optimizer steps.

use crate::findings::Findings;
use crate::optimizer::{settle, with_values};
use crate::scalar::Number;
use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// ai-toolkit's keys for a schedule's length, which is the run's here.
const LENGTHS: [&str; 2] = ["total_iters", "T_max"];

/// A schedule by its name, with its settings, defaults included.
pub(crate) struct Scheduler {
    pub name: String,
    pub params: Map<String, Value>,
}

/// `train_warmup` is `train.lr_warmup_steps`; `steps` is the run's length, as far as the config tells it.
pub(crate) fn resolve(
    name: Option<&str>,
    params: Option<Map<String, Value>>,
    train_warmup: Option<Number>,
    [lr, steps]: [f64; 2],
    findings: &mut Findings,
) -> Result<Scheduler> {
    let mut params = params.unwrap_or_default();
    for key in LENGTHS.into_iter().filter(|key| params.remove(*key).is_some()).collect::<Vec<_>>() {
        findings.notice(format!("train.lr_scheduler_params.{key} has no effect here: a schedule is as long as the run"));
    }
    let mut params = with_values("train.lr_scheduler_params", params, findings);
    if let Some(Number(warmup)) = train_warmup {
        match ["warmup_steps", "num_warmup_steps", "warmup_ratio"].into_iter().find(|key| params.contains_key(*key)) {
            Some(twice) => {
                findings.wrong(format!("train.lr_warmup_steps and train.lr_scheduler_params.{twice} are both given; keep one"));
            }
            None => drop(params.insert("warmup_steps".to_string(), warmup.into())),
        }
    }
    // Epochs are not counted before the pictures are; any length serves to read the settings.
    let steps = if steps > 0.0 { steps as u64 } else { u64::from(u32::MAX) };
    let name = name.unwrap_or("constant");
    let read = |params: &Map<String, Value>| {
        optim::schedule::parse(name, params, lr, steps)
            .context("in train.lr_scheduler (with train.lr_scheduler_params and train.lr_warmup_steps)")
    };
    let schedule = settle("train.lr_scheduler_params", params, read, findings)?;
    Ok(Scheduler { name: schedule.name().to_string(), params: schedule.params })
}
