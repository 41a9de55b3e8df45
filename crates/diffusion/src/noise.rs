//! The noise of training and of samples.

use crate::Draw;
use crate::pyramid::Pyramid;
use base::Rng;

/// What training noise is beside white.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NoiseShape {
    /// Adds offset·N(0, 1), one draw for each channel, to all its pixels (Guttenberg, "Diffusion with Offset Noise", 2023).
    pub offset: f32,
    /// Makes the offset of each channel stronger by this times the latent's mean there, without its sign, and never weaker than none
    /// (sd-scripts' adaptive noise scale).
    pub adaptive: f32,
    pub pyramid: Option<Pyramid>,
}

impl NoiseShape {
    /// How strong the offset of each of the `channels` of a channels-last latent is.
    pub fn offsets(&self, latent: &[f32], channels: usize) -> Vec<f32> {
        let pixels = (latent.len() / channels.max(1)) as f64;
        let mean = |channel: usize| latent.iter().skip(channel).step_by(channels).map(|v| f64::from(*v)).sum::<f64>() / pixels;
        let strength = |channel| (f64::from(self.offset) + f64::from(self.adaptive) * mean(channel).abs()).max(0.0) as f32;
        (0..channels).map(strength).collect()
    }
}

/// Fills `out` with the training noise of an item: a channels-last latent of `height · width` pixels, as `latent` is that it belongs to.
pub fn training_noise(draw: Draw, [height, width]: [usize; 2], shape: &NoiseShape, latent: &[f32], out: &mut [f32]) {
    let pixels = height * width;
    assert!(pixels > 0 && out.len().is_multiple_of(pixels), "a latent has whole pixels");
    let channels = out.len() / pixels;
    draw.rng("noise").fill_normal(out);
    if shape.offset != 0.0 || shape.adaptive != 0.0 {
        let mut rng = draw.rng("noise offset");
        let shifts: Vec<f32> = shape.offsets(latent, channels).into_iter().map(|strength| strength * rng.normal()).collect();
        for pixel in out.chunks_exact_mut(channels) {
            pixel.iter_mut().zip(&shifts).for_each(|(value, shift)| *value += shift);
        }
    }
    if let Some(pyramid) = &shape.pyramid {
        pyramid.apply(draw, [height, width], out);
    }
}

/// Writes `noise` + γ·ξ with fresh white noise ξ: what is mixed into the latent while `noise` stays the target (Ning et al., "Input
/// Perturbation Reduces Exposure Bias in Diffusion Models", 2023).
pub fn perturbed(draw: Draw, gamma: f32, noise: &[f32], out: &mut [f32]) {
    let mut rng = draw.rng("input perturbation");
    for (out, noise) in out.iter_mut().zip(noise) {
        *out = noise + gamma * rng.normal();
    }
}

/// Fills one latent with the start noise of a sample picture.
pub fn sample_noise(seed: u64, out: &mut [f32]) {
    Rng::new(seed, "sample", &[]).fill_normal(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: [usize; 2] = [15, 20];
    /// Brightest in its last channel.
    const LATENT: [f32; 4 * 300] = {
        let mut latent = [0.0; 4 * 300];
        let mut i = 3;
        while i < latent.len() {
            latent[i] = -2.0;
            i += 4;
        }
        latent
    };

    fn noise(step: u64, item: u64, shape: &NoiseShape) -> Vec<f32> {
        let mut out = vec![0.0; 4 * SIZE[0] * SIZE[1]];
        training_noise(Draw { seed: 7, step, item }, SIZE, shape, &LATENT, &mut out);
        out
    }

    #[test]
    fn noise_repeats_and_differs_between_steps_and_items() {
        let offset = NoiseShape { offset: 0.1, ..NoiseShape::default() };
        let pyramid = NoiseShape { pyramid: Some(Pyramid { iterations: 6, discount: 0.4 }), ..NoiseShape::default() };
        for shape in [NoiseShape::default(), offset, NoiseShape { adaptive: 0.1, ..offset }, pyramid] {
            assert_eq!(noise(3, 1, &shape), noise(3, 1, &shape));
            assert_ne!(noise(3, 1, &shape), noise(3, 2, &shape));
            assert_ne!(noise(3, 1, &shape), noise(4, 1, &shape));
        }
    }

    #[test]
    fn the_offset_shifts_whole_channels() {
        let shifted = noise(3, 1, &NoiseShape { offset: 0.5, ..NoiseShape::default() });
        let shifts: Vec<f32> = noise(3, 1, &NoiseShape::default()).iter().zip(&shifted).map(|(p, s)| s - p).collect();
        for pixel in shifts.chunks_exact(4) {
            assert!(pixel.iter().zip(&shifts[..4]).all(|(a, b)| (a - b).abs() < 1e-5));
        }
        assert!(shifts[0] != shifts[1] && shifts[..4].iter().all(|s| s.abs() > 1e-4), "{:?}", &shifts[..4]);
    }

    #[test]
    fn an_adaptive_offset_is_stronger_in_channels_that_are_far_from_zero() {
        let shifts = |shape: NoiseShape| -> Vec<f32> {
            noise(3, 1, &NoiseShape::default()).iter().zip(noise(3, 1, &shape)).map(|(p, s)| s - p).take(4).collect()
        };
        let plain = shifts(NoiseShape { offset: 0.5, ..NoiseShape::default() });
        let adaptive = shifts(NoiseShape { offset: 0.5, adaptive: 0.25, ..NoiseShape::default() });
        let ratios: Vec<f32> = adaptive.iter().zip(&plain).map(|(a, p)| a / p).collect();
        assert!(ratios[..3].iter().all(|r| (r - 1.0).abs() < 1e-4) && (ratios[3] - 2.0).abs() < 1e-4, "{ratios:?}");
    }

    #[test]
    fn perturbation_adds_noise_of_its_own_with_the_spread_that_it_says() {
        let clean = noise(3, 1, &NoiseShape::default());
        let mut out = vec![0.0; clean.len()];
        perturbed(Draw { seed: 7, step: 3, item: 1 }, 0.1, &clean, &mut out);
        let added: Vec<f32> = out.iter().zip(&clean).map(|(o, c)| o - c).collect();
        let variance = added.iter().map(|a| a * a).sum::<f32>() / added.len() as f32;
        let overlap = added.iter().zip(&clean).map(|(a, c)| a * c).sum::<f32>() / added.len() as f32;
        assert!((variance / 0.01 - 1.0).abs() < 0.15 && overlap.abs() < 0.01, "variance {variance}, overlap {overlap}");
    }
}
