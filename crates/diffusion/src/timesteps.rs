//! Which noise level each training item gets.

use crate::Draw;
use std::ops::RangeInclusive;

/// How timesteps are spread over their range. Larger timesteps are noisier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    Uniform,
    /// σ(mean + std·N(0, 1)) of the range (Esser et al., "Scaling Rectified Flow Transformers for High-Resolution Image Synthesis",
    /// 2024, section 3.1): a mean above 0 favours noisy timesteps, a smaller std the middle.
    LogitNormal {
        mean: f64,
        std: f64,
    },
    /// 1 − u³ of the range, u uniform: favours noisy timesteps, at which a picture's layout is decided (Mou et al., "T2I-Adapter",
    /// 2023, section 3.4).
    Content,
    /// u³ of the range: favours the least noisy timesteps, at which details are decided.
    Style,
}

impl Distribution {
    /// The timestep of an item, in `range` (both ends included).
    pub fn draw(self, draw: Draw, range: RangeInclusive<usize>) -> usize {
        assert!(!range.is_empty(), "a range of timesteps has at least one");
        let count = range.end() - range.start() + 1;
        let mut rng = draw.rng("timestep");
        let share = match self {
            Distribution::Uniform => return range.start() + rng.below(count as u64) as usize,
            Distribution::LogitNormal { mean, std } => 1.0 / (1.0 + (-(mean + std * f64::from(rng.normal()))).exp()),
            Distribution::Content => 1.0 - f64::from(rng.uniform()).powi(3),
            Distribution::Style => f64::from(rng.uniform()).powi(3),
        };
        range.start() + ((share * count as f64) as usize).min(count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Distribution; 4] =
        [Distribution::Uniform, Distribution::LogitNormal { mean: 0.5, std: 2.0 }, Distribution::Content, Distribution::Style];

    fn at(step: u64, item: u64) -> Draw {
        Draw { seed: 1, step, item }
    }

    #[test]
    fn both_ends_are_drawn_and_nothing_outside() {
        for distribution in ALL {
            let mut counts = [0; 6];
            for step in 0..3000 {
                counts[distribution.draw(at(step, 0), 2..=5)] += 1;
            }
            assert_eq!(counts[..2], [0, 0]);
            assert!(counts[2..].iter().all(|n| *n > 150), "{distribution:?}: {counts:?}");
            if distribution == Distribution::Uniform {
                assert!(counts[2..].iter().all(|n| (650..850).contains(n)), "{counts:?}");
            }
            assert_eq!(distribution.draw(at(9, 3), 0..=999), distribution.draw(at(9, 3), 0..=999));
            assert_eq!(distribution.draw(at(9, 3), 7..=7), 7);
        }
    }
}
