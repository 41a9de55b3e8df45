//! Noise that is a pure function of (seed, step, item): a resumed run draws the same, in any order, on any thread.

use base::Rng;

/// Fills one channels-last latent (`out.len()` = pixels · `channels`) with the training noise of `item` in optimizer
/// step `step`. `offset` adds offset·N(0, 1), one draw for each channel, to all its pixels (Guttenberg, "Diffusion with
/// Offset Noise", 2023).
pub fn training_noise(seed: u64, step: u64, item: u64, channels: usize, offset: f32, out: &mut [f32]) {
    assert!(channels > 0 && out.len().is_multiple_of(channels), "a latent has whole pixels");
    Rng::new(seed, "noise", &[step, item]).fill_normal(out);
    if offset == 0.0 {
        return;
    }
    let mut rng = Rng::new(seed, "noise offset", &[step, item]);
    let shifts: Vec<f32> = (0..channels).map(|_| offset * rng.normal()).collect();
    for pixel in out.chunks_exact_mut(channels) {
        pixel.iter_mut().zip(&shifts).for_each(|(value, shift)| *value += shift);
    }
}

/// Fills one latent with the start noise of a sample picture.
pub fn sample_noise(seed: u64, out: &mut [f32]) {
    Rng::new(seed, "sample", &[]).fill_normal(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(step: u64, item: u64, offset: f32) -> Vec<f32> {
        let mut out = vec![0.0; 4 * 300];
        training_noise(7, step, item, 4, offset, &mut out);
        out
    }

    #[test]
    fn noise_repeats_and_differs_between_steps_and_items() {
        assert_eq!(noise(3, 1, 0.1), noise(3, 1, 0.1));
        assert_ne!(noise(3, 1, 0.0), noise(3, 2, 0.0));
        assert_ne!(noise(3, 1, 0.0), noise(4, 1, 0.0));
    }

    #[test]
    fn the_offset_shifts_whole_channels() {
        let (plain, shifted) = (noise(3, 1, 0.0), noise(3, 1, 0.5));
        let shifts: Vec<f32> = plain.iter().zip(&shifted).map(|(p, s)| s - p).collect();
        for pixel in shifts.chunks_exact(4) {
            assert!(pixel.iter().zip(&shifts[..4]).all(|(a, b)| (a - b).abs() < 1e-5));
        }
        assert!(shifts[0] != shifts[1] && shifts[..4].iter().all(|s| s.abs() > 1e-4), "{:?}", &shifts[..4]);
    }
}
