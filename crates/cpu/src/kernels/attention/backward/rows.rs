//! Rows of a head: products, transposes, rounding.

use super::super::super::matmul::micro::LANES;
use super::super::super::matmul::operand::Source;
use super::super::super::matmul::pack::convert;
use crate::element::Element;
use crate::isa::vectorize;
use base::DType;

vectorize! {
    /// Σ over a row of a·b, for rows of `depth` elements that begin at `start`, `stride` apart.
    pub fn row_products<T: Element>(a: &[T], b: &[T], start: usize, stride: usize, depth: usize, into: &mut [f32]) {
        for (i, into) in into.iter_mut().enumerate() {
            let row = start + i * stride..start + i * stride + depth;
            let (a, b) = (&a[row.clone()], &b[row]);
            let mut sums = [0.0f32; LANES];
            let (whole, rest) = (a.chunks_exact(LANES).zip(b.chunks_exact(LANES)), depth / LANES * LANES);
            for (a, b) in whole {
                for l in 0..LANES {
                    sums[l] += a[l].to_f32() * b[l].to_f32();
                }
            }
            let tail: f32 = a[rest..].iter().zip(&b[rest..]).map(|(a, b)| a.to_f32() * b.to_f32()).sum();
            *into = sums.iter().sum::<f32>() + tail;
        }
    }
}

/// Writes the transpose of `rows` rows of `depth` floats as a left operand of this packed type [depth, row_stride].
///
/// # Safety
/// The rows exist, and `into` has room.
#[allow(clippy::too_many_arguments)]
pub unsafe fn turn(
    packed: DType,
    from: Source,
    stride: usize,
    rows: usize,
    depth: usize,
    line: &mut [f32],
    into: &mut [u32],
    row_stride: usize,
) {
    let per_word = size_of::<u32>() / packed.bytes();
    for r in 0..rows {
        // SAFETY: as the caller promises; a packed bf16 row of `depth` fits into `line`.
        unsafe {
            convert(from.at(r * stride), depth, packed, line.as_mut_ptr().cast());
            for c in 0..depth {
                let word = into.as_mut_ptr().add(c * row_stride + r / per_word);
                if per_word == 2 {
                    let value = line.as_ptr().cast::<u16>().add(c).read();
                    word.cast::<u16>().add(r % 2).write(value);
                    if r + 1 == rows && r % 2 == 0 {
                        word.cast::<u16>().add(1).write(0);
                    }
                } else {
                    word.write(line[c].to_bits());
                }
            }
        }
    }
}

vectorize! {
    /// Rounds rows of sums to an output.
    pub fn write_rows<T: Element>(sums: &[f32], wide: usize, rows: usize, depth: usize, to: *mut T, stride: usize) {
        for r in 0..rows {
            for (c, sum) in sums[r * wide..r * wide + depth].iter().enumerate() {
                // SAFETY: the caller owns these rows of the output.
                unsafe { to.add(r * stride + c).write(T::from_f32(*sum)) };
            }
        }
    }
}
