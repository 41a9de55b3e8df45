//! The trained parameters cut into pieces that are worked on in parallel, each with its part of every state array.
//!
//! Pieces never cross a parameter and their size does not depend on the number of threads, so neither does any result. The work
//! is spread by halving the list of pieces until one is left: slices are split, nothing is allocated.

use crate::cells::{Cells, Lane};
use crate::{CHUNK, Layout};
use std::ops::Range;

/// How finely parameters are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grain {
    /// At most [`CHUNK`] elements: for rules that look at one element at a time.
    Chunk,
    /// Whole parameters: for rules that see them as matrices.
    Param,
}

/// A stretch of one parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Piece {
    /// Index into [`Layout::params`].
    pub param: usize,
    /// Elements of the flat slices.
    pub range: Range<usize>,
    /// Where it begins within its parameter.
    pub offset: usize,
}

/// A parameter as a matrix: the first axis by all others. Numbers and vectors are a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    pub rows: usize,
    /// 0 for what has fewer than two axes.
    pub columns: usize,
}

/// What a rule is told about a piece.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub param: usize,
    /// Where the piece begins within its parameter.
    pub offset: usize,
    /// Updates of this parameter, with the one being made.
    pub updates: u64,
    /// Whether the step before trained this parameter too.
    pub in_a_row: bool,
    /// Factor of the parameter's group on the rate.
    pub lr_scale: f64,
    /// Weight decay of the parameter's group, if it has one of its own.
    pub weight_decay: Option<f64>,
    pub matrix: Matrix,
}

/// The pieces, and how often each parameter was updated.
pub struct Table {
    pub layout: Layout,
    pieces: Vec<Piece>,
    /// First piece of each parameter, and the number of pieces at the end.
    first: Vec<usize>,
    matrices: Vec<Matrix>,
    /// Updates of each parameter so far. They differ only where parameters are swapped.
    pub updates: Vec<u64>,
    /// Which parameters the current step trains, and which the step before trained.
    pub active: Vec<bool>,
    before: Vec<bool>,
    now: Vec<bool>,
    sums: Vec<[f64; 2]>,
}

/// The pieces of a layout, in order.
pub fn pieces(layout: &Layout, grain: Grain) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (param, p) in layout.params().iter().enumerate() {
        let length = if grain == Grain::Chunk { CHUNK } else { usize::MAX };
        let mut offset = 0;
        while offset < p.shape.elements() {
            let end = offset.saturating_add(length).min(p.shape.elements());
            pieces.push(Piece { param, range: p.offset + offset..p.offset + end, offset });
            offset = end;
        }
    }
    pieces
}

/// A parameter's matrix.
pub fn matrix(shape: &base::Shape) -> Matrix {
    match shape.rank() {
        0 | 1 => Matrix { rows: shape.elements(), columns: 0 },
        _ => Matrix { rows: shape.batch(), columns: shape.dims()[1..].iter().product() },
    }
}

impl Table {
    pub fn new(layout: Layout, grain: Grain) -> Table {
        let pieces = pieces(&layout, grain);
        let count = layout.params().len();
        let first = (0..=count).map(|param| pieces.partition_point(|piece| piece.param < param)).collect();
        let matrices = layout.params().iter().map(|p| matrix(&p.shape)).collect();
        let (active, before, sums) = (vec![true; count], vec![false; count], vec![[0.0; 2]; pieces.len()]);
        Table { first, matrices, updates: vec![0; count], now: before.clone(), before, active, sums, pieces, layout }
    }

    /// Counts the step that begins.
    pub fn count(&mut self) {
        let Table { updates, active, before, now, .. } = self;
        before.copy_from_slice(now);
        now.copy_from_slice(active);
        updates.iter_mut().zip(active).for_each(|(n, active)| *n += u64::from(*active));
    }

    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// After a resume: `active` is what the last step of the saved run trained.
    pub fn recall(&mut self) {
        self.now.copy_from_slice(&self.active);
    }

    /// The pieces of a parameter.
    pub fn pieces_of(&self, param: usize) -> Range<usize> {
        self.first[param]..self.first[param + 1]
    }

    /// Does `work` on every piece of the parameters that this step trains. It is given the piece's parameters, gradients and state.
    pub fn each<const N: usize>(
        &mut self,
        params: &mut [f32],
        grads: &[f32],
        cells: &mut [Cells; N],
        work: impl Fn(Place, &mut [f32], &[f32], [Lane; N]) + Sync,
    ) {
        self.sum(params, grads, cells, |place, params, grads, lanes| {
            work(place, params, grads, lanes);
            [0.0; 2]
        });
    }

    /// Like [`Table::each`], and adds up what `work` returns, piece by piece in their order.
    pub fn sum<const N: usize>(
        &mut self,
        params: &mut [f32],
        grads: &[f32],
        cells: &mut [Cells; N],
        work: impl Fn(Place, &mut [f32], &[f32], [Lane; N]) -> [f64; 2] + Sync,
    ) -> [f64; 2] {
        let mut sums = std::mem::take(&mut self.sums);
        sums.fill([0.0; 2]);
        let split = Split { from: 0, params, lanes: cells.each_mut().map(Cells::lane), sums: &mut sums };
        self.halve(split, grads, &work);
        let total = sums.iter().fold([0.0; 2], |[a, b], [x, y]| [a + x, b + y]);
        self.sums = sums;
        total
    }

    /// What `work` returned for each piece in the last [`Table::sum`].
    pub fn sums(&self) -> &[[f64; 2]] {
        &self.sums
    }

    /// Like [`Table::each`], but one piece after the other, for work that is parallel in itself.
    pub fn in_turn<const N: usize>(
        &self,
        params: &mut [f32],
        grads: &[f32],
        cells: &mut [Cells; N],
        mut work: impl FnMut(Place, &mut [f32], &[f32], [Lane; N]),
    ) {
        let mut lanes = cells.each_mut().map(Cells::lane);
        for piece in &self.pieces {
            let rest = lanes.each_mut().map(|lane| lane.split_off(1));
            let own = std::mem::replace(&mut lanes, rest);
            if self.active[piece.param] {
                work(self.place(piece), &mut params[piece.range.clone()], &grads[piece.range.clone()], own);
            }
        }
    }

    fn halve<const N: usize, W>(&self, mut split: Split<'_, N>, grads: &[f32], work: &W)
    where
        W: Fn(Place, &mut [f32], &[f32], [Lane; N]) -> [f64; 2] + Sync,
    {
        match split.sums.len() {
            0 => {}
            1 => self.leaf(split, grads, work),
            count => {
                let right = split.split_off(&self.pieces, count / 2);
                rayon::join(|| self.halve(split, grads, work), || self.halve(right, grads, work));
            }
        }
    }

    fn leaf<const N: usize, W>(&self, split: Split<'_, N>, grads: &[f32], work: &W)
    where
        W: Fn(Place, &mut [f32], &[f32], [Lane; N]) -> [f64; 2] + Sync,
    {
        let piece = &self.pieces[split.from];
        if self.active[piece.param] {
            split.sums[0] = work(self.place(piece), split.params, &grads[piece.range.clone()], split.lanes);
        }
    }

    fn place(&self, piece: &Piece) -> Place {
        let group = &self.layout.groups()[self.layout.params()[piece.param].group];
        Place {
            param: piece.param,
            offset: piece.offset,
            updates: self.updates[piece.param],
            in_a_row: self.before[piece.param],
            lr_scale: group.lr_scale,
            weight_decay: group.weight_decay,
            matrix: self.matrices[piece.param],
        }
    }
}

/// A run of pieces with the slices that belong to them.
struct Split<'a, const N: usize> {
    /// Number of the first piece.
    from: usize,
    params: &'a mut [f32],
    lanes: [Lane<'a>; N],
    /// One for each piece.
    sums: &'a mut [[f64; 2]],
}

impl<'a, const N: usize> Split<'a, N> {
    /// Keeps the first `count` pieces and returns the others.
    fn split_off(&mut self, pieces: &[Piece], count: usize) -> Split<'a, N> {
        let from = self.from + count;
        let elements = pieces[from].range.start - pieces[self.from].range.start;
        let (params, right_params) = std::mem::take(&mut self.params).split_at_mut(elements);
        let (sums, right_sums) = std::mem::take(&mut self.sums).split_at_mut(count);
        (self.params, self.sums) = (params, sums);
        let lanes = self.lanes.each_mut().map(|lane| lane.split_off(count));
        Split { from, params: right_params, lanes, sums: right_sums }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Shape;

    fn layout() -> Layout {
        let shapes = [vec![3, CHUNK], vec![5], vec![2, 3, 3, 4], vec![0, 4], vec![CHUNK]];
        Layout::uniform(shapes.into_iter().enumerate().map(|(i, dims)| (format!("p{i}"), Shape(dims)))).unwrap()
    }

    #[test]
    fn pieces_cover_every_parameter_and_cross_none() {
        for (grain, count) in [(Grain::Chunk, 6), (Grain::Param, 4)] {
            let table = Table::new(layout(), grain);
            assert_eq!(table.pieces().len(), count);
            assert!(table.pieces().windows(2).all(|pair| pair[0].range.end == pair[1].range.start));
            for (i, param) in table.layout.params().iter().enumerate() {
                let own = &table.pieces()[table.pieces_of(i)];
                assert_eq!(own.iter().map(|p| p.range.len()).sum::<usize>(), param.shape.elements());
                assert!(own.iter().all(|p| p.param == i && p.range.start == param.offset + p.offset));
            }
        }
        assert_eq!(matrix(&Shape::from([2, 3, 3, 4])), Matrix { rows: 2, columns: 36 });
        assert_eq!(matrix(&Shape::from([5])), Matrix { rows: 5, columns: 0 });
    }

    #[test]
    fn parameters_that_a_step_does_not_train_are_left_alone() {
        let mut table = Table::new(layout(), Grain::Chunk);
        table.active[2] = false;
        let elements = table.layout.elements();
        let (mut params, grads) = (vec![0.0; elements], vec![1.0; elements]);
        let sum = table.sum(&mut params, &grads, &mut [], |place, params, grads, []| {
            params.iter_mut().zip(grads).for_each(|(p, g)| *p += g + place.param as f32);
            [grads.len() as f64, 1.0]
        });
        assert_eq!(sum, [(elements - 72) as f64, 5.0]);
        for (i, param) in table.layout.params().iter().enumerate() {
            let expected = if i == 2 { 0.0 } else { 1.0 + i as f32 };
            assert!(params[param.range()].iter().all(|p| *p == expected), "parameter {i}");
        }
    }
}
