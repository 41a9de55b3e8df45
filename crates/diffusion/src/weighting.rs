//! Loss weights by noise level.

use crate::Prediction;

/// Min-SNR-γ (Hang et al., "Efficient Diffusion Training via Min-SNR Weighting Strategy", 2023): min(SNR, γ)/SNR for
/// ε-prediction, min(SNR, γ)/(SNR + 1) for v-prediction. Finite at every noise level: at SNR 0 the first is 1, its limit.
pub fn min_snr(prediction: Prediction, snr: f64, gamma: f64) -> f64 {
    match prediction {
        Prediction::Epsilon if snr <= gamma => 1.0,
        Prediction::Epsilon => gamma / snr,
        Prediction::Velocity => snr.min(gamma) / (snr + 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn min_snr_has_the_published_values_and_is_finite_at_zero_snr() {
        assert_eq!(min_snr(Prediction::Epsilon, 20.0, 5.0), 0.25);
        assert_eq!(min_snr(Prediction::Epsilon, 2.0, 5.0), 1.0);
        assert_eq!(min_snr(Prediction::Epsilon, 0.0, 5.0), 1.0);
        assert_eq!(min_snr(Prediction::Velocity, 9.0, 5.0), 0.5);
        assert_eq!(min_snr(Prediction::Velocity, 3.0, 5.0), 0.75);
        assert_eq!(min_snr(Prediction::Velocity, 0.0, 5.0), 0.0);
    }
}
