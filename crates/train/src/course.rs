//! How a run goes through its learning-rate schedule when its length is changed on the way.
//!
//! A schedule is laid out for a number of steps. If a resumed run is to be longer or shorter than that, the rate must not leap: what is
//! left of the schedule is stretched or pressed over the steps that are left. A run whose schedule is at its end has nothing left to
//! stretch, and one whose rates don't depend on the length needs no stretching: both go on as if they had been laid out anew.

use anyhow::Result;
use optim::Schedule;
use serde::{Deserialize, Serialize};

/// Rates of so many steps are compared to see whether a schedule depends on its length.
const COMPARED: u64 = 4096;

/// From `step` of the run on, each step moves by `pace` through the schedule, beginning at its step `at`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knot {
    pub step: u64,
    pub at: f64,
    pub pace: f64,
}

/// The way of a run through its schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Course {
    /// Steps that the schedule is laid out for.
    pub length: u64,
    /// Steps of the run.
    pub total: u64,
    /// Where the pace changed, in order of steps; it begins with one schedule step a step.
    pub knots: Vec<Knot>,
}

impl Course {
    /// A run that is as long as its schedule.
    pub fn straight(total: u64) -> Course {
        Course { length: total, total, knots: Vec::new() }
    }

    /// The step of the schedule whose rate the run's `step` has.
    pub fn at(&self, step: u64) -> u64 {
        (self.place(step).round() as u64).min(self.length)
    }

    fn place(&self, step: u64) -> f64 {
        let knot = self.knots.iter().rev().find(|knot| knot.step <= step);
        let knot = knot.copied().unwrap_or(Knot { step: 0, at: 0.0, pace: 1.0 });
        knot.at + (step - knot.step) as f64 * knot.pace
    }

    /// The way of a run that has done `done` steps of this one and is now to have `total`.
    fn stretched(&self, done: u64, total: u64) -> Course {
        let at = self.place(done);
        if done == 0 || total <= done || at >= self.length as f64 {
            return Course::straight(total);
        }
        let pace = (self.length as f64 - at) / (total - done) as f64;
        let kept = self.knots.iter().filter(|knot| knot.step < done).copied();
        Course { length: self.length, total, knots: kept.chain([Knot { step: done, at, pace }]).collect() }
    }
}

/// The rates of a run.
pub struct Rates {
    schedule: Schedule,
    pub course: Course,
}

impl Rates {
    /// `build` makes the run's schedule for a length. `saved` is the way so far and the steps done on it.
    pub fn new(total: u64, saved: Option<(&Course, u64)>, build: impl Fn(u64) -> Result<Schedule>) -> Result<Rates> {
        let course = match saved {
            None => Course::straight(total),
            Some((course, _)) if course.total == total => course.clone(),
            Some((course, done)) => {
                let (before, now) = (build(course.length)?, build(total)?);
                if course.knots.is_empty() && alike(&before, &now) { Course::straight(total) } else { course.stretched(done, total) }
            }
        };
        Ok(Rates { schedule: build(course.length)?, course })
    }

    /// The rate for the update after `step` updates.
    pub fn lr(&self, step: u64) -> f64 {
        self.schedule.lr(self.course.at(step))
    }
}

/// Whether two lengths of a schedule have the same rates as far as both go.
fn alike(a: &Schedule, b: &Schedule) -> bool {
    let both = a.total_steps().min(b.total_steps());
    let stride = both.div_ceil(COMPARED).max(1) as usize;
    (0..both).step_by(stride).all(|step| a.lr(step) == b.lr(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cosine(total: u64) -> Result<Schedule> {
        optim::schedule::parse("cosine", json!({"warmup_steps": 4}).as_object().unwrap(), 1.0, total)
    }

    fn rates(build: fn(u64) -> Result<Schedule>, total: u64, saved: Option<(&Course, u64)>) -> Rates {
        Rates::new(total, saved, build).unwrap()
    }

    #[test]
    fn a_run_of_one_length_follows_its_schedule() {
        let rates = rates(cosine, 40, None);
        let plain = cosine(40).unwrap();
        assert!((0..40).all(|step| rates.lr(step) == plain.lr(step)));
    }

    #[test]
    fn a_changed_length_goes_on_from_the_rate_it_had_and_ends_where_the_schedule_ends() {
        let first = rates(cosine, 40, None);
        for total in [25, 60, 400] {
            let second = rates(cosine, total, Some((&first.course, 20)));
            let leap = (second.lr(20) - first.lr(20)).abs();
            assert!(leap < 0.05, "{total} steps: the rate leaps by {leap}");
            assert!((20..total - 1).all(|step| second.lr(step + 1) <= second.lr(step)), "{total} steps: the rate rises");
            assert_eq!(second.course.at(total), 40);
            assert!((0..20).all(|step| second.lr(step) == first.lr(step)));
        }
    }

    #[test]
    fn a_second_resume_has_the_same_rates_and_a_second_change_is_continuous_too() {
        let first = rates(cosine, 40, None);
        let second = rates(cosine, 60, Some((&first.course, 20)));
        let again = rates(cosine, 60, Some((&second.course, 30)));
        assert_eq!(again.course, second.course);
        let third = rates(cosine, 90, Some((&second.course, 30)));
        assert!((third.lr(30) - second.lr(30)).abs() < 0.05);
        assert!((0..30).all(|step| third.lr(step) == second.lr(step)));
        assert_eq!(third.course.at(90), 40);
    }

    #[test]
    fn a_finished_run_that_is_extended_and_a_schedule_without_a_length_are_laid_out_anew() {
        let first = rates(cosine, 40, None);
        assert_eq!(rates(cosine, 60, Some((&first.course, 40))).course, Course::straight(60));
        let constant = |total: u64| optim::schedule::parse("constant", json!({}).as_object().unwrap(), 1.0, total);
        let first = rates(constant, 40, None);
        assert_eq!(rates(constant, 60, Some((&first.course, 20))).course, Course::straight(60));
    }
}
