//! Flash attention (Dao et al., 2022): scores live block by block in L1 and L2, never as a matrix of all tokens in memory.
//!
//! Forward: a task is a block of queries of one head; it walks the keys with a running maximum and sum, and rescales what it has whenever
//! the maximum grows, so no logit overflows. Backward: see `backward.rs`.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod backward;
mod forward;

use super::matmul::micro::{LANES, Micro, Tile};
use super::matmul::operand::Source;
use super::matmul::pack::PackedRows;
use crate::tensor::Tensor;
use base::Shape;

/// Sizes that all parts need.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    /// Channels of a head.
    depth: usize,
}

impl Sizes {
    fn new(heads: usize, q: &Shape, k: &Shape) -> Sizes {
        Sizes { batch: q.batch(), heads, queries: q.tokens(), keys: k.tokens(), depth: q.channels() / heads }
    }

    /// Elements from token to token.
    fn stride(&self) -> usize {
        self.heads * self.depth
    }

    /// Index of the first element of a head (numbered through the batch) in a tensor of `tokens` tokens.
    fn head_start(&self, head: usize, tokens: usize) -> usize {
        (head / self.heads) * tokens * self.stride() + (head % self.heads) * self.depth
    }

    fn head(&self, tensor: &Tensor, head: usize) -> Source {
        Source::of(tensor).at(self.head_start(head, tensor.meta.shape.tokens()))
    }

    /// Columns of a panel set over the channels.
    fn wide(&self) -> usize {
        self.depth.next_multiple_of(LANES)
    }
}

/// `size` cut into equal pieces of at most `most`, in multiples of `unit`.
fn even(size: usize, most: usize, unit: usize) -> usize {
    size.div_ceil(size.div_ceil(most).max(1)).next_multiple_of(unit)
}

/// Words from row to row of a packed left operand: whole cache lines, an odd number of them.
fn row_words(words: usize) -> usize {
    words.next_multiple_of(LANES) | LANES
}

/// A packed left operand [rows, stride] with a unit a row (in fixed point).
#[derive(Clone, Copy)]
struct Rows {
    words: *const u32,
    stride: usize,
    units: *const f32,
}

impl Rows {
    fn new(words: &[u32], stride: usize, units: &[f32]) -> Rows {
        Rows { words: words.as_ptr(), stride, units: units.as_ptr() }
    }

    fn from(self, row: usize) -> Rows {
        Rows { words: self.words.wrapping_add(row * self.stride), units: self.units.wrapping_add(row), ..self }
    }
}

/// A packed right operand: panels of `words` words each, with a unit a column (in fixed point).
#[derive(Clone, Copy)]
struct Panels {
    packed: *const u32,
    words: usize,
    units: *const f32,
}

/// A place for packed rows of `words` words.
fn packed_rows(into: &mut [u32], words: usize, units: &mut [f32]) -> PackedRows {
    PackedRows { words: into.as_mut_ptr(), stride: row_words(words), units: units.as_mut_ptr() }
}

/// C [rows, columns] (+)= A · B for packed operands, `columns` a number of columns that exist.
///
/// # Safety
/// A has `rows` rows of B's words; B has the panels of `columns`; C, given with its stride, has room for whole panels, and if nothing is
/// accumulated for whole groups of rows.
unsafe fn multiply(micro: &Micro, a: Rows, rows: usize, b: Panels, (c, c_stride): (*mut f32, usize), columns: usize, accumulate: bool) {
    let sweep = micro.sweep.filter(|sweep| !accumulate && b.words <= sweep.words && columns >= micro.columns);
    let swept = sweep.map_or(0, |_| columns / micro.columns);
    for row in (0..rows).step_by(micro.rows) {
        let a = a.from(row);
        let tile = |column: usize, width: usize| Tile {
            a: a.words,
            a_stride: a.stride,
            rows: (rows - row).min(micro.rows),
            b: b.packed.wrapping_add(column * b.words),
            columns: width,
            words: b.words,
            c: c.wrapping_add(row * c_stride + column),
            c_stride,
            accumulate,
            units: (a.units, b.units.wrapping_add(column)),
        };
        // SAFETY: as the caller promises.
        unsafe {
            if let Some(sweep) = sweep {
                (sweep.run)(&tile(0, micro.columns), swept);
            }
            for (column, width, _) in micro.panels(columns).skip(swept) {
                (micro.tile)(&tile(column, width));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{compare, compare_case};
    use base::DType;
    use graph::Meta;
    use graph::ops::{Attention, AttentionGrad, Case, Fill, Rule};

    #[test]
    fn agrees_with_the_oracle_on_every_path() {
        compare(Attention::cases);
        compare(AttentionGrad::cases);
    }

    /// Several blocks of queries and keys, a last one that is cut off, and logits that grow by hundreds along the keys.
    #[test]
    fn walks_many_blocks_and_survives_growing_logits() {
        for (dtype, causal, spread) in [(DType::F32, false, 1.0), (DType::F32, true, 6.0), (DType::BF16, true, 1.0)] {
            let op = Attention { heads: 2, scale: 0.4, causal };
            let tokens = |n: usize, spread: f32| (Meta::new([2, n, 24], dtype), Fill::Normal(spread));
            let inputs = vec![tokens(301, spread), tokens(301, spread), tokens(301, 1.0)];
            compare_case(&Case::new(op, inputs.clone()), &format!("{dtype} causal {causal} spread {spread}"));
            let mut all = vec![tokens(301, 1.0)];
            all.extend(inputs);
            all.push((Meta::new([2, 301, 24], dtype), Fill::Output(0)));
            all.push((Meta::new([2, 2, 301], DType::F32), Fill::Output(1)));
            let grad = AttentionGrad { attention: op, query: true, keys: true };
            if spread < 2.0 {
                compare_case(&Case::new(grad, all), &format!("gradient, {dtype} causal {causal}"));
            }
        }
    }
}
