//! Exponential moving average of the parameters: `a ← a + (1 − decay)·(p − a)` after every update.
//!
//! With a warm-up, decay is min(decay, (1 + n)/(10 + n)) after n updates, so that an average over a short run is not made of its
//! first values (TensorFlow's `ExponentialMovingAverage`, `num_updates`).

use crate::CHUNK;
use anyhow::{Result, ensure};
use rayon::prelude::*;

#[derive(Clone, Debug, PartialEq)]
pub struct Ema {
    decay: f64,
    warmup: bool,
    updates: u64,
    average: Vec<f32>,
}

impl Ema {
    /// Begins at `params`.
    pub fn new(decay: f64, warmup: bool, params: &[f32]) -> Result<Ema> {
        ensure!((0.0..1.0).contains(&decay), "the decay of the moving average is {decay}, must be from 0 up to (not including) 1");
        Ok(Ema { decay, warmup, updates: 0, average: params.to_vec() })
    }

    /// Goes on from a saved average.
    pub fn resume(&mut self, updates: u64, average: Vec<f32>) -> Result<()> {
        ensure!(average.len() == self.average.len(), "the saved average has {} values instead of {}", average.len(), self.average.len());
        (self.updates, self.average) = (updates, average);
        Ok(())
    }

    pub fn update(&mut self, params: &[f32]) {
        self.updates += 1;
        let n = self.updates as f64;
        let decay = if self.warmup { self.decay.min((1.0 + n) / (10.0 + n)) } else { self.decay };
        let share = (1.0 - decay) as f32;
        let chunks = self.average.par_chunks_mut(CHUNK).zip(params.par_chunks(CHUNK));
        chunks.for_each(|(average, params)| average.iter_mut().zip(params).for_each(|(a, p)| *a += share * (p - *a)));
    }

    pub fn updates(&self) -> u64 {
        self.updates
    }

    pub fn average(&self) -> &[f32] {
        &self.average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_follows_its_formula_with_and_without_warm_up_and_resumes() {
        for (warmup, decays) in [(false, [0.9, 0.9, 0.9]), (true, [2.0 / 11.0, 3.0 / 12.0, 4.0 / 13.0])] {
            let mut ema = Ema::new(0.9, warmup, &[1.0, -2.0]).unwrap();
            let mut expected = [1.0f64, -2.0];
            for (step, decay) in decays.into_iter().enumerate() {
                let params = [3.0 + step as f32, 0.5];
                if step == 2 {
                    let saved = (ema.updates(), ema.average().to_vec());
                    ema = Ema::new(0.9, warmup, &[9.0, 9.0]).unwrap();
                    ema.resume(saved.0, saved.1).unwrap();
                }
                ema.update(&params);
                expected = std::array::from_fn(|i| decay * expected[i] + (1.0 - decay) * f64::from(params[i]));
            }
            assert!(ema.average().iter().zip(expected).all(|(a, e)| (f64::from(*a) - e).abs() < 1e-6), "{ema:?} {expected:?}");
        }
        assert!(Ema::new(1.0, false, &[]).is_err() && Ema::new(0.5, false, &[1.0]).unwrap().resume(1, vec![]).is_err());
    }
}
