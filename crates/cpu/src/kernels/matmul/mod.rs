//! Matrix products with packing on the fly: out = store(Σ A·B), A and B as they stand in memory.
//!
//! The output is cut into tiles, one task each; where the reduction is cut follows from the shape alone. A task walks the reduction in
//! blocks: it packs its columns of B, panel after panel, into L2; then strip after strip of A, packed or read where it stands if it is
//! words already, meets all panels from L1, while the next block of B is asked for. Several products are added by joining their reductions,
//! so a low-rank branch costs a few more steps of the same loop. A task packs for itself: sharing packed panels among threads needs
//! barriers, and cost more than it saved on small maps.

pub mod fixed;
pub mod micro;
pub mod operand;
pub mod pack;
mod portable;
pub mod prefetch;
pub mod store;
mod widen;

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_bf16;
#[cfg(target_arch = "x86_64")]
mod avx512_vnni;

#[cfg(target_arch = "x86_64")]
pub use amx::{is_available as amx_is_available, registers_only as amx_registers_only};

use crate::threads;
use micro::{LANES, Micro, Tile};
use operand::Term;
use pack::PackedRows;
use std::ops::Range;
use store::{Store, Sums};

/// Most rows of a task's tile.
const TILE_ROWS: usize = 1024;

/// A sum of products and where it goes.
pub struct Matmul<'a> {
    pub micro: &'static Micro,
    pub rows: usize,
    pub columns: usize,
    pub terms: &'a [Term],
    pub store: Store,
}

/// How a product is cut up.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    tile_rows: usize,
    tile_columns: usize,
    words: usize,
    block_words: usize,
    /// Whether the reduction takes more than one block.
    several: bool,
    /// Words from row to row of packed A: whole cache lines, an odd number of them, so that rows fall into different L1 sets.
    a_stride: usize,
}

impl Blocks {
    fn new(micro: &Micro, rows: usize, columns: usize, depths: &[usize]) -> Blocks {
        let terms = depths.iter().map(|d| micro.words(*d)).filter(|words| *words > 0);
        let words: usize = terms.clone().sum();
        let block_words = words.div_ceil(words.div_ceil(micro.block_words).max(1)).next_multiple_of(micro.step);
        let even = |size: usize, most: usize, unit: usize| size.div_ceil(size.div_ceil(most).max(1)).next_multiple_of(unit).max(unit);
        let tile_rows = even(rows, TILE_ROWS, micro.rows);
        // Few rows make few tasks, so cut the columns finer; but each task packs A anew where it doesn't read it in place.
        let most = if rows.div_ceil(tile_rows) >= 4 { micro.tile_columns } else { (columns / (4 * threads::count())).clamp(64, 160) };
        let tile_columns = even(columns, most, micro.columns);
        let a_stride = block_words.next_multiple_of(LANES) | LANES;
        let several = words > block_words || micro.fixed.is_some() && terms.count() > 1;
        Blocks { tile_rows, tile_columns, words, block_words, several, a_stride }
    }

    /// Words of scratch of one worker: a packed strip of A, packed panels of B, rows to convert, sums, and units of the strip and of the
    /// columns.
    fn pieces(&self, micro: &Micro) -> [usize; 6] {
        let strip = micro.rows.next_multiple_of(micro.whole_rows);
        let sums = if self.several { self.tile_rows * self.tile_columns } else { strip * micro.columns };
        let units = if micro.fixed.is_some() { [strip, self.tile_columns] } else { [0; 2] };
        let (a, b) = (strip * self.a_stride, self.block_words * self.tile_columns);
        [a, b, LANES * self.block_words, sums, units[0], units[1]].map(|words| words.next_multiple_of(LANES))
    }

    /// The block of the reduction that begins at word `start`. In fixed point blocks end where terms end: a small term beside a large one
    /// would lose its bits in shared units.
    fn block(&self, micro: &Micro, terms: &[Term], start: usize) -> Range<usize> {
        let mut end = (start + self.block_words).min(self.words);
        if micro.fixed.is_some() {
            let mut last = 0;
            for term in terms {
                last += micro.words(term.depth);
                if last > start {
                    end = end.min(last);
                    break;
                }
            }
        }
        start..end
    }
}

/// Bytes of scratch that [`Matmul::run`] needs for terms of these depths.
pub fn scratch_bytes(micro: &Micro, rows: usize, columns: usize, depths: &[usize]) -> usize {
    Blocks::new(micro, rows, columns, depths).pieces(micro).iter().sum::<usize>() * 4 * threads::count()
}

/// Scratch of a worker.
#[derive(Clone, Copy)]
struct Worker {
    a: *mut u32,
    b: *mut u32,
    spare: *mut u32,
    sums: *mut f32,
    /// Units of the rows of A and the columns of B.
    units: [*mut f32; 2],
}

/// Scratch that workers share out among themselves.
#[derive(Clone, Copy)]
pub struct Shared(*mut u8);

// SAFETY: each worker touches its own part.
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

impl Shared {
    pub fn new(scratch: &mut [u8]) -> Shared {
        Shared(scratch.as_mut_ptr())
    }

    pub fn pointer(self) -> *mut u8 {
        self.0
    }
}

impl Matmul<'_> {
    /// Computes and stores the product. `scratch` has [`scratch_bytes`], aligned to 64.
    pub fn run(&self, scratch: &mut [u8]) {
        let depths = self.terms.iter().map(|t| t.depth);
        let mut list = [0; MOST_TERMS];
        list.iter_mut().zip(depths).for_each(|(l, d)| *l = d);
        let blocks = Blocks::new(self.micro, self.rows, self.columns, &list[..self.terms.len()]);
        let pieces = blocks.pieces(self.micro);
        let worker_words: usize = pieces.iter().sum();
        assert!(
            scratch.len() >= worker_words * 4 * threads::count(),
            "matmul: scratch was planned for less than {} needs",
            self.micro.name
        );
        assert!((scratch.as_ptr() as usize).is_multiple_of(64), "matmul: scratch must be aligned to 64 bytes");
        let shared = Shared::new(scratch);
        let (down, across) = (self.rows.div_ceil(blocks.tile_rows), self.columns.div_ceil(blocks.tile_columns));
        threads::for_each(down * across, |task, number| {
            // SAFETY: worker `number` has `worker_words` words of its own, checked above.
            let worker = unsafe {
                let a = shared.pointer().cast::<u32>().add(number * worker_words);
                let (b, spare) = (a.add(pieces[0]), a.add(pieces[0] + pieces[1]));
                let sums = spare.add(pieces[2]).cast::<f32>();
                let units = sums.add(pieces[3]);
                Worker { a, b, spare, sums, units: [units, units.add(pieces[4])] }
            };
            // SAFETY: scratch is laid out as `pieces` says, and the task's tile is its own.
            unsafe { self.task(&blocks, task / across, task % across, worker) };
        });
    }

    /// One tile of the output.
    ///
    /// # Safety
    /// The worker's scratch is laid out as [`Blocks::pieces`] says; no other task has this tile.
    unsafe fn task(&self, blocks: &Blocks, down: usize, across: usize, worker: Worker) {
        let micro = self.micro;
        let first_row = down * blocks.tile_rows;
        let rows = first_row..(first_row + blocks.tile_rows).min(self.rows);
        let first_column = across * blocks.tile_columns;
        let columns = first_column..(first_column + blocks.tile_columns).min(self.columns);
        let whole = self.rows.is_multiple_of(micro.whole_rows);
        let in_place = blocks.words > 0 && whole && self.terms.iter().all(|t| t.reads_in_place(micro));
        let strip = micro.strip(rows.len());
        let strips = rows.len().div_ceil(strip);
        let mut words = blocks.block(micro, self.terms, 0);
        loop {
            // SAFETY: as the caller promises.
            unsafe { pack::pack_panels(micro, self.terms, columns.clone(), words.clone(), worker.b, worker.units[1], worker.spare) };
            let next = blocks.block(micro, self.terms, words.end);
            for i in 0..strips {
                let from = rows.start + i * strip;
                let strip = Strip {
                    rows: from..(from + strip).min(rows.end),
                    sums: if blocks.several { i * strip * blocks.tile_columns } else { 0 },
                    words: words.clone(),
                    in_place,
                };
                prefetch::right(micro, self.terms, columns.clone(), next.clone(), i, strips);
                // SAFETY: as above; the panels are packed.
                unsafe { self.strip(blocks, worker, &strip, columns.clone()) };
            }
            if words.end >= blocks.words {
                return;
            }
            words = next;
        }
    }

    /// A strip against all packed panels.
    ///
    /// # Safety
    /// As [`Self::task`]; the worker holds the packed panels of these columns.
    unsafe fn strip(&self, blocks: &Blocks, worker: Worker, strip: &Strip, columns: Range<usize>) {
        let (micro, rows, words) = (self.micro, strip.rows.len(), strip.words.len());
        let mut parts = [LeftPart { a: worker.a.cast_const(), a_stride: blocks.a_stride, first: 0, words }; MOST_TERMS];
        let mut count = 1;
        if strip.in_place {
            count = 0;
            pack::each_term(micro, self.terms, strip.words.clone(), |term, numbers, first, words| {
                let (a, a_stride) = term.in_place(strip.rows.start, numbers.start);
                parts[count] = LeftPart { a, a_stride, first, words };
                count += 1;
            });
        } else {
            // SAFETY: scratch is as the caller promises, and rows and words exist.
            unsafe {
                let into = PackedRows { words: worker.a, stride: blocks.a_stride, units: worker.units[0] };
                pack::pack_left(micro, self.terms, strip.rows.clone(), strip.words.clone(), into);
            }
        }
        let (before, last) = (strip.words.start > 0, strip.words.end >= blocks.words);
        for (offset, width, exist) in micro.panels(columns.len()) {
            // SAFETY: as the caller promises. A single block's sums are stored at once, so all panels share one place.
            unsafe {
                let c = worker.sums.add(strip.sums + if blocks.several { offset * rows } else { 0 });
                let panel = worker.b.cast_const().add(offset * words);
                let units = (worker.units[0].cast_const(), worker.units[1].wrapping_add(offset).cast_const());
                for part in &parts[..count] {
                    (micro.tile)(&Tile {
                        a: part.a,
                        a_stride: part.a_stride,
                        rows,
                        b: panel.add(part.first * width),
                        columns: width,
                        words: part.words,
                        c,
                        c_stride: width,
                        accumulate: before || part.first > 0,
                        units,
                    });
                }
                if last {
                    let sums = Sums {
                        sums: c,
                        stride: width,
                        first_row: strip.rows.start,
                        rows,
                        first_column: columns.start + offset,
                        width: exist,
                        columns: self.columns,
                    };
                    self.store.tile(micro, &sums);
                }
            }
        }
    }
}

/// Most products that are added up.
const MOST_TERMS: usize = 4;

/// A stretch of a strip's words as the micro-kernel reads them.
#[derive(Clone, Copy)]
struct LeftPart {
    a: *const u32,
    a_stride: usize,
    /// Its first word in the panels, and how many.
    first: usize,
    words: usize,
}

/// Some rows of a task's tile in one block of the reduction.
struct Strip {
    rows: Range<usize>,
    /// Where the sums of its panels begin.
    sums: usize,
    words: Range<usize>,
    /// The left operands are read where they stand.
    in_place: bool,
}

#[cfg(test)]
mod tests;
