//! Global norm of the gradients, clipping by it, and the check for values that are not finite.
//!
//! The sum of squares is taken in f64 over fixed chunks and then over the chunks in order, so the norm is the same number on
//! any count of threads; a square of an f32 cannot overflow f64, so the norm is finite exactly when every gradient is.

use crate::CHUNK;
use rayon::prelude::*;

/// Holds the space for the chunks' partial sums, so that a step allocates nothing.
pub struct Clip {
    partial: Vec<f64>,
}

/// What [`Clip::clip`] found and did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Clipped {
    /// L2 norm over all gradients before clipping; not finite if any of them is not.
    pub norm: f64,
    /// What the gradients were multiplied with: 1 when the norm was small enough, or not finite.
    pub factor: f32,
}

impl Clipped {
    pub fn finite(&self) -> bool {
        self.norm.is_finite()
    }
}

impl Clip {
    /// For gradient slices of `elements`.
    pub fn new(elements: usize) -> Clip {
        Clip { partial: vec![0.0; elements.div_ceil(CHUNK)] }
    }

    /// L2 norm of all gradients.
    pub fn norm(&mut self, grads: &[f32]) -> f64 {
        assert_eq!(self.partial.len(), grads.len().div_ceil(CHUNK), "Clip was made for another number of gradients");
        self.partial.par_iter_mut().zip(grads.par_chunks(CHUNK)).for_each(|(sum, chunk)| *sum = sum_of_squares(chunk));
        self.partial.iter().sum::<f64>().sqrt()
    }

    /// Scales the gradients so that their norm is at most `max_norm`, by PyTorch's factor min(1, max_norm / (norm + 1e-6)).
    /// Gradients that are not finite stay as they are: the caller must not apply them.
    pub fn clip(&mut self, grads: &mut [f32], max_norm: f64) -> Clipped {
        let norm = self.norm(grads);
        let factor = (max_norm / (norm + 1e-6)).min(1.0) as f32;
        if !norm.is_finite() || factor == 1.0 {
            return Clipped { norm, factor: 1.0 };
        }
        scale(grads, factor);
        Clipped { norm, factor }
    }
}

/// Multiplies every gradient, as for the mean over accumulated micro-batches.
pub fn scale(grads: &mut [f32], factor: f32) {
    grads.par_chunks_mut(CHUNK).for_each(|chunk| chunk.iter_mut().for_each(|g| *g *= factor));
}

/// Eight running sums, so that the compiler may use vector registers without being free to reorder.
fn sum_of_squares(values: &[f32]) -> f64 {
    let mut sums = [0.0f64; 8];
    let blocks = values.chunks_exact(8);
    let rest = blocks.remainder();
    for block in blocks {
        for (sum, value) in sums.iter_mut().zip(block) {
            *sum += f64::from(*value) * f64::from(*value);
        }
    }
    let tail: f64 = rest.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
    sums.iter().sum::<f64>() + tail
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn norm_does_not_depend_on_the_number_of_threads() {
        let mut rng = base::Rng::new(5, "test", &[]);
        let mut grads = vec![0.0; 3 * CHUNK + 11];
        rng.fill_normal(&mut grads);
        let with_threads = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| Clip::new(grads.len()).norm(&grads))
        };
        let one = with_threads(1);
        assert_eq!(one.to_bits(), with_threads(4).to_bits());
        let exact = grads.iter().map(|g| f64::from(*g).powi(2)).sum::<f64>().sqrt();
        assert!((one / exact - 1.0).abs() < 1e-12);
    }

    #[test]
    fn clipping_scales_only_what_is_too_long() {
        let mut grads = vec![3.0, 4.0];
        assert_eq!(Clip::new(2).clip(&mut grads, 10.0), Clipped { norm: 5.0, factor: 1.0 });
        assert_eq!(grads, [3.0, 4.0]);
        let clipped = Clip::new(2).clip(&mut grads, 1.0);
        assert_eq!(clipped.norm, 5.0);
        assert!((grads[0] - 0.6).abs() < 1e-6 && (grads[1] - 0.8).abs() < 1e-6, "{grads:?}");
    }

    #[test]
    fn non_finite_gradients_are_seen_and_left_alone() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut grads = vec![1.0, bad, 2.0];
            assert!(!Clip::new(3).clip(&mut grads, 1.0).finite());
            assert_eq!((grads[0], grads[2]), (1.0, 2.0));
        }
        let mut huge = vec![f32::MAX; 100];
        assert!(Clip::new(100).clip(&mut huge, 1.0).finite());
    }
}
