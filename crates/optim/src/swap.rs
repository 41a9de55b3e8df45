//! Parameter swapping: each step trains a share of the parameters, drawn anew, and leaves the others as they are
//! (ai-toolkit's `do_paramiter_swapping`).
//!
//! Which ones is a pure function of (seed, step), so a resumed run draws the same. A parameter that is left alone keeps its state,
//! its count of updates included; its gradient is no part of the norm. At least one parameter is trained in each step.

use crate::Layout;
use anyhow::{Result, ensure};
use base::Rng;

pub struct Swap {
    seed: u64,
    /// Elements that a step trains, on average.
    elements: usize,
    order: Vec<usize>,
}

impl Swap {
    /// Each step trains the `share` of all elements.
    pub fn new(seed: u64, share: f64, layout: &Layout) -> Result<Swap> {
        ensure!(share > 0.0 && share <= 1.0, "the share of parameters that a step trains is {share}, must be more than 0 and at most 1");
        let elements = (layout.elements() as f64 * share).round() as usize;
        Ok(Swap { seed, elements, order: (0..layout.params().len()).collect() })
    }

    /// Writes what the step after `step` others trains.
    pub fn choose(&mut self, step: u64, layout: &Layout, active: &mut [bool]) {
        self.order.sort_unstable();
        let mut rng = Rng::new(self.seed, "parameter swapping", &[step]);
        rng.shuffle(&mut self.order);
        active.fill(false);
        let mut left = self.elements;
        for param in &self.order {
            let size = layout.params()[*param].shape.elements();
            // The one that no longer fits has a chance of what is left, so that large parameters have their turns too.
            let last = size >= left;
            active[*param] = !last || rng.below(size.max(1) as u64) < left as u64;
            left = left.saturating_sub(size);
            if last {
                break;
            }
        }
        if !active.contains(&true) {
            active[self.order[0]] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Shape;

    #[test]
    fn the_share_is_kept_on_average_and_everything_has_its_turn() {
        let layout = Layout::uniform((0..50).map(|i| (format!("p{i}"), Shape::from([10 + i])))).unwrap();
        let mut swap = Swap::new(3, 0.1, &layout).unwrap();
        let mut active = vec![false; 50];
        let mut turns = vec![0; 50];
        let mut mean = 0.0;
        for step in 0..2000 {
            swap.choose(step, &layout, &mut active);
            let chosen: usize = layout.params().iter().zip(&active).filter(|(_, on)| **on).map(|(p, _)| p.shape.elements()).sum();
            mean += chosen as f64 / layout.elements() as f64 / 2000.0;
            turns.iter_mut().zip(&active).for_each(|(n, on)| *n += i32::from(*on));
        }
        assert!((mean - 0.1).abs() < 0.002, "{mean}");
        assert!(turns.iter().all(|n| (140..260).contains(n)), "{turns:?}");
        let again = active.clone();
        swap.choose(7, &layout, &mut active);
        swap.choose(1999, &layout, &mut active);
        assert_eq!(active, again);
        assert!(Swap::new(1, 0.0, &layout).is_err() && Swap::new(1, f64::NAN, &layout).is_err());
    }

    #[test]
    fn one_parameter_is_trained_even_if_it_is_larger_than_the_share() {
        let layout = Layout::uniform([("a".to_string(), Shape::from([5])), ("b".to_string(), Shape::from([6]))]).unwrap();
        let mut active = [false; 2];
        for step in 0..20 {
            Swap::new(1, 0.01, &layout).unwrap().choose(step, &layout, &mut active);
            assert_eq!(active.iter().filter(|on| **on).count(), 1);
        }
    }
}
