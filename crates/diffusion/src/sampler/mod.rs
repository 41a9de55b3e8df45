//! Samplers: from noise to a latent in a number of model calls. THE list of names is [`SAMPLERS`].
//!
//! ```text
//! sampler.init_noise(&mut x)
//! for (i, t) in sampler.timesteps():  sampler.scale_input(i, &x, &mut input);  output = model(input, t);  sampler.step(i, &output, &mut x)
//! ```

mod ddim;
mod euler;

pub use ddim::Ddim;
pub use euler::Euler;

use crate::NoiseSchedule;
use crate::noise_schedule::Spacing;
use anyhow::{Result, ensure};

/// A deterministic sampler, laid out for one number of steps. Works element by element: any batch, any layout.
pub trait Sampler: Send {
    /// The name in configs.
    fn name(&self) -> &'static str;

    /// What the model is told at each step; Euler's may lie between the training timesteps.
    fn timesteps(&self) -> &[f32];

    /// Scales unit noise to the sampler's first noise level, in place.
    fn init_noise(&self, x: &mut [f32]);

    /// What the model is given at step `i` for the state `x`.
    fn scale_input(&self, i: usize, x: &[f32], out: &mut [f32]);

    /// Moves the state `x` by step `i`, given the model's output.
    fn step(&self, i: usize, output: &[f32], x: &mut [f32]);
}

type Build = fn(&NoiseSchedule, usize) -> Result<Box<dyn Sampler>>;

/// Every sampler that a config can name.
pub static SAMPLERS: &[(&str, Build)] = &[
    (ddim::NAME, |schedule, steps| Ok(Box::new(Ddim::new(schedule, steps)?))),
    (euler::NAME, |schedule, steps| Ok(Box::new(Euler::new(schedule, steps)?))),
];

/// The sampler of that name for `steps` model calls, or an error with the list of names and the nearest.
pub fn build(name: &str, schedule: &NoiseSchedule, steps: usize) -> Result<Box<dyn Sampler>> {
    find(name)?(schedule, steps)
}

/// Looks a name up (case does not matter) without building anything.
pub fn find(name: &str) -> Result<Build> {
    let lower = name.to_lowercase();
    if let Some((_, build)) = SAMPLERS.iter().find(|(known, _)| *known == lower) {
        return Ok(*build);
    }
    let names: Vec<&str> = SAMPLERS.iter().map(|(name, _)| *name).collect();
    let hint = base::nearest::nearest(&lower, names.iter().copied()).map(|n| format!(", did you mean {n}?")).unwrap_or_default();
    anyhow::bail!("unknown sampler {name:?}{hint} (known: {})", names.join(", "))
}

/// Timesteps from the noisiest down, before rounding of `linspace` ones.
fn spread(schedule: &NoiseSchedule, spacing: Spacing, steps: usize) -> Result<Vec<f64>> {
    let total = schedule.timesteps();
    ensure!((1..=total).contains(&steps), "{steps} sampling steps: this model takes 1 to {total}");
    let last = (total - 1) as f64;
    Ok((0..steps)
        .map(|i| match spacing {
            // With as many steps as timesteps the offset would lead past the last one.
            Spacing::Leading => (((steps - 1 - i) * (total / steps) + schedule.config().steps_offset) as f64).min(last),
            Spacing::Trailing => (total as f64 - i as f64 * (total as f64 / steps as f64)).round_ties_even() - 1.0,
            Spacing::Linspace if steps == 1 => 0.0,
            Spacing::Linspace => last * (steps - 1 - i) as f64 / (steps - 1) as f64,
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Prediction, SchedulerConfig};

    #[test]
    fn unknown_names_and_impossible_step_counts_are_refused() {
        let schedule = NoiseSchedule::new(&SchedulerConfig::stable_diffusion(Prediction::Epsilon)).unwrap();
        assert!(build("dimm", &schedule, 20).err().unwrap().to_string().contains("did you mean ddim?"));
        for (name, _) in SAMPLERS {
            assert_eq!(build(&name.to_uppercase(), &schedule, 20).unwrap().name(), *name);
            assert!(build(name, &schedule, 0).is_err() && build(name, &schedule, 1001).is_err());
            for steps in [1, 3, 7, 999, 1000] {
                let sampler = build(name, &schedule, steps).unwrap();
                assert_eq!(sampler.timesteps().len(), steps);
                assert!(sampler.timesteps().iter().all(|t| (0.0..1000.0).contains(t)), "{name} {steps}");
            }
        }
    }
}
