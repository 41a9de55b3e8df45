//! Nearest-neighbour resize to a given size: y[i, j] = x[⌊i·H/h⌋, ⌊j·W/w⌋] with x of H×W, y of h×w pixels.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;

/// Input: x [B, H, W, C]. Output: [B, size[0], size[1], C].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Upsample {
    pub size: [usize; 2],
}

/// Input: ∂y. Output: ∂x [B, size[0], size[1], C], the sum over the pixels that copied each one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UpsampleGrad {
    pub size: [usize; 2],
}

/// For each row of the larger map, the row of the smaller one that it copies.
fn sources(batch: usize, small: [usize; 2], large: [usize; 2]) -> impl Iterator<Item = usize> {
    let pixels = (0..batch).flat_map(move |b| (0..large[0]).flat_map(move |i| (0..large[1]).map(move |j| (b, i, j))));
    pixels.map(move |(b, i, j)| (b * small[0] + i * small[0] / large[0]) * small[1] + j * small[1] / large[1])
}

fn resized(meta: &Meta, size: [usize; 2]) -> Vec<Meta> {
    assert_eq!(meta.shape.rank(), 4, "upsample: {} is no map", meta.shape);
    vec![Meta::new([meta.shape.batch(), size[0], size[1], meta.shape.channels()], meta.dtype)]
}

impl Rule for Upsample {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        resized(inputs[0], self.size)
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let x = inputs[0];
        let small = [x.shape.dims()[1], x.shape.dims()[2]];
        let data = sources(x.shape.batch(), small, self.size).flat_map(|row| x.row(row).to_vec()).collect();
        vec![Array::new([x.shape.batch(), self.size[0], self.size[1], x.shape.channels()], data)]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let x = g.shape(g.inputs[0]);
        let dx = g.push(UpsampleGrad { size: [x.dims()[1], x.dims()[2]] }, &[g.upstream(0)]);
        g.set(0, dx[0]);
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(0.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |s: [usize; 4], size| Case::new(Upsample { size }, vec![normal(s, types.activation)]);
        vec![case([2, 4, 4, 32], [8, 8]), case([1, 3, 5, 7], [5, 9]), case([3, 1, 2, 3], [2, 4])]
    }
}

impl Rule for UpsampleGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        resized(inputs[0], self.size)
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let dy = inputs[0];
        let large = [dy.shape.dims()[1], dy.shape.dims()[2]];
        let mut dx = Array::zeros([dy.shape.batch(), self.size[0], self.size[1], dy.shape.channels()]);
        for (from, to) in sources(dy.shape.batch(), self.size, large).enumerate() {
            dx.row_mut(to).iter_mut().zip(dy.row(from)).for_each(|(dx, dy)| *dx += dy);
        }
        vec![dx]
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        Cost::elementwise(1.0, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |s: [usize; 4], size| Case::new(UpsampleGrad { size }, vec![normal(s, types.activation)]);
        vec![case([2, 8, 8, 32], [4, 4]), case([1, 5, 9, 7], [3, 5]), case([3, 2, 4, 3], [1, 2])]
    }
}

impl Builder {
    pub fn upsample(&mut self, x: ValueId, size: [usize; 2]) -> ValueId {
        self.push_one(Upsample { size }, &[x])
    }
}
