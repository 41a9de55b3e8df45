//! Cuts work into pieces whose size depends on shapes only, and runs them on the pool's threads: the thread count never changes a bit.

use rayon::prelude::*;
use std::ops::Range;

/// Elements of a piece of an elementwise op: long enough to pay for handing it to a thread, short enough to share evenly.
pub const PIECE: usize = 32 * 1024;

/// Calls `body(piece number, range)` for `0 .. count` cut into pieces of `piece`. A single piece runs on this thread.
pub fn each_piece(count: usize, piece: usize, body: impl Fn(usize, Range<usize>) + Sync) {
    let range = |i: usize| i * piece..((i + 1) * piece).min(count);
    match count.div_ceil(piece) {
        0 => {}
        1 => body(0, range(0)),
        pieces => (0..pieces).into_par_iter().for_each(|i| body(i, range(i))),
    }
}

/// Rows of `channels` elements that make up about one [`PIECE`].
pub fn rows_in_piece(channels: usize) -> usize {
    (PIECE / channels.max(1)).max(1)
}
