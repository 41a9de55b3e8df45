//! Learning-rate schedules: pure functions from the optimizer step to the rate. THE list of names is [`SCHEDULES`].
//!
//! `step` counts optimizer steps from 0, whatever the gradient accumulation; the update number `step + 1` uses `lr(step)`.
//! Warm-up is linear from 0, as in diffusers and transformers: rate·step/warmup while step < warmup, then the named curve over
//! the steps that are left. Nothing is stored, so a resumed run has the same rates as one that was never stopped.

mod constant;
mod constant_with_warmup;
mod cosine;
mod linear;

use crate::hyper::{Hyper, unknown_name};
use anyhow::Result;
use serde_json::{Map, Value};

/// The part after the warm-up: the share of the base rate at `progress` through it.
pub trait Curve: Send + Sync {
    /// `progress` is (step − warmup) / (total − warmup), from 0 to 1; the result lies in [0, 1].
    fn at(&self, progress: f64) -> f64;
}

/// What a curve is built from.
pub struct Request<'r, 'a> {
    pub hyper: &'r mut Hyper<'a>,
    pub base_lr: f64,
}

/// One row of the list.
pub struct Entry {
    pub name: &'static str,
    /// Warm-up when the config gives none.
    pub default_warmup: Warmup,
    pub build: fn(Request) -> Result<Box<dyn Curve>>,
}

/// Every schedule that a config can name.
pub static SCHEDULES: &[Entry] = &[constant::ENTRY, constant_with_warmup::ENTRY, cosine::ENTRY, linear::ENTRY];

/// How long the rate rises.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    Steps(u64),
    /// Share of the run, rounded down to whole steps.
    Share(f64),
}

impl Warmup {
    fn steps(self, total: u64) -> u64 {
        match self {
            Warmup::Steps(steps) => steps,
            Warmup::Share(share) => (share * total as f64).floor() as u64,
        }
    }
}

/// A schedule for one run.
pub struct Schedule {
    name: &'static str,
    base_lr: f64,
    warmup: u64,
    total: u64,
    curve: Box<dyn Curve>,
}

/// The schedule `name` for a run of `total` optimizer steps with the settings of `lr_scheduler_params`:
/// `warmup_steps` (alias `num_warmup_steps`; below 1 it is a share of the run, as in kohya's scripts) or `warmup_ratio`
/// for every schedule, and the curve's own ones.
pub fn parse(name: &str, params: &Map<String, Value>, base_lr: f64, total: u64) -> Result<Schedule> {
    anyhow::ensure!(base_lr.is_finite() && base_lr >= 0.0, "the learning rate is {base_lr}, must be a number ≥ 0");
    let names: Vec<&str> = SCHEDULES.iter().map(|e| e.name).collect();
    let lower = name.to_lowercase();
    let entry = SCHEDULES.iter().find(|e| e.name == lower).ok_or_else(|| unknown_name("learning-rate schedule", name, &names))?;
    let owner = format!("learning-rate schedule {}", entry.name);
    let mut hyper = Hyper::new(&owner, params);
    let warmup = warmup(&mut hyper)?.unwrap_or(entry.default_warmup).steps(total);
    let curve = (entry.build)(Request { hyper: &mut hyper, base_lr })?;
    hyper.finish()?;
    Ok(Schedule { name: entry.name, base_lr, warmup, total, curve })
}

fn warmup(hyper: &mut Hyper) -> Result<Option<Warmup>> {
    let steps = hyper.number(&["warmup_steps", "num_warmup_steps"], 0.0..=1e12)?;
    let ratio = hyper.number(&["warmup_ratio"], 0.0..=1.0)?;
    match (steps, ratio) {
        (Some(_), Some(_)) => anyhow::bail!("the warm-up is given twice, as warmup_steps and as warmup_ratio: give one"),
        (Some(steps), None) if steps > 0.0 && steps < 1.0 => Ok(Some(Warmup::Share(steps))),
        (Some(steps), None) if steps.fract() != 0.0 => anyhow::bail!("warmup_steps is {steps}: give whole steps, or a share below 1"),
        (Some(steps), None) => Ok(Some(Warmup::Steps(steps as u64))),
        (None, ratio) => Ok(ratio.map(Warmup::Share)),
    }
}

impl Schedule {
    /// The rate for the update after `step` updates; steps beyond the end have the end's rate. Always finite and ≥ 0.
    pub fn lr(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.base_lr * step as f64 / self.warmup as f64;
        }
        let length = self.total.saturating_sub(self.warmup).max(1) as f64;
        self.base_lr * self.curve.at(((step - self.warmup) as f64 / length).min(1.0))
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub fn base_lr(&self) -> f64 {
        self.base_lr
    }

    /// Warm-up in optimizer steps.
    pub fn warmup_steps(&self) -> u64 {
        self.warmup
    }

    /// Length of the run that the curve was laid out for, in optimizer steps.
    pub fn total_steps(&self) -> u64 {
        self.total
    }

    /// What a user should hear before the run starts.
    pub fn warning(&self) -> Option<String> {
        let (warmup, total) = (self.warmup, self.total);
        (warmup > 0 && warmup >= total).then(|| {
            let reached = self.lr(total.saturating_sub(1));
            format!(
                "the warm-up ({warmup} steps) is as long as the run ({total} steps) or longer: the rate reaches only {reached:e} of {:e}",
                self.base_lr
            )
        })
    }
}

/// `min_lr` (alias `eta_min`) as a share of the base rate.
fn min_share(request: Request) -> Result<f64> {
    let base_lr = request.base_lr;
    let min_lr = request.hyper.number(&["min_lr", "eta_min"], 0.0..=1e3)?.unwrap_or(0.0);
    anyhow::ensure!(min_lr <= base_lr, "min_lr {min_lr:e} is above the learning rate {base_lr:e}");
    Ok(if base_lr > 0.0 { min_lr / base_lr } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(name: &str, params: &str, total: u64) -> Schedule {
        parse(name, &serde_json::from_str(params).unwrap(), 1e-3, total).unwrap()
    }

    fn error(name: &str, params: &str) -> String {
        format!("{:#}", parse(name, &serde_json::from_str(params).unwrap(), 1e-3, 10).err().unwrap())
    }

    #[test]
    fn unknown_names_and_settings_are_refused_with_the_nearest() {
        assert!(error("cosin", "{}").contains("did you mean cosine?"));
        assert!(error("cosine", r#"{"min_lt": 0.1}"#).contains("did you mean min_lr?"));
        assert!(error("cosine", r#"{"min_lr": 0.1}"#).contains("above the learning rate"));
        assert!(error("cosine", r#"{"warmup_steps": 5, "warmup_ratio": 0.1}"#).contains("twice"));
        assert!(error("cosine", r#"{"warmup_steps": 2.5}"#).contains("whole steps"));
        assert!(parse("cosine", &Map::new(), f64::NAN, 10).is_err());
    }

    #[test]
    fn warm_up_may_be_given_as_steps_or_as_a_share() {
        for params in [r#"{"warmup_steps": 3}"#, r#"{"num_warmup_steps": 3}"#, r#"{"warmup_ratio": 0.3}"#, r#"{"warmup_steps": 0.35}"#] {
            assert_eq!(schedule("cosine", params, 10).warmup_steps(), 3, "{params}");
        }
        assert_eq!(schedule("constant_with_warmup", "{}", 10).warmup_steps(), 1000);
    }

    #[test]
    fn every_schedule_is_finite_for_runs_shorter_than_the_warm_up_and_of_one_step() {
        for entry in SCHEDULES {
            for (warmup, total) in [(0, 0), (0, 1), (1, 1), (50, 50), (100, 50), (5, 50)] {
                let schedule = schedule(entry.name, &format!(r#"{{"warmup_steps": {warmup}}}"#), total);
                let rates: Vec<f64> = (0..=2 * total + 2).map(|step| schedule.lr(step)).collect();
                assert!(rates.iter().all(|lr| lr.is_finite() && (0.0..=1e-3).contains(lr)), "{} {warmup} {total}: {rates:?}", entry.name);
                assert_eq!(schedule.warning().is_some(), warmup > 0 && warmup >= total);
            }
            assert_eq!(schedule(entry.name, r#"{"warmup_steps": 0}"#, 1).lr(0), 1e-3);
        }
    }

    #[test]
    fn the_minimum_is_reached_at_the_end_and_kept() {
        for name in ["cosine", "linear"] {
            let schedule = schedule(name, r#"{"min_lr": 1e-4}"#, 10);
            assert!((schedule.lr(10) - 1e-4).abs() < 1e-12 && schedule.lr(25) == schedule.lr(10));
            assert!((0..10).all(|step| schedule.lr(step) > schedule.lr(step + 1)), "{name} falls all the way");
        }
    }
}
