//! Learning-rate schedules: pure functions from the optimizer step to the rate. THE list of names is [`SCHEDULES`].
//!
//! `step` counts optimizer steps from 0, whatever the gradient accumulation; the update number `step + 1` uses `lr(step)`.
//! Warm-up is linear from 0, as in diffusers and transformers: rate·step/warmup while step < warmup, then the named curve over
//! the steps that are left. Nothing is stored, so a resumed run has the same rates as one that was never stopped.

mod constant;
mod constant_with_warmup;
mod cosine;
mod cosine_with_restarts;
mod exponential;
mod inverse_sqrt;
mod linear;
mod one_cycle;
mod polynomial;
mod rex;
mod step;
mod warmup_stable_decay;

use crate::hyper::{Bounds, Hyper, NOT_NEGATIVE, SHARE, plain, unknown_name};
use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value};

/// The part after the warm-up.
pub trait Curve: Send + Sync {
    /// The share of the base rate, from 0 to 1.
    fn at(&self, point: Point) -> f64;
}

/// Where in the part after the warm-up a step is.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Steps since the warm-up; never more than `length`.
    pub step: u64,
    /// Steps after the warm-up, at least 1.
    pub length: u64,
}

impl Point {
    /// From 0 to 1.
    pub fn progress(self) -> f64 {
        self.step as f64 / self.length as f64
    }
}

/// What a curve is built from.
pub struct Request<'r, 'a> {
    pub hyper: &'r mut Hyper<'a>,
    pub base_lr: f64,
    /// Warm-up in steps.
    pub warmup: u64,
    /// Length of the run in steps.
    pub total: u64,
}

/// What a schedule does about a warm-up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Warmup {
    /// So many steps unless the config says otherwise.
    Steps(u64),
    /// None is possible; what to do instead.
    Never(&'static str),
}

/// One row of the list.
pub struct Entry {
    /// In configs and printed plans.
    pub name: &'static str,
    /// What other programs call it. Compared without case, `_`, `-`, and what stands before a dot.
    pub aliases: &'static [&'static str],
    pub warmup: Warmup,
    pub build: fn(Request) -> Result<Box<dyn Curve>>,
}

/// Every schedule that a config can name.
pub static SCHEDULES: &[Entry] = &[
    constant::ENTRY,
    constant_with_warmup::ENTRY,
    linear::ENTRY,
    cosine::ENTRY,
    cosine_with_restarts::ENTRY,
    polynomial::ENTRY,
    one_cycle::ENTRY,
    step::ENTRY,
    exponential::ENTRY,
    inverse_sqrt::ENTRY,
    warmup_stable_decay::ENTRY,
    rex::ENTRY,
];

/// A schedule for one run.
pub struct Schedule {
    name: &'static str,
    base_lr: f64,
    warmup: u64,
    total: u64,
    curve: Box<dyn Curve>,
    /// The settings, defaults included, under their first names.
    pub params: Map<String, Value>,
}

/// The schedule `name` for a run of `total` optimizer steps with the settings of `lr_scheduler_params`:
/// `warmup_steps` (alias `num_warmup_steps`; below 1 it is a share of the run, as in kohya's scripts) or `warmup_ratio`
/// for every schedule, and the curve's own ones.
pub fn parse(name: &str, params: &Map<String, Value>, base_lr: f64, total: u64) -> Result<Schedule> {
    ensure!(base_lr.is_finite() && base_lr >= 0.0, "the learning rate is {base_lr}, must be a number ≥ 0");
    let entry = find(name)?;
    let owner = format!("learning-rate schedule {}", entry.name);
    let mut hyper = Hyper::new(&owner, params);
    let warmup = warmup(&mut hyper, entry, total)?;
    let curve = (entry.build)(Request { hyper: &mut hyper, base_lr, warmup, total })?;
    let params = hyper.finish()?;
    Ok(Schedule { name: entry.name, base_lr, warmup, total, curve, params })
}

fn find(name: &str) -> Result<&'static Entry> {
    let wanted = plain(name);
    let is = |known: &&str| plain(known) == wanted;
    let found = SCHEDULES.iter().find(|entry| is(&entry.name) || entry.aliases.iter().any(is));
    let names: Vec<&str> = SCHEDULES.iter().map(|entry| entry.name).collect();
    found.ok_or_else(|| unknown_name("learning-rate schedule", &name.trim().to_lowercase(), &names))
}

/// Warm-up in steps of a run of `total`.
fn warmup(hyper: &mut Hyper, entry: &Entry, total: u64) -> Result<u64> {
    let steps = hyper.optional(&["warmup_steps", "num_warmup_steps"], NOT_NEGATIVE)?;
    let ratio = hyper.optional(&["warmup_ratio"], SHARE)?;
    let share = |share: f64| (share * total as f64).round() as u64;
    let given = match (steps, ratio) {
        (Some(_), Some(_)) => bail!("the warm-up is given twice, as warmup_steps and as warmup_ratio: give one"),
        (Some(steps), None) if steps > 0.0 && steps < 1.0 => Some(share(steps)),
        (Some(steps), None) if steps.fract() != 0.0 => bail!("warmup_steps is {steps}: give whole steps, or a share below 1"),
        (Some(steps), None) => Some(steps as u64),
        (None, ratio) => ratio.map(share),
    };
    match entry.warmup {
        Warmup::Steps(default) => Ok(given.unwrap_or(default)),
        Warmup::Never(instead) => {
            ensure!(steps.or(ratio).unwrap_or(0.0) == 0.0, "the schedule {} has no warm-up of this kind: {instead}", entry.name);
            Ok(0)
        }
    }
}

impl Schedule {
    /// The rate for the update after `step` updates; steps beyond the end have the end's rate. Always finite and ≥ 0.
    pub fn lr(&self, step: u64) -> f64 {
        if step < self.warmup {
            return self.base_lr * step as f64 / self.warmup as f64;
        }
        let length = self.total.saturating_sub(self.warmup).max(1);
        self.base_lr * self.curve.at(Point { step: (step - self.warmup).min(length), length })
    }

    /// The rates of all updates.
    pub fn rates(&self) -> impl Iterator<Item = f64> {
        (0..self.total).map(|step| self.lr(step))
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

/// The lowest rate as a share of the base rate: `min_lr` (alias `eta_min`, `lr_end`), or `min_lr_ratio` of it.
fn min_share(request: &mut Request) -> Result<f64> {
    let min_lr = request.hyper.optional(&["min_lr", "eta_min", "lr_end"], NOT_NEGATIVE)?;
    let ratio = request.hyper.optional(&["min_lr_ratio", "min_lr_rate"], SHARE)?;
    ensure!(min_lr.is_none() || ratio.is_none(), "the lowest rate is given twice, as min_lr and as min_lr_ratio: give one");
    let (min_lr, base_lr) = (min_lr.unwrap_or(0.0), request.base_lr);
    ensure!(min_lr <= base_lr, "min_lr {min_lr:e} is above the learning rate {base_lr:e}");
    let from_rate = if base_lr > 0.0 { min_lr / base_lr } else { 0.0 };
    Ok(ratio.unwrap_or(from_rate))
}

/// Steps given as whole steps, or below 1 as a share of `whole`.
fn steps_or_share(request: &mut Request, keys: &[&'static str], bounds: Bounds, whole: u64) -> Result<Option<u64>> {
    let Some(steps) = request.hyper.optional(keys, bounds)? else { return Ok(None) };
    ensure!(steps < 1.0 || steps.fract() == 0.0, "{} is {steps}: give whole steps, or a share below 1", keys[0]);
    Ok(Some(if steps < 1.0 { (steps * whole as f64).round() as u64 } else { steps as u64 }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schedule(name: &str, params: Value, total: u64) -> Schedule {
        parse(name, params.as_object().unwrap(), 1e-3, total).unwrap()
    }

    fn error(name: &str, params: Value) -> String {
        format!("{:#}", parse(name, params.as_object().unwrap(), 1e-3, 10).err().unwrap())
    }

    #[test]
    fn unknown_names_and_settings_are_refused_with_the_nearest() {
        assert!(error("cosin", json!({})).contains("did you mean cosine?"));
        assert!(error("cosine", json!({"min_lt": 0.1})).contains("did you mean min_lr?"));
        assert!(error("cosine", json!({"min_lr": 0.1})).contains("above the learning rate"));
        assert!(error("cosine", json!({"min_lr": 1e-5, "min_lr_ratio": 0.1})).contains("twice"));
        assert!(error("cosine", json!({"warmup_steps": 5, "warmup_ratio": 0.1})).contains("twice"));
        assert!(error("cosine", json!({"warmup_steps": 2.5})).contains("whole steps"));
        assert!(error("constant", json!({"warmup_steps": 2})).contains("constant_with_warmup"));
        assert!(error("one_cycle", json!({"warmup_steps": 2})).contains("pct_start"));
        assert!(error("step", json!({})).contains("step_size"));
        assert!(parse("cosine", &Map::new(), f64::NAN, 10).is_err());
        for (written, name) in
            [("CosineAnnealingLR", "cosine"), ("OneCycleLR", "one_cycle"), ("wsd", "warmup_stable_decay"), ("REX", "rex")]
        {
            assert_eq!(find(written).unwrap().name, name);
        }
    }

    #[test]
    fn warm_up_may_be_given_as_steps_or_as_a_share() {
        for params in
            [json!({"warmup_steps": 3}), json!({"num_warmup_steps": 3}), json!({"warmup_ratio": 0.3}), json!({"warmup_steps": 0.34})]
        {
            assert_eq!(schedule("cosine", params.clone(), 10).warmup_steps(), 3, "{params}");
        }
        assert_eq!(schedule("constant_with_warmup", json!({}), 10).warmup_steps(), 1000);
    }

    /// Settings that a schedule can't do without.
    fn needed(entry: &Entry) -> Value {
        if entry.name == "step" { json!({"step_size": 3}) } else { json!({}) }
    }

    #[test]
    fn every_schedule_is_finite_for_runs_shorter_than_the_warm_up_and_of_one_step() {
        for entry in SCHEDULES {
            for (warmup, total) in [(0, 0), (0, 1), (1, 1), (50, 50), (100, 50), (5, 50)] {
                let never = matches!(entry.warmup, Warmup::Never(_));
                let mut params = needed(entry);
                params["warmup_steps"] = json!(if never { 0 } else { warmup });
                let schedule = schedule(entry.name, params, total);
                let rates: Vec<f64> = (0..=2 * total + 2).map(|step| schedule.lr(step)).collect();
                assert!(rates.iter().all(|lr| lr.is_finite() && (0.0..=1e-3).contains(lr)), "{} {warmup} {total}: {rates:?}", entry.name);
                assert_eq!(schedule.warning().is_some(), !never && warmup > 0 && warmup >= total);
            }
            assert!(schedule(entry.name, needed(entry), 4000).rates().fold(0.0, f64::max) > 0.99e-3, "{} reaches its rate", entry.name);
        }
    }

    #[test]
    fn every_schedule_has_a_curve_of_its_own() {
        let curves: Vec<Vec<f64>> = SCHEDULES
            .iter()
            .map(|entry| {
                let mut params = needed(entry);
                if entry.name == "constant_with_warmup" {
                    params["warmup_steps"] = json!(5);
                }
                // One cycle is a plain cosine.
                if entry.name == "cosine_with_restarts" {
                    params["num_cycles"] = json!(2);
                }
                // At a power of 1 a polynomial is a line, as it should be.
                if entry.name == "polynomial" {
                    params["power"] = json!(2);
                }
                schedule(entry.name, params, 20).rates().collect()
            })
            .collect();
        for (i, curve) in curves.iter().enumerate() {
            assert!(curve.iter().any(|lr| *lr != curve[0]) == (SCHEDULES[i].name != "constant"), "{} is flat", SCHEDULES[i].name);
            let twin = curves[..i].iter().position(|other| other == curve);
            assert!(twin.is_none(), "{} has the curve of {}", SCHEDULES[i].name, SCHEDULES[twin.unwrap_or(0)].name);
        }
    }

    #[test]
    fn two_cycles_are_two_humps_after_a_warm_up_that_is_given_as_a_share() {
        let params = json!({"num_cycles": 2, "warmup_steps": 0.1});
        let rates: Vec<f64> = schedule("cosine_with_restarts", params, 100).rates().collect();
        let peaks: Vec<usize> = (1..99).filter(|i| rates[*i] > rates[i - 1] && rates[*i] > rates[i + 1]).collect();
        assert_eq!(peaks, [10, 55]);
        assert!(rates[54] < 0.01e-3 && rates[55] == 1e-3 && rates[99] < 0.01e-3, "{rates:?}");
    }

    #[test]
    fn every_schedule_reads_its_own_settings_back() {
        for entry in SCHEDULES {
            let first = schedule(entry.name, needed(entry), 100);
            let again = schedule(entry.name, Value::Object(first.params.clone()), 100);
            assert_eq!(first.params, again.params);
            assert!((0..=100).all(|step| first.lr(step) == again.lr(step)), "{}", entry.name);
        }
    }

    #[test]
    fn the_minimum_is_reached_at_the_end_and_kept() {
        for (name, own) in [
            ("cosine", json!({})),
            ("linear", json!({})),
            ("polynomial", json!({"power": 2})),
            ("rex", json!({})),
            ("warmup_stable_decay", json!({"decay_steps": 0.999})),
            ("exponential", json!({})),
        ] {
            for minimum in [json!({"min_lr": 1e-4}), json!({"min_lr_ratio": 0.1})] {
                let mut params = own.clone();
                params.as_object_mut().unwrap().extend(minimum.as_object().unwrap().clone());
                let schedule = schedule(name, params, 10);
                assert!((schedule.lr(10) - 1e-4).abs() < 1e-12 && schedule.lr(25) == schedule.lr(10), "{name} ends at {}", schedule.lr(10));
                assert!((0..10).all(|step| schedule.lr(step) > schedule.lr(step + 1)), "{name} falls all the way");
            }
        }
    }
}
