//! Loss weights by noise level. A model of flows has none of these: its signal-to-noise ratio is another, and its timesteps'
//! distribution does their work.

use crate::Prediction;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weighting {
    /// Every timestep weighs the same.
    Even,
    /// Min-SNR-γ (Hang et al., "Efficient Diffusion Training via Min-SNR Weighting Strategy", 2023): min(SNR, γ)/SNR for
    /// ε-prediction, min(SNR, γ)/(SNR + 1) for v-prediction. Finite at every noise level: at SNR 0 the first is 1, its limit.
    MinSnr { gamma: f64 },
    /// The same with a soft minimum, SNR·γ/(SNR + γ) (Crowson et al., "Scalable High-Resolution Pixel-Space Image Synthesis with
    /// Hourglass Diffusion Transformers", 2024).
    SoftMinSnr { gamma: f64 },
    /// Debiased estimation (Yu et al., "Debias the Training of Diffusion Models", 2023): 1/√SNR for ε-prediction, with SNR at most
    /// 1000; 1/(SNR + 1) for v-prediction, as trainers do it. Infinite for ε-prediction at SNR 0, where that model learns nothing.
    Debiased,
}

/// Above this the weights of debiased estimation, and those of v-prediction as ε-prediction, stay what they are.
const LARGEST_SNR: f64 = 1000.0;

impl Weighting {
    pub fn weight(self, prediction: Prediction, snr: f64) -> f64 {
        match (self, prediction) {
            (Weighting::Even, _) => 1.0,
            (Weighting::MinSnr { gamma }, Prediction::Epsilon) if snr <= gamma => 1.0,
            (Weighting::MinSnr { gamma }, Prediction::Epsilon) => gamma / snr,
            (Weighting::MinSnr { gamma }, Prediction::Velocity) => snr.min(gamma) / (snr + 1.0),
            (Weighting::SoftMinSnr { gamma }, Prediction::Epsilon) => gamma / (snr + gamma),
            (Weighting::SoftMinSnr { gamma }, Prediction::Velocity) => snr * gamma / (snr + gamma) / (snr + 1.0),
            (Weighting::Debiased, Prediction::Epsilon) => 1.0 / snr.min(LARGEST_SNR).sqrt(),
            (Weighting::Debiased, Prediction::Velocity) => 1.0 / (snr.min(LARGEST_SNR) + 1.0),
        }
    }
}

/// Factor on the loss of a model that predicts v, by which its timesteps weigh as those of one that predicts ε: SNR/(SNR + 1), with SNR at
/// most 1000 (sd-scripts).
pub fn like_noise_prediction(snr: f64) -> f64 {
    let snr = snr.min(LARGEST_SNR);
    snr / (snr + 1.0)
}

/// Weights for each timestep, whatever its noise: a bell over the range with a mean of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bell {
    /// exp(−2((x − N/2)/N)²) less its least value.
    Whole,
    /// Half of it: the noisy side falls, every timestep below the middle weighs as much as the middle.
    NoisySide,
}

impl Bell {
    /// The weights of all `count` timesteps. x counts from the noisy end, 0 at the noisiest.
    pub fn weights(self, count: usize) -> Vec<f64> {
        let n = count as f64;
        let heights: Vec<f64> = (0..count).map(|x| (-2.0 * ((x as f64 - n / 2.0) / n).powi(2)).exp()).collect();
        let least = heights.iter().copied().fold(f64::INFINITY, f64::min);
        let sum: f64 = heights.iter().map(|h| h - least).sum();
        // One timestep has no bell.
        let mut weights: Vec<f64> = heights.iter().map(|h| if sum > 0.0 { (h - least) * n / sum } else { 1.0 }).collect();
        if self == Bell::NoisySide {
            let most = weights.iter().copied().fold(0.0, f64::max);
            weights[count / 2..].fill(most);
        }
        weights.reverse();
        weights
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIN: Weighting = Weighting::MinSnr { gamma: 5.0 };
    const SOFT: Weighting = Weighting::SoftMinSnr { gamma: 5.0 };

    #[test]
    fn min_snr_has_the_published_values() {
        assert_eq!(MIN.weight(Prediction::Epsilon, 20.0), 0.25);
        assert_eq!(MIN.weight(Prediction::Epsilon, 2.0), 1.0);
        assert_eq!(MIN.weight(Prediction::Velocity, 9.0), 0.5);
        assert_eq!(MIN.weight(Prediction::Velocity, 3.0), 0.75);
        assert_eq!(SOFT.weight(Prediction::Epsilon, 15.0), 0.25);
        assert_eq!(SOFT.weight(Prediction::Velocity, 5.0), 2.5 / 6.0);
    }

    #[test]
    fn weights_are_finite_at_a_terminal_snr_of_zero() {
        for weighting in [Weighting::Even, MIN, SOFT] {
            assert_eq!(weighting.weight(Prediction::Epsilon, 0.0), 1.0);
        }
        for (weighting, weight) in [(MIN, 0.0), (SOFT, 0.0), (Weighting::Debiased, 1.0)] {
            assert_eq!(weighting.weight(Prediction::Velocity, 0.0), weight);
        }
    }

    #[test]
    fn a_bell_of_one_timestep_is_even_and_all_have_a_mean_of_one() {
        assert_eq!(Bell::Whole.weights(1), [1.0]);
        let mean = Bell::Whole.weights(1000).iter().sum::<f64>() / 1000.0;
        assert!((mean - 1.0).abs() < 1e-12, "{mean}");
    }
}
