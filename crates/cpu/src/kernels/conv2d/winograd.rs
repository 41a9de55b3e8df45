//! 3×3 convolutions of stride 1 with a quarter of the multiplications: Winograd's F(4×4, 3×3), as in Lavin and Gray, "Fast algorithms
//! for convolutional neural networks" (arXiv:1509.09308).
//!
//! y = Aᵀ[(G g Gᵀ) ⊙ (Bᵀ d B)]A for tiles of 4×4 outputs y, that see 6×6 inputs d through the kernel g. Over many tiles and channels ⊙
//! becomes 36 products of matrices, [tiles, channels] · [channels, columns]. All of it is done in f32, whatever is stored: the
//! transforms would cost bf16 several bits.
//!
//! Tiles go in strips, whose transformed inputs are kept for all columns. A task takes a group of tiles and a panel of columns, and
//! walks the channels in blocks. Groups repeat the transform of weights, which costs little beside
//! the products of that many tiles, and needs no memory for transformed weights and no barrier.
//!
//! A number that is not finite would spread over its whole tile, and sums of huge numbers could overflow on the way. So outputs are
//! looked at, and if one is not finite the caller convolves again, directly.

use super::super::low_rank::aligned;
use super::super::matmul::micro::{LANES, Micro, Tile};
use super::super::matmul::operand::{Left, Pixels, Term};
use super::super::matmul::store::{Store, Sums};
use super::super::matmul::{Shared, pack, prefetch};
use super::transform::{IN, OUT, PRODUCTS, Planes, all_finite, input_transform, output_transform, weight_transform};
use crate::isa::Isa;
use crate::threads;
use base::DType;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

const TAPS: usize = 9;

/// Most tiles of a group: more would push their sums out of L2.
const GROUP: usize = 64;
/// Most channels of a block. The sums of a group come from L2 and go back once a block, so long blocks pay, although their weights don't
/// stay in L2: a product reads its plane of them in order.
const BLOCK: usize = 320;

/// A convolution whose left operand are [`Pixels`] of 3×3 taps and step 1; along the depth of the right operand tap follows tap.
pub struct Winograd<'a> {
    pub batch: usize,
    pub pixels: Pixels,
    pub term: &'a Term,
    pub columns: usize,
    pub store: Store,
}

/// The sizes that decide how a convolution is cut up.
#[derive(Clone, Copy)]
pub struct Size {
    pub batch: usize,
    /// Height and width of the output.
    pub out: [usize; 2],
    pub channels: usize,
    pub columns: usize,
}

impl Size {
    fn tiles(&self) -> usize {
        self.batch * self.out[0].div_ceil(OUT) * self.out[1].div_ceil(OUT)
    }

    /// Whether this is the faster way. With AMX direct products are faster than any detour; few channels or tiles don't pay for the
    /// transforms. The batch has no say: a picture must not come out differently beside others.
    pub fn suits(&self, isa: Isa, activation: DType) -> bool {
        let (tiles, pixels) = (Size { batch: 1, ..*self }.tiles(), self.out[0] * self.out[1]);
        let amx = isa == Isa::Amx && activation == DType::BF16;
        !amx && self.channels >= 32 && self.columns >= 32 && tiles >= 12 && tiles * PRODUCTS * 2 <= pixels * TAPS
    }
}

/// How a convolution is cut up, and where its parts stand in scratch. Strides and sizes count words; planes, one for each product, are
/// an odd number of cache lines apart, so that they fall into different sets of L1.
#[derive(Clone, Copy)]
struct Layout {
    tiles: usize,
    group: usize,
    /// Groups of a strip.
    groups: usize,
    blocks: usize,
    block: usize,
    /// From tile to tile of the inputs.
    stride: usize,
    input_plane: usize,
    weight_plane: usize,
    sum_plane: usize,
}

fn odd_lines(words: usize) -> usize {
    words.next_multiple_of(LANES) | LANES
}

impl Layout {
    fn new(micro: &Micro, size: &Size) -> Layout {
        let even = |n: usize, most: usize| n.div_ceil(n.div_ceil(most).max(1)).max(1);
        let tiles = size.tiles();
        let group = even(tiles, GROUP).next_multiple_of(micro.rows).min(tiles);
        let panels = size.columns.div_ceil(micro.columns);
        let groups = (2 * threads::count()).div_ceil(panels).min(tiles.div_ceil(group));
        let block = even(size.channels, BLOCK);
        let stride = odd_lines(block);
        Layout {
            tiles,
            group,
            groups,
            blocks: size.channels.div_ceil(block),
            block,
            stride,
            input_plane: odd_lines(group * stride),
            weight_plane: odd_lines(block * micro.columns),
            sum_plane: odd_lines(group * micro.columns),
        }
    }

    /// Transformed inputs of a strip: [group, block of channels, product, tile, channel].
    fn input_words(&self) -> usize {
        self.groups * self.blocks * PRODUCTS * self.input_plane
    }

    fn input(&self, group: usize, block: usize, product: usize) -> usize {
        ((group * self.blocks + block) * PRODUCTS + product) * self.input_plane
    }

    /// A worker's parts: transformed weights, sums, weights as they are, rows to convert, and outputs of a tile.
    fn parts(&self, micro: &Micro) -> [usize; 5] {
        let taps = TAPS * self.block * micro.columns;
        // Inputs are gathered where weights stand later.
        let taps = taps.max(PRODUCTS * self.stride);
        [PRODUCTS * self.weight_plane, PRODUCTS * self.sum_plane, taps, LANES * self.block, OUT * OUT * micro.columns].map(odd_lines)
    }
}

/// The micro-kernel of the products.
fn micro(isa: Isa) -> &'static Micro {
    Micro::of(isa, DType::F32)
}

/// Bytes of scratch for [`Winograd::run`].
pub fn scratch_bytes(isa: Isa, size: &Size) -> usize {
    let micro = micro(isa);
    let layout = Layout::new(micro, size);
    let worker: usize = layout.parts(micro).iter().sum();
    aligned((layout.input_words() + worker * threads::count()) * 4)
}

/// One worker's scratch.
#[derive(Clone, Copy)]
struct Worker {
    weights: *mut f32,
    sums: *mut f32,
    taps: *mut f32,
    spare: *mut u32,
    out: *mut f32,
}

/// What tasks share.
struct Run<'a> {
    of: &'a Winograd<'a>,
    isa: Isa,
    micro: &'static Micro,
    layout: Layout,
    scratch: Shared,
}

impl Winograd<'_> {
    /// The convolution of `term`, if its left operand is seen through 3×3 taps.
    pub fn new(term: &Term, batch: usize, columns: usize, store: Store) -> Option<Winograd<'_>> {
        match term.left {
            Left::Pixels(pixels) if pixels.taps == [3, 3] && pixels.step == 1 => Some(Winograd { batch, pixels, term, columns, store }),
            _ => None,
        }
    }

    fn size(&self) -> Size {
        Size { batch: self.batch, out: self.pixels.grid, channels: self.pixels.channels, columns: self.columns }
    }

    /// Convolves; `false` if an output is not finite, and all has to be done again directly. `scratch` has [`scratch_bytes`], aligned to 64.
    pub fn run(&self, isa: Isa, scratch: &mut [u8]) -> bool {
        let size = self.size();
        assert!(scratch.len() >= scratch_bytes(isa, &size), "winograd: scratch was planned for less");
        let micro = micro(isa);
        let layout = Layout::new(micro, &size);
        let run = Run { of: self, isa, micro, layout, scratch: Shared::new(scratch) };
        let panels = self.columns.div_ceil(micro.columns);
        let finite = AtomicBool::new(true);
        let strip = layout.groups * layout.group;
        for first in (0..layout.tiles).step_by(strip) {
            let tiles = first..(first + strip).min(layout.tiles);
            threads::for_each(tiles.len(), |i, worker| {
                // SAFETY: scratch is laid out as `layout` says; tile `i` of the strip is this task's, and so is the worker's part.
                unsafe { run.transform_input(tiles.start + i, i, run.worker(worker)) };
            });
            threads::for_each(tiles.len().div_ceil(layout.group) * panels, |task, worker| {
                let group = task / panels;
                let start = tiles.start + group * layout.group;
                // SAFETY: as above; these outputs are the task's, and inputs are only read from here on.
                if !unsafe { run.task(group, start..(start + layout.group).min(tiles.end), task % panels, run.worker(worker)) } {
                    finite.store(false, Ordering::Relaxed);
                }
            });
        }
        finite.into_inner()
    }

    /// Batch item, row and column of the first output of a tile.
    fn place(&self, tile: usize) -> [usize; 3] {
        let across = self.pixels.grid[1].div_ceil(OUT);
        let down = self.pixels.grid[0].div_ceil(OUT);
        [tile / (down * across), tile / across % down * OUT, tile % across * OUT]
    }

    /// Where the first input of a tile is seen from the output at `row` and `column`.
    fn corner(&self, axis: usize, output: usize) -> isize {
        let p = &self.pixels;
        output as isize + p.origin[axis] - if p.direction < 0 { 2 } else { 0 }
    }

    /// The number of a tap in the right operand, by its place in a tile: where taps run backwards the kernel is turned round.
    fn tap(&self, place: usize) -> usize {
        if self.pixels.direction < 0 { TAPS - 1 - place } else { place }
    }
}

impl Run<'_> {
    fn words(&self, at: usize) -> *mut f32 {
        self.scratch.pointer().cast::<f32>().wrapping_add(at)
    }

    fn worker(&self, number: usize) -> Worker {
        let parts = self.layout.parts(self.micro);
        let weights = self.words(self.layout.input_words() + number * parts.iter().sum::<usize>());
        let sums = weights.wrapping_add(parts[0]);
        let taps = sums.wrapping_add(parts[1]);
        let spare = taps.wrapping_add(parts[2]);
        Worker { weights, sums, taps, spare: spare.cast(), out: spare.wrapping_add(parts[3]) }
    }

    fn channels(&self, block: usize) -> Range<usize> {
        let start = block * self.layout.block;
        start..(start + self.layout.block).min(self.of.pixels.channels)
    }

    /// Bᵀ d B of one tile, that is number `index` of its strip.
    ///
    /// # Safety
    /// Scratch is laid out as the layout says, and nobody else touches this tile or the worker's part.
    unsafe fn transform_input(&self, tile: usize, index: usize, worker: Worker) {
        let layout = &self.layout;
        for block in 0..layout.blocks {
            let channels = self.channels(block);
            let into = self.words(layout.input(index / layout.group, block, 0)).wrapping_add(index % layout.group * layout.stride);
            // SAFETY: as the caller promises; the worker's taps take 36 rows of `stride`.
            unsafe {
                self.gather(tile, channels.clone(), worker.taps);
                let (from, into) = (Planes { at: worker.taps, plane: layout.stride }, Planes { at: into, plane: layout.input_plane });
                input_transform(self.isa, from, into, channels.len());
            }
        }
    }

    /// The 6×6 pixels that a tile sees, as rows of f32.
    ///
    /// # Safety
    /// `into` has 36 rows of `stride` words.
    unsafe fn gather(&self, tile: usize, channels: Range<usize>, into: *mut f32) {
        let (p, stride) = (&self.of.pixels, self.layout.stride);
        let [batch, row, column] = self.of.place(tile);
        let (top, left) = (self.of.corner(0, row), self.of.corner(1, column));
        for i in 0..PRODUCTS {
            let (y, x) = ((top + (i / IN) as isize) as usize, (left + (i % IN) as isize) as usize);
            // SAFETY: as the caller promises; pixels inside of the picture exist.
            unsafe {
                let into = into.add(i * stride);
                if y < p.size[0] && x < p.size[1] {
                    let at = ((batch * p.size[0] + y) * p.size[1] + x) * p.channels + channels.start;
                    pack::convert(p.source.at(at), channels.len(), DType::F32, into.cast());
                } else {
                    into.write_bytes(0, channels.len());
                }
            }
        }
    }

    /// The outputs of a group of tiles in one panel of columns; whether they are finite.
    ///
    /// # Safety
    /// The strip's inputs are transformed; nobody else writes these outputs or touches the worker's part.
    unsafe fn task(&self, group: usize, tiles: Range<usize>, panel: usize, worker: Worker) -> bool {
        let (layout, micro) = (&self.layout, self.micro);
        let first = panel * micro.columns;
        let exist = (self.of.columns - first).min(micro.columns);
        let width = exist.next_multiple_of(LANES);
        for block in 0..layout.blocks {
            let channels = self.channels(block).len();
            // SAFETY: as the caller promises.
            unsafe {
                self.transform_weights(block, first..first + exist, width, worker);
                for product in 0..PRODUCTS {
                    self.prefetch_weights(block + 1, first..first + exist, product);
                    let a = self.words(layout.input(group, block, product)).cast::<u32>().cast_const();
                    let b = worker.weights.add(product * layout.weight_plane).cast::<u32>().cast_const();
                    let c = worker.sums.add(product * layout.sum_plane);
                    let strip = micro.strip(tiles.len());
                    for row in (0..tiles.len()).step_by(strip) {
                        (micro.tile)(&Tile {
                            a: a.add(row * layout.stride),
                            a_stride: layout.stride,
                            rows: (tiles.len() - row).min(strip),
                            b,
                            columns: width,
                            words: channels,
                            c: c.add(row * width),
                            c_stride: width,
                            accumulate: block > 0,
                            units: (std::ptr::null(), std::ptr::null()),
                        });
                    }
                }
            }
        }
        let mut finite = true;
        for (i, tile) in tiles.enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                let from = Planes { at: worker.sums.add(i * width), plane: layout.sum_plane };
                output_transform(self.isa, from, Planes { at: worker.out, plane: width }, width);
                finite &= all_finite(std::slice::from_raw_parts(worker.out, OUT * OUT * width));
                self.store(tile, first, [exist, width], worker.out);
            }
        }
        finite
    }

    /// G g Gᵀ for a block of channels and a panel of columns.
    ///
    /// # Safety
    /// The columns exist; the worker's part is ours.
    unsafe fn transform_weights(&self, block: usize, columns: Range<usize>, width: usize, worker: Worker) {
        let depth = self.of.pixels.channels;
        let channels = self.channels(block);
        let plane = channels.len() * width;
        for place in 0..TAPS {
            let start = self.of.tap(place) * depth;
            let words = start + channels.start..start + channels.end;
            let terms = std::slice::from_ref(self.of.term);
            // SAFETY: a word is one number, so the words exist; the worker's taps take nine panels.
            unsafe {
                let into = worker.taps.add(place * plane).cast();
                pack::pack_words(self.micro, terms, columns.clone(), words, into, worker.spare);
            }
        }
        let (from, into) = (Planes { at: worker.taps, plane }, Planes { at: worker.weights, plane: self.layout.weight_plane });
        // SAFETY: as above; planes of weights hold a panel.
        unsafe { weight_transform(self.isa, from, into, plane) };
    }

    /// Asks for a share of the weights of a block: they come from far, and hardware doesn't see many short rows coming.
    fn prefetch_weights(&self, block: usize, columns: Range<usize>, share: usize) {
        if block < self.layout.blocks {
            let channels = self.channels(block);
            for place in 0..TAPS {
                let start = place * self.of.pixels.channels;
                let words = start + channels.start..start + channels.end;
                prefetch::right(self.micro, std::slice::from_ref(self.of.term), columns.clone(), words, share, PRODUCTS);
            }
        }
    }

    /// Stores the outputs of a tile that exist: a row of them is consecutive pixels.
    ///
    /// # Safety
    /// `out` has 16 rows of `width` sums; the outputs are ours.
    unsafe fn store(&self, tile: usize, first_column: usize, [exist, width]: [usize; 2], out: *const f32) {
        let [height, wide] = self.of.pixels.grid;
        let [batch, row, column] = self.of.place(tile);
        for i in 0..OUT.min(height - row) {
            let sums = Sums {
                sums: out.wrapping_add(i * OUT * width),
                stride: width,
                first_row: (batch * height + row + i) * wide + column,
                rows: OUT.min(wide - column),
                first_column,
                width: exist,
                columns: self.of.columns,
            };
            // SAFETY: as the caller promises.
            unsafe { self.of.store.tile(self.micro, &sums) };
        }
    }
}
