//! The threshold c of the pseudo-Huber loss by timestep (Khrapov et al., "Improving Diffusion Models's Data-Corruption Resistance
//! using Scheduled Pseudo-Huber Loss", 2024), as Stable Diffusion trainers schedule it: large at little noise, where errors are
//! squared; small at much noise, where outliers count less.
//!
//! ```text
//! constant      scale · c
//! exponential   scale · c^(t/T)
//! snr           (1 − c)/(1 + √((1 − ᾱ)/ᾱ))² + c
//! ```

use crate::NoiseSchedule;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HuberSchedule {
    Constant,
    Exponential,
    /// `scale` plays no part.
    Snr,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Huber {
    pub schedule: HuberSchedule,
    /// More than 0.
    pub c: f64,
    pub scale: f64,
}

impl Huber {
    /// c at timestep `t`; positive at every noise level, pure noise included.
    pub fn threshold(&self, noise: &NoiseSchedule, t: usize) -> f64 {
        match self.schedule {
            HuberSchedule::Constant => self.scale * self.c,
            HuberSchedule::Exponential => self.scale * self.c.powf(t as f64 / noise.timesteps() as f64),
            HuberSchedule::Snr => {
                let sigma = noise.snr(t).sqrt().recip();
                (1.0 - self.c) / (1.0 + sigma).powi(2) + self.c
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Prediction, SchedulerConfig};

    #[test]
    fn the_threshold_falls_to_c_and_stays_positive_at_pure_noise() {
        let config = SchedulerConfig { rescale_betas_zero_snr: true, ..SchedulerConfig::stable_diffusion(Prediction::Velocity) };
        let noise = NoiseSchedule::new(&config).unwrap();
        let snr = Huber { schedule: HuberSchedule::Snr, c: 0.1, scale: 1.0 };
        assert_eq!(snr.threshold(&noise, 999), 0.1);
        assert!((1..1000).all(|t| snr.threshold(&noise, t) < snr.threshold(&noise, t - 1)));
        let exponential = Huber { schedule: HuberSchedule::Exponential, scale: 2.0, ..snr };
        assert_eq!((exponential.threshold(&noise, 0), exponential.threshold(&noise, 500)), (2.0, 2.0 * 0.1f64.sqrt()));
        assert_eq!(Huber { schedule: HuberSchedule::Constant, ..exponential }.threshold(&noise, 700), 0.2);
    }
}
