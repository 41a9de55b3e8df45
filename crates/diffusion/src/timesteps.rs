//! Which noise level each training item gets.

use base::Rng;
use std::ops::RangeInclusive;

/// Uniform over the whole `range` (both ends included): a pure function of (seed, step, item).
pub fn uniform(seed: u64, step: u64, item: u64, range: RangeInclusive<usize>) -> usize {
    assert!(!range.is_empty(), "a range of timesteps has at least one");
    let count = (range.end() - range.start()) as u64 + 1;
    range.start() + Rng::new(seed, "timestep", &[step, item]).below(count) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_are_drawn_and_nothing_outside() {
        let mut counts = [0; 6];
        for step in 0..3000 {
            counts[uniform(1, step, 0, 2..=5)] += 1;
        }
        assert_eq!(counts[..2], [0, 0]);
        assert!(counts[2..].iter().all(|n| (650..850).contains(n)), "{counts:?}");
        assert_eq!(uniform(1, 9, 3, 0..=999), uniform(1, 9, 3, 0..=999));
        assert_eq!(uniform(1, 9, 3, 7..=7), 7);
    }
}
