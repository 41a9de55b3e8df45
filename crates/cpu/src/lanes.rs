//! Sums over a fixed number of lanes: they fill the widest vectors and have the same order on every machine.

use crate::element::Element;

/// Partial sums that run side by side: two of the widest vectors.
pub const LANES: usize = 32;

pub type Lanes = [f32; LANES];

/// The sum of all lanes, in the order of a tree.
#[inline(always)]
pub fn total(mut lanes: Lanes) -> f32 {
    let mut width = LANES;
    while width > 1 {
        width /= 2;
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
    }
    lanes[0]
}

/// Widens up to [`LANES`] elements; the other lanes are 0.
#[inline(always)]
pub fn load<T: Element>(from: &[T]) -> Lanes {
    let mut lanes = [0.0; LANES];
    match from.first_chunk::<LANES>() {
        Some(whole) => {
            for i in 0..LANES {
                lanes[i] = whole[i].to_f32();
            }
        }
        None => {
            for (lane, x) in lanes.iter_mut().zip(from) {
                *lane = x.to_f32();
            }
        }
    }
    lanes
}

/// Rounds the first lanes to `to`, which has at most [`LANES`] elements.
#[inline(always)]
pub fn store<T: Element>(lanes: &Lanes, to: &mut [T]) {
    match to.first_chunk_mut::<LANES>() {
        Some(whole) => {
            for i in 0..LANES {
                whole[i] = T::from_f32(lanes[i]);
            }
        }
        None => {
            for (x, lane) in to.iter_mut().zip(lanes) {
                *x = T::from_f32(*lane);
            }
        }
    }
}
