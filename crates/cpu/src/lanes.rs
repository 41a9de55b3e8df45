//! Sums over a fixed number of lanes: they fill the widest vectors and have the same order on every machine.

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
