//! What happens to a finished tile of a product on its way to memory: scale, bias, dropout, rounding, addition.

use super::micro::{LANES, Micro, Round};
use crate::element::Element;
use crate::isa::vectorize;
use base::DType;
use graph::ops::Lora;
use half::{bf16, f16};

/// A matrix that results are written to. Strides count elements.
#[derive(Clone, Copy)]
pub struct Target {
    pub pointer: *mut u8,
    pub dtype: DType,
    pub row_stride: usize,
    pub column_stride: usize,
    /// Add to what is there.
    pub add: bool,
}

/// Which row of the target a row of the product is.
#[derive(Clone, Copy)]
pub enum RowMap {
    Same,
    /// Row (b, i, j) of a grid is pixel (b, i·step + origin₀, j·step + origin₁) of a picture of this size.
    Pixels {
        grid: [usize; 2],
        size: [usize; 2],
        origin: [usize; 2],
        step: usize,
    },
}

impl RowMap {
    #[inline(always)]
    fn of(&self, row: usize) -> usize {
        match self {
            RowMap::Same => row,
            RowMap::Pixels { grid, size, origin, step } => {
                let (line, j) = (row / grid[1], row % grid[1]);
                let (b, i) = (line / grid[0], line % grid[0]);
                (b * size[0] + i * step + origin[0]) * size[1] + j * step + origin[1]
            }
        }
    }
}

/// out = keep · (scale · product + bias), into one or two targets.
#[derive(Clone, Copy)]
pub struct Store {
    pub scale: f32,
    /// One f32 a column.
    pub bias: Option<*const f32>,
    /// Dropout with the element's index in a row-major [rows, columns] matrix.
    pub keep: Option<(Lora, [u32; 2])>,
    pub rows: RowMap,
    pub targets: [Option<Target>; 2],
}

// SAFETY: each tile of the targets is written by one task; the bias is only read.
unsafe impl Send for Store {}
unsafe impl Sync for Store {}

impl Store {
    pub fn to(target: Target) -> Store {
        Store { scale: 1.0, bias: None, keep: None, rows: RowMap::Same, targets: [Some(target), None] }
    }

    /// Stores a tile of sums.
    ///
    /// # Safety
    /// The tile lies in the targets, and nobody else touches it there; its sums exist.
    pub unsafe fn tile(&self, micro: &Micro, tile: &Sums) {
        match (micro.round, &self.targets) {
            (Some(round), [Some(target), None]) if self.keep.is_none() && target.column_stride == 1 && !target.add => {
                // Rows that are apart in the target go one by one.
                let together = matches!(self.rows, RowMap::Same);
                let (steps, rows) = if together { (1, tile.rows) } else { (tile.rows, 1) };
                for r in 0..steps {
                    // SAFETY: as the caller promises.
                    unsafe {
                        let at = self.rows.of(tile.first_row + r) * target.row_stride + tile.first_column;
                        round(&Round {
                            sums: tile.sums.add(r * tile.stride),
                            stride: tile.stride,
                            rows,
                            width: tile.width,
                            scale: self.scale,
                            bias: self.bias.map_or(std::ptr::null(), |b| b.add(tile.first_column)),
                            into: target.pointer.add(at * target.dtype.bytes()),
                            dtype: target.dtype,
                            into_stride: target.row_stride,
                        });
                    }
                }
            }
            _ => store_tile(self, tile),
        }
    }
}

/// A finished tile: `rows` rows of sums, `width` columns of the product's `columns`.
pub struct Sums {
    pub sums: *const f32,
    pub stride: usize,
    pub first_row: usize,
    pub rows: usize,
    pub first_column: usize,
    /// At most 64.
    pub width: usize,
    pub columns: usize,
}

/// Rows of a tile that are turned together.
const TURNED: usize = 2 * LANES;

vectorize! {
    fn store_tile(store: &Store, tile: &Sums) {
        for first in (0..tile.rows).step_by(TURNED) {
            let rows = (tile.rows - first).min(TURNED);
            let mut lines = [[0.0f32; 4 * LANES]; TURNED];
            for (r, line) in lines.iter_mut().enumerate().take(rows) {
                let line = &mut line[..tile.width];
                // SAFETY: the caller of `Store::tile` promises that all of this exists.
                unsafe { scale_row(tile.sums.add((first + r) * tile.stride), store.scale, store.bias.map(|b| b.add(tile.first_column)), line) };
                if let Some((lora, seed)) = &store.keep {
                    drop_some(lora, *seed, (tile.first_row + first + r) * tile.columns + tile.first_column, line);
                }
            }
            for target in store.targets.iter().flatten() {
                let lines = &lines[..rows];
                // SAFETY: as above, and these rows of the target are ours.
                unsafe {
                    match target.dtype {
                        DType::BF16 => put_lines::<bf16>(store, tile, first, lines, target),
                        DType::F16 => put_lines::<f16>(store, tile, first, lines, target),
                        _ => put_lines::<f32>(store, tile, first, lines, target),
                    }
                }
            }
        }
    }
}

/// Writes lines of a tile, which begin at its row `first`: row by row, or, into a transpose, column by column.
///
/// # Safety
/// The target has these elements, and they are ours.
#[inline(always)]
unsafe fn put_lines<T: Element>(store: &Store, tile: &Sums, first: usize, lines: &[[f32; 4 * LANES]], target: &Target) {
    let to = target.pointer.cast::<T>().wrapping_add(tile.first_column * target.column_stride);
    let row = tile.first_row + first;
    // SAFETY: as the caller promises.
    unsafe {
        if target.row_stride == 1 && matches!(store.rows, RowMap::Same) {
            for c in 0..tile.width {
                let column: [f32; TURNED] = std::array::from_fn(|r| lines.get(r).map_or(0.0, |line| line[c]));
                put(&column[..lines.len()], to.add(c * target.column_stride + row), 1, target.add);
            }
            return;
        }
        for (r, line) in lines.iter().enumerate() {
            put(&line[..tile.width], to.add(store.rows.of(row + r) * target.row_stride), target.column_stride, target.add);
        }
    }
}

fn drop_some(lora: &Lora, seed: [u32; 2], start: usize, line: &mut [f32]) {
    line.iter_mut().enumerate().for_each(|(i, v)| *v *= lora.keep(seed, (start + i) as u64));
}

/// # Safety
/// As many sums, and biases if any, as the line is long.
#[inline(always)]
unsafe fn scale_row(sums: *const f32, scale: f32, bias: Option<*const f32>, line: &mut [f32]) {
    for (i, v) in line.iter_mut().enumerate() {
        // SAFETY: as the caller promises.
        *v = unsafe { sums.add(i).read() } * scale;
    }
    if let Some(bias) = bias {
        for (i, v) in line.iter_mut().enumerate() {
            // SAFETY: as the caller promises.
            *v += unsafe { bias.add(i).read() };
        }
    }
}

/// # Safety
/// The target has these elements, and they are ours.
#[inline(always)]
unsafe fn put<T: Element>(line: &[f32], to: *mut T, stride: usize, add: bool) {
    for (i, v) in line.iter().enumerate() {
        // SAFETY: as the caller promises.
        unsafe {
            let to = to.add(i * stride);
            to.write(T::from_f32(if add { to.read().to_f32() + v } else { *v }));
        }
    }
}
