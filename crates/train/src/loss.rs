//! What decides a step's mathematics beside the batch: the error, and how much timesteps weigh.

use config::{LossConfig, LossType};
use diffusion::weighting::like_noise_prediction;
use diffusion::{Bell, Huber, HuberSchedule, NoiseSchedule, Weighting};
use graph::ops;

#[derive(Clone, Debug)]
pub struct Loss {
    pub schedule: NoiseSchedule,
    pub weighting: Weighting,
    /// Timesteps of a model that predicts v weigh as those of one that predicts ε.
    pub like_noise_prediction: bool,
    /// A weight for each timestep beside that; empty: all the same.
    pub by_timestep: Vec<f64>,
    pub kind: LossType,
    pub huber: Huber,
    /// Weight of the loss that holds the model to its frozen predictions.
    pub preservation: f64,
}

impl Loss {
    pub fn new(config: &LossConfig, schedule: NoiseSchedule) -> Loss {
        let weighting = if config.min_snr_gamma > 0.0 {
            Weighting::MinSnr { gamma: config.min_snr_gamma }
        } else if config.soft_min_snr_gamma > 0.0 {
            Weighting::SoftMinSnr { gamma: config.soft_min_snr_gamma }
        } else if config.debiased_estimation_loss {
            Weighting::Debiased
        } else {
            Weighting::Even
        };
        let bell = match (config.linear_timesteps, config.linear_timesteps2) {
            (true, _) => Some(Bell::Whole),
            (_, true) => Some(Bell::NoisySide),
            _ => None,
        };
        let huber_schedule = match config.huber_schedule {
            config::HuberSchedule::Constant => HuberSchedule::Constant,
            config::HuberSchedule::Exponential => HuberSchedule::Exponential,
            config::HuberSchedule::Snr => HuberSchedule::Snr,
        };
        Loss {
            weighting,
            like_noise_prediction: config.scale_v_pred_loss_like_noise_pred,
            by_timestep: bell.map(|bell| bell.weights(schedule.timesteps())).unwrap_or_default(),
            kind: config.loss_type,
            huber: Huber { schedule: huber_schedule, c: config.huber_c, scale: config.huber_scale },
            preservation: config.diff_output_preservation_multiplier,
            schedule,
        }
    }

    /// The mean squared error, every timestep weighing the same.
    pub fn mse(schedule: NoiseSchedule) -> Loss {
        Loss {
            schedule,
            weighting: Weighting::Even,
            like_noise_prediction: false,
            by_timestep: Vec::new(),
            kind: LossType::Mse,
            huber: Huber { schedule: HuberSchedule::Constant, c: 1.0, scale: 1.0 },
            preservation: 1.0,
        }
    }

    /// Weight of the loss at a timestep.
    pub fn weight(&self, timestep: usize) -> f64 {
        let snr = self.schedule.snr(timestep);
        let like_noise = if self.like_noise_prediction { like_noise_prediction(snr) } else { 1.0 };
        self.weighting.weight(self.schedule.prediction(), snr) * like_noise * self.by_timestep.get(timestep).copied().unwrap_or(1.0)
    }

    /// c of the pseudo-Huber error at a timestep.
    pub fn threshold(&self, timestep: usize) -> f64 {
        self.huber.threshold(&self.schedule, timestep)
    }

    /// What the program's error is multiplied by at a timestep. It knows one form, 2c (√(d² + c²) − c); the others are multiples of it.
    pub fn factor(&self, timestep: usize) -> f64 {
        match self.kind {
            LossType::Mse | LossType::Mae | LossType::Huber => 1.0,
            LossType::SmoothL1 => 1.0 / self.threshold(timestep),
            LossType::PseudoHuber => 0.5 / self.threshold(timestep),
        }
    }
}

/// The program's error for a kind of loss.
pub fn pixel_error(kind: LossType) -> ops::PixelError {
    match kind {
        LossType::Mse => ops::PixelError::Square,
        LossType::Mae => ops::PixelError::Absolute,
        LossType::Huber | LossType::SmoothL1 | LossType::PseudoHuber => ops::PixelError::PseudoHuber,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use diffusion::{Prediction, SchedulerConfig};

    #[test]
    fn factors_turn_the_programs_error_into_each_form_of_it() {
        let schedule = NoiseSchedule::new(&SchedulerConfig::stable_diffusion(Prediction::Epsilon)).unwrap();
        let (d, c) = (0.3f64, 0.1f64);
        let root = (d * d + c * c).sqrt() - c;
        for (kind, expected) in [
            (LossType::Mse, d * d),
            (LossType::Mae, d),
            (LossType::Huber, 2.0 * c * root),
            (LossType::SmoothL1, 2.0 * root),
            (LossType::PseudoHuber, root),
        ] {
            let huber = Huber { schedule: HuberSchedule::Constant, c, scale: 1.0 };
            let loss = Loss { kind, huber, ..Loss::mse(schedule.clone()) };
            let found = loss.factor(500) * pixel_error(kind).value(d, loss.threshold(500));
            assert!((found / expected - 1.0).abs() < 1e-12, "{kind:?}: {found} instead of {expected}");
        }
    }

    #[test]
    fn the_config_chooses_the_weights() {
        let schedule = NoiseSchedule::new(&SchedulerConfig::stable_diffusion(Prediction::Epsilon)).unwrap();
        let loss = |train: &str| {
            let text = format!("name: a\nmodel: {{path: m}}\ndatasets: [{{folder_path: x}}]\ntrain: {{{train}}}\n");
            Loss::new(&config::load(text.as_bytes(), "c.yaml", &[]).unwrap().config.train.loss, schedule.clone())
        };
        assert_eq!(loss("").weight(0), 1.0);
        for (train, weighting) in [
            ("min_snr_gamma: 5", Weighting::MinSnr { gamma: 5.0 }),
            ("soft_min_snr_gamma: 4", Weighting::SoftMinSnr { gamma: 4.0 }),
            ("debiased_estimation: true", Weighting::Debiased),
        ] {
            assert_eq!(loss(train).weighting, weighting);
            assert_eq!(loss(train).weight(10), weighting.weight(Prediction::Epsilon, schedule.snr(10)));
        }
        let both = loss("min_snr_gamma: 5, scale_v_pred_loss_like_noise_pred: true").weight(10);
        assert_eq!(both, loss("min_snr_gamma: 5").weight(10) * like_noise_prediction(schedule.snr(10)));
        let (bell, half) = (loss("linear_timesteps: true"), loss("linear_timesteps2: true"));
        assert!(bell.weight(500) > 1.3 && bell.weight(0) < 0.1 && bell.weight(998) < 0.1);
        assert!(half.weight(0) == half.weight(400) && half.weight(998) < 0.1);
    }
}
