//! Pyramid noise (Whitaker, "Multi-Resolution Noise for Diffusion Model Training", 2023): white noise with coarser and coarser noise
//! added to it, so that the model learns to change large areas too.
//!
//! ```text
//! ε ← ε + Σ_i discountⁱ · up(N(0, 1) at 1/rᵢⁱ of the size),  i = 0, 1, …      rᵢ uniform in 2…4
//! ε ← ε / std(ε)
//! ```
//! `up` is bilinear between pixel centres. It ends early at a level one pixel high or wide. The spread is that of the item's own
//! elements, where trainers in batches take the whole batch's: an item's noise depends on nothing but the item.

use crate::Draw;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pyramid {
    /// Most levels.
    pub iterations: usize,
    /// Weight of a level, to the power of its number.
    pub discount: f32,
}

/// One level: noise at a size of its own, channels last.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    pub size: [usize; 2],
    pub values: Vec<f32>,
}

impl Pyramid {
    /// Adds the levels of an item to its noise.
    pub fn apply(&self, draw: Draw, size: [usize; 2], noise: &mut [f32]) {
        let levels = self.levels(draw, size, noise.len() / (size[0] * size[1]));
        self.add(size, &levels, noise);
    }

    /// The levels of an item, the largest first.
    fn levels(&self, draw: Draw, size: [usize; 2], channels: usize) -> Vec<Level> {
        let mut rng = draw.rng("pyramid noise");
        let mut levels = Vec::new();
        for i in 0..self.iterations {
            let ratio = 2.0 + 2.0 * f64::from(rng.uniform());
            let size = size.map(|side| ((side as f64 / ratio.powi(i as i32)) as usize).max(1));
            let mut values = vec![0.0; size[0] * size[1] * channels];
            rng.fill_normal(&mut values);
            levels.push(Level { size, values });
            if size.contains(&1) {
                break;
            }
        }
        levels
    }

    /// Adds levels to noise of `size`, and brings the sum to a spread of 1.
    pub fn add(&self, size: [usize; 2], levels: &[Level], noise: &mut [f32]) {
        let mut weight = 1.0;
        for level in levels {
            add_enlarged(level, size, weight, noise);
            weight *= self.discount;
        }
        let spread = spread(noise);
        if spread > 0.0 {
            noise.iter_mut().for_each(|v| *v = (f64::from(*v) / spread) as f32);
        }
    }
}

/// Between which two pixels of a side of `from` pixels the pixel `to` of `side` lies, and how far from the first.
fn between(to: usize, side: usize, from: usize) -> (usize, usize, f32) {
    let place = ((to as f32 + 0.5) * (from as f32 / side as f32) - 0.5).max(0.0);
    let first = (place as usize).min(from - 1);
    (first, (first + 1).min(from - 1), place - first as f32)
}

fn add_enlarged(level: &Level, [height, width]: [usize; 2], weight: f32, noise: &mut [f32]) {
    let [from_height, from_width] = level.size;
    let channels = level.values.len() / (from_height * from_width);
    for (y, row) in noise.chunks_exact_mut(width * channels).enumerate() {
        let (top, bottom, down) = between(y, height, from_height);
        for (x, pixel) in row.chunks_exact_mut(channels).enumerate() {
            let (left, right, along) = between(x, width, from_width);
            for (c, value) in pixel.iter_mut().enumerate() {
                let at = |y: usize, x: usize| level.values[(y * from_width + x) * channels + c];
                let upper = at(top, left) + along * (at(top, right) - at(top, left));
                let lower = at(bottom, left) + along * (at(bottom, right) - at(bottom, left));
                *value += weight * (upper + down * (lower - upper));
            }
        }
    }
}

/// Standard deviation, with n − 1.
fn spread(values: &[f32]) -> f64 {
    let mean = values.iter().map(|v| f64::from(*v)).sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum();
    (squares / (values.len().max(2) - 1) as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PYRAMID: Pyramid = Pyramid { iterations: 10, discount: 0.4 };

    #[test]
    fn levels_shrink_by_two_to_four_each_time_and_end_at_one_pixel() {
        for step in 0..50 {
            let levels = PYRAMID.levels(Draw { seed: 1, step, item: 0 }, [64, 48], 4);
            assert_eq!(levels[0].size, [64, 48]);
            let last = levels.last().unwrap();
            assert!(last.size.contains(&1) || levels.len() == 10, "{:?}", last.size);
            assert!(levels[..levels.len() - 1].iter().all(|level| !level.size.contains(&1)));
            assert!((12..=24).contains(&levels[1].size[1]), "{:?}", levels[1].size);
        }
    }

    #[test]
    fn the_sum_has_a_spread_of_one_and_neighbours_that_agree() {
        let (size, channels) = ([64, 64], 4);
        let mut noise = vec![0.0; size[0] * size[1] * channels];
        Draw { seed: 1, step: 0, item: 0 }.rng("noise").fill_normal(&mut noise);
        Pyramid { iterations: 10, discount: 0.8 }.apply(Draw { seed: 1, step: 0, item: 0 }, size, &mut noise);
        assert!((spread(&noise) - 1.0).abs() < 1e-5);
        let pairs = noise.chunks_exact(channels).zip(noise[channels..].chunks_exact(channels));
        let agreement: f32 = pairs.map(|(a, b)| a[0] * b[0]).sum::<f32>() / (size[0] * size[1]) as f32;
        assert!(agreement > 0.1, "{agreement}");
    }

    #[test]
    fn a_latent_of_one_pixel_and_no_levels_are_left_alone() {
        let mut noise = vec![0.5; 1];
        PYRAMID.add([1, 1], &[], &mut noise);
        assert_eq!(noise, [0.5]);
    }
}
