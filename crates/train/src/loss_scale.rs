//! The scale of an fp16 run's loss (Micikevicius et al., *Mixed Precision Training*, 2018).
//!
//! fp16 holds nothing below 6e-8, and most of what a step's gradients are made of lies there. So the loss is multiplied before the
//! backward pass, and the gradients are divided after it, in f32. The scale is as large as it may be: it grows while nothing overflows,
//! and falls back where something does. A step whose gradients overflow is not applied.

use config::GradScalerConfig;
use serde::{Deserialize, Serialize};

/// Where the scale stands; saved and resumed. An f32, so that it reads back from its decimal form as it was.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    pub scale: f32,
    /// Steps since the scale was changed.
    pub good_steps: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossScale {
    config: GradScalerConfig,
    standing: Standing,
}

impl LossScale {
    /// At the start of a run, or where a saved one stood.
    pub fn new(config: GradScalerConfig, saved: Option<Standing>) -> LossScale {
        let standing = saved.unwrap_or(Standing { scale: config.init_scale as f32, good_steps: 0 });
        LossScale { config, standing }
    }

    pub fn scale(&self) -> f32 {
        self.standing.scale
    }

    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// After an update that was applied.
    pub fn grow(&mut self) {
        let Standing { scale, good_steps } = self.standing;
        let grown = scale * self.config.growth_factor as f32;
        let due = good_steps + 1 >= self.config.growth_interval;
        self.standing = match due {
            true if grown.is_finite() => Standing { scale: grown, good_steps: 0 },
            true => Standing { scale, good_steps: 0 },
            false => Standing { scale, good_steps: good_steps + 1 },
        };
    }

    /// After an overflow: the scale from now on, or none if it is as small as it may be.
    pub fn fall(&mut self) -> Option<f32> {
        let (scale, floor) = (self.standing.scale, self.config.min_scale as f32);
        self.standing = Standing { scale: (scale * self.config.backoff_factor as f32).max(floor), good_steps: 0 };
        (scale > floor).then_some(self.standing.scale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: GradScalerConfig =
        GradScalerConfig { init_scale: 65536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 3, min_scale: 8192.0 };

    /// The table was worked out by hand by the rules of PyTorch's GradScaler, which has no floor.
    #[test]
    fn the_scale_falls_at_an_overflow_and_grows_after_enough_good_steps_in_a_row() {
        let mut scale = LossScale::new(CONFIG, None);
        let mut way = Vec::new();
        for overflows in [false, false, true, false, false, false, false, true, true, true, true, false] {
            let may_fall = if overflows {
                scale.fall().is_some()
            } else {
                scale.grow();
                true
            };
            way.push((may_fall, scale.scale(), scale.standing().good_steps));
        }
        assert_eq!(
            way,
            [
                (true, 65536.0, 1),
                (true, 65536.0, 2),
                (true, 32768.0, 0),
                (true, 32768.0, 1),
                (true, 32768.0, 2),
                (true, 65536.0, 0),
                (true, 65536.0, 1),
                (true, 32768.0, 0),
                (true, 16384.0, 0),
                (true, 8192.0, 0),
                (false, 8192.0, 0),
                (true, 8192.0, 1),
            ]
        );
    }

    #[test]
    fn a_saved_scale_goes_on_where_it_stood_and_never_grows_beyond_f32() {
        let odd = GradScalerConfig { init_scale: 1000.0, growth_factor: 1.7, growth_interval: 1, ..CONFIG };
        let mut scale = LossScale::new(odd, None);
        (0..300).for_each(|_| scale.grow());
        assert!(scale.scale().is_finite() && scale.scale() > 1e30);
        scale.fall();
        let text = serde_json::to_string(&scale.standing()).unwrap();
        assert_eq!(LossScale::new(CONFIG, Some(serde_json::from_str(&text).unwrap())).standing(), scale.standing());
    }
}
