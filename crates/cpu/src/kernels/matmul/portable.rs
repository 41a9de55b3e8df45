//! Plain Rust, f32: 4×16 tiles that compilers turn into whatever vectors the target has.

use super::micro::{BLOCK_WORDS, LANES, Micro, TILE_COLUMNS, Tile, Transpose};
use base::DType;

pub static MICRO: Micro = Micro {
    name: "portable f32",
    packed: DType::F32,
    rows: 4,
    whole_rows: 1,
    step: 1,
    block_words: BLOCK_WORDS,
    tile_columns: TILE_COLUMNS,
    columns: LANES,
    tile,
    sweep: None,
    transpose,
    interleave: None,
    round: None,
    fixed: None,
};

/// # Safety
/// The operands are as [`Tile`] says, and nobody else touches C.
unsafe fn tile(t: &Tile) {
    debug_assert!(t.rows <= 4 && t.columns == LANES);
    match t.rows {
        // SAFETY: as the caller promises.
        4 => unsafe { rows::<4>(t) },
        3 => unsafe { rows::<3>(t) },
        2 => unsafe { rows::<2>(t) },
        _ => unsafe { rows::<1>(t) },
    }
}

unsafe fn rows<const R: usize>(t: &Tile) {
    let mut sums = [[0.0f32; LANES]; R];
    for w in 0..t.words {
        // SAFETY: panels have `words` rows of `columns` words, and A has `words` columns.
        let b = unsafe { &*t.b.add(w * LANES).cast::<[f32; LANES]>() };
        for (r, sums) in sums.iter_mut().enumerate() {
            // SAFETY: as above.
            let a = unsafe { t.a.add(r * t.a_stride + w).cast::<f32>().read() };
            sums.iter_mut().zip(b).for_each(|(s, b)| *s += a * b);
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        // SAFETY: C has `rows` rows of `columns`, and is ours.
        let c = unsafe { &mut *t.c.add(r * t.c_stride).cast::<[f32; LANES]>() };
        for (c, s) in c.iter_mut().zip(sums) {
            *c = if t.accumulate { *c + s } else { *s };
        }
    }
}

/// # Safety
/// The operands are as [`Transpose`] says.
pub unsafe fn transpose(t: &Transpose) {
    for i in 0..LANES {
        for w in 0..t.words {
            // SAFETY: in range by the caller's promise.
            unsafe {
                let word = if i < t.rows { t.from.add(i * t.from_stride + 4 * w).cast::<u32>().read_unaligned() } else { 0 };
                t.into.add(w * t.into_stride + i).write(word);
            }
        }
    }
}
