//! How the backward is cut up, and the scratch of a worker.

use super::super::super::matmul::micro::{LANES, Micro};
use super::super::{Sizes, even, row_words};
use crate::scratch::{carve, carved_bytes};

/// Most keys and queries of a block.
const KEYS: usize = 128;
pub const QUERIES: usize = 256;
/// Tasks to aim at: few heads share out their keys.
const TASKS: usize = 16;

/// How the work is cut up.
#[derive(Clone, Copy)]
pub struct Plan {
    pub sizes: Sizes,
    pub keys: usize,
    pub queries: usize,
    /// Shares of the keys, and blocks of keys of a share.
    pub shares: usize,
    pub share_blocks: usize,
    pub depth_words: usize,
    /// Queries in whole blocks.
    pub padded: usize,
    /// Rows of ∂Qᵀ: channels in whole groups of rows.
    pub dq_rows: usize,
    /// Elements from row to row of ∂Qᵀ: a tile's rows would all fall into the same few sets of the caches if they were whole pages apart.
    pub dq_stride: usize,
}

/// Scratch of a worker.
pub struct Worker<'a> {
    /// Panels over all queries: Qᵀ and ∂Oᵀ [depth, queries], Q and ∂O [queries, depth].
    pub q_columns: Packed<'a>,
    pub do_columns: Packed<'a>,
    pub q_rows: Packed<'a>,
    pub do_rows: Packed<'a>,
    /// L and δ of all queries.
    pub lse: &'a mut [f32],
    pub delta: &'a mut [f32],
    /// K and V of a block [keys, depth], and Kᵀ [depth, keys].
    pub k: Packed<'a>,
    pub v: Packed<'a>,
    pub k_turned: Packed<'a>,
    /// Kᵀ in floats; fixed point only.
    pub k_floats: &'a mut [f32],
    pub spare: &'a mut [u32],
    /// A strip of Sᵀ and ∂Pᵀ [rows of a tile, queries].
    pub scores: &'a mut [f32],
    pub slopes: &'a mut [f32],
    /// Pᵀ and ∂Sᵀ [keys, queries] in the packed type, and the panels of ∂Sᵀ.
    pub p: Packed<'a>,
    pub ds: Packed<'a>,
    pub ds_panels: &'a mut [u32],
    /// ∂K and ∂V of a block [keys, wide].
    pub dk: &'a mut [f32],
    pub dv: &'a mut [f32],
    /// Floats of a row of K as they come.
    pub line: &'a mut [f32],
}

/// A packed operand, with units of its rows or columns.
pub struct Packed<'a> {
    pub words: &'a mut [u32],
    pub units: &'a mut [f32],
}

/// Elements of the parts of [`Worker`].
struct Parts {
    columns: [usize; 2],
    rows: [usize; 2],
    padded: usize,
    left: [usize; 2],
    turned: [usize; 2],
    floats: usize,
    spare: usize,
    strip: usize,
    block: [usize; 2],
    sums: usize,
    depth: usize,
}

impl Plan {
    pub fn new(micro: &Micro, sizes: Sizes) -> Plan {
        let keys = even(sizes.keys, KEYS, micro.rows.next_multiple_of(2));
        let queries = even(sizes.queries, QUERIES, micro.columns);
        let blocks = sizes.keys.div_ceil(keys);
        let share_blocks = blocks.div_ceil(TASKS.div_ceil(sizes.batch * sizes.heads).min(blocks));
        let shares = blocks.div_ceil(share_blocks);
        let padded = sizes.queries.next_multiple_of(queries);
        Plan {
            sizes,
            keys,
            queries,
            shares,
            share_blocks,
            depth_words: micro.words(sizes.depth),
            padded,
            dq_rows: sizes.depth.next_multiple_of(micro.whole_rows),
            dq_stride: row_words(padded),
        }
    }

    /// Elements of ∂Qᵀ of one head and share.
    pub fn share(&self) -> usize {
        self.dq_rows * self.dq_stride
    }

    /// Bytes of all shares' ∂Qᵀ.
    pub fn shares_bytes(&self) -> usize {
        self.sizes.batch * self.sizes.heads * self.shares * self.share() * 4
    }

    fn parts(&self, micro: &Micro) -> Parts {
        let (wide, per_word, depth) = (self.sizes.wide(), micro.per_word(), self.sizes.depth);
        let turned_words = row_words(micro.words(self.keys));
        Parts {
            columns: [self.padded * self.depth_words, self.padded],
            rows: [self.padded / self.queries * micro.words(self.queries) * wide, self.padded / self.queries * wide],
            padded: self.padded,
            left: [self.keys * row_words(self.depth_words), self.keys],
            turned: [self.dq_rows * turned_words, depth],
            floats: if micro.fixed.is_some() { depth * self.keys.next_multiple_of(LANES) } else { 0 },
            spare: LANES * self.depth_words.max(micro.words(self.queries)),
            strip: micro.rows * self.queries,
            block: [self.keys * self.queries / per_word, self.keys.next_multiple_of(LANES)],
            sums: self.keys * wide,
            depth,
        }
    }

    pub fn worker_bytes(&self, micro: &Micro) -> usize {
        let p = self.parts(micro);
        let packed = [p.columns, p.columns, p.rows, p.rows, p.left, p.left, p.turned, p.block, p.block];
        let plain = [p.padded, p.padded, p.floats, p.spare, p.strip, p.strip, p.block[0], p.sums, p.sums, p.depth];
        packed.into_iter().flatten().chain(plain).map(|n| carved_bytes::<u32>(n) as usize).sum()
    }

    pub fn worker<'a>(&self, micro: &Micro, mut bytes: &'a mut [u8]) -> Worker<'a> {
        let p = self.parts(micro);
        let b = &mut bytes;
        let mut packed = |[words, units]: [usize; 2]| Packed { words: carve(b, words), units: carve(b, units) };
        let [q_columns, do_columns, q_rows, do_rows] = [p.columns, p.columns, p.rows, p.rows].map(&mut packed);
        let [k, v, k_turned, probabilities, ds] = [p.left, p.left, p.turned, p.block, p.block].map(&mut packed);
        Worker {
            q_columns,
            do_columns,
            q_rows,
            do_rows,
            k,
            v,
            k_turned,
            p: probabilities,
            ds,
            lse: carve(b, p.padded),
            delta: carve(b, p.padded),
            k_floats: carve(b, p.floats),
            spare: carve(b, p.spare),
            scores: carve(b, p.strip),
            slopes: carve(b, p.strip),
            ds_panels: carve(b, p.block[0]),
            dk: carve(b, p.sums),
            dv: carve(b, p.sums),
            line: carve(b, p.depth),
        }
    }
}
