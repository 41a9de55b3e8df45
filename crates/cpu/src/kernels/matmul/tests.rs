//! Special values and memory forms that the ops' cases don't reach.

use super::micro::Micro;
use super::operand::{Left, Right, Source, Term};
use super::store::{Store, Sums, Target};
use super::{Matmul, pack, scratch_bytes};
use crate::isa::Isa;
use crate::kernels::testing::Bytes;
use crate::tensor::Tensor;
use base::quantized::{Layout, Scheme};
use base::{DType, Rng};
use graph::Meta;

fn product(isa: Isa, rows: usize, columns: usize, depth: usize, a: &[f32], b: &[f32]) -> Vec<f32> {
    let micro = Micro::of(isa, DType::F32);
    let source = |v: &[f32]| Source::plain(v.as_ptr().cast(), DType::F32);
    let term = Term { left: Left::Rows { source: source(a), stride: depth }, right: Right::rows(source(b), columns), depth };
    let mut out = vec![f32::NAN; rows * columns];
    let target = Target { pointer: out.as_mut_ptr().cast(), dtype: DType::F32, row_stride: columns, column_stride: 1, add: false };
    let mut scratch = Bytes::poisoned(scratch_bytes(micro, rows, columns, &[depth]));
    Matmul { micro, rows, columns, terms: &[term], store: Store::to(target) }.run(scratch.slice());
    out
}

#[test]
fn long_reductions_go_through_several_blocks_exactly() {
    let (rows, columns, depth) = (37, 50, 1000);
    let a: Vec<f32> = (0..rows * depth).map(|i| (i * 7 % 11) as f32 - 5.0).collect();
    let b: Vec<f32> = (0..depth * columns).map(|i| (i * 5 % 13) as f32 - 6.0).collect();
    for isa in Isa::available() {
        let out = product(isa, rows, columns, depth, &a, &b);
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            let sum: f32 = (0..depth).map(|k| a[i * depth + k] * b[k * columns + j]).sum();
            assert_eq!(out[i * columns + j], sum, "{} at {i}, {j}", isa.name());
        }
    }
}

#[test]
fn not_a_number_and_infinity_reach_their_rows_and_columns_only() {
    let (rows, columns, depth) = (15, 35, 9);
    let (mut a, mut b) = (vec![1.0; rows * depth], vec![1.0; depth * columns]);
    a[3 * depth + 8] = f32::NAN;
    b[2 * columns + 34] = f32::INFINITY;
    for isa in Isa::available() {
        let out = product(isa, rows, columns, depth, &a, &b);
        for (i, row) in out.chunks(columns).enumerate() {
            for (j, value) in row.iter().enumerate() {
                match (i, j) {
                    (3, _) => assert!(value.is_nan()),
                    (_, 34) => assert_eq!(*value, f32::INFINITY),
                    _ => assert_eq!(*value, 9.0),
                }
            }
        }
    }
}

/// Fixed point gives a NaN where f32 gives an infinity.
#[test]
fn what_is_not_finite_reaches_its_row_and_column_in_bf16_too() {
    let (rows, columns, depth) = (15, 35, 9);
    let (mut a, mut b) = (vec![half::bf16::ONE; rows * depth], vec![half::bf16::ONE; depth * columns]);
    a[3 * depth + 8] = half::bf16::NAN;
    a[5 * depth] = half::bf16::INFINITY;
    b[2 * columns + 34] = half::bf16::NEG_INFINITY;
    for isa in Isa::available() {
        let micro = Micro::of(isa, DType::BF16);
        let source = |v: &[half::bf16]| Source::plain(v.as_ptr().cast(), DType::BF16);
        let term = Term { left: Left::Rows { source: source(&a), stride: depth }, right: Right::rows(source(&b), columns), depth };
        let mut out = vec![0.0f32; rows * columns];
        let target = Target { pointer: out.as_mut_ptr().cast(), dtype: DType::F32, row_stride: columns, column_stride: 1, add: false };
        let mut scratch = Bytes::poisoned(scratch_bytes(micro, rows, columns, &[depth]));
        Matmul { micro, rows, columns, terms: &[term], store: Store::to(target) }.run(scratch.slice());
        for (at, value) in out.iter().enumerate() {
            let (i, j) = (at / columns, at % columns);
            match (i, j) {
                (3 | 5, _) | (_, 34) => assert!(!value.is_finite(), "{} at {i}, {j}: {value}", isa.name()),
                _ => assert_eq!(*value, 9.0, "{} at {i}, {j}", isa.name()),
            }
        }
    }
}

#[test]
fn rounding_to_bf16_is_to_nearest_even_and_keeps_not_a_number() {
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 3.4e38, 1.003_906_2, 1.011_718_8, -1.003_906_2];
    let values: [f32; 17] = std::array::from_fn(|i| special.get(i).copied().unwrap_or(i as f32 * 0.371 - 4.0));
    for isa in Isa::available() {
        let micro = Micro::of(isa, DType::F32);
        let mut out = [half::bf16::ZERO; 17];
        let pointer = out.as_mut_ptr().cast();
        let store = Store::to(Target { pointer, dtype: DType::BF16, row_stride: 17, column_stride: 1, add: false });
        let sums = Sums { sums: values.as_ptr(), stride: 17, first_row: 0, rows: 1, first_column: 0, width: 17, columns: 17 };
        // SAFETY: one row of 17 sums into one of 17 elements.
        unsafe { store.tile(micro, &sums) };
        for (got, value) in out.iter().zip(values) {
            let right = half::bf16::from_f32(value);
            assert!(got.to_bits() == right.to_bits() || got.is_nan() && right.is_nan(), "{}: {value} became {got}", isa.name());
        }
    }
}

/// The micro-kernels whose packing this machine can run, which is more than it can multiply with; and the paths to widen by.
fn packing() -> Vec<(&'static Micro, Isa)> {
    let mut all: Vec<(&Micro, Isa)> = Isa::available().into_iter().map(|isa| (Micro::of(isa, DType::F32), isa)).collect();
    #[cfg(target_arch = "x86_64")]
    if all.iter().any(|(_, isa)| *isa == Isa::Avx512) {
        for micro in [&super::avx512_bf16::MICRO, &super::avx512_vnni::MICRO, super::amx::micro()] {
            all.extend([Isa::Portable, Isa::Avx2, Isa::Avx512].map(|isa| (micro, isa)));
        }
    }
    all
}

/// One panel of an operand, the words around it included.
fn panel(micro: &Micro, right: Right, depth: usize, columns: std::ops::Range<usize>) -> Vec<u32> {
    let term = Term { left: Left::Rows { source: Source::plain(std::ptr::null(), DType::F32), stride: 0 }, right, depth };
    let (words, width) = (micro.words(depth), columns.len().next_multiple_of(super::LANES));
    let mut into = vec![0x7fff_7fffu32; words * width + 1];
    let mut spare = vec![0x7fff_7fffu32; super::LANES * words];
    // SAFETY: the operand has these columns; `into` and `spare` have the words that they need.
    unsafe { pack::pack_words(micro, &[term], columns, 0..words, into.as_mut_ptr(), spare.as_mut_ptr()) };
    into
}

#[test]
fn panels_of_quantized_matrices_hold_the_words_of_the_numbers_that_they_mean() {
    let mut rng = Rng::new(5, "panels", &[]);
    for (scheme, [rows, taps, channels]) in [Scheme::Int8, Scheme::Nf4]
        .into_iter()
        .flat_map(|s| [[37, 1, 100], [70, 9, 33], [33, 4, 7], [1, 1, 1], [40, 3, 64]].map(|m| (s, m)))
    {
        let columns = taps * channels;
        let layout = Layout { scheme, rows, columns };
        let numbers: Vec<f32> = (0..rows * columns).map(|_| rng.normal()).collect();
        let mut bytes = layout.quantize(&numbers).unwrap();
        let numbers = layout.dequantize(&bytes);
        let meta = Meta::new([rows, columns], DType::Quantized(scheme));
        // SAFETY: the bytes are those of the matrix.
        let stored = Source::of(&unsafe { Tensor::new(bytes.as_mut_ptr(), &meta) });
        let plain = Source::plain(numbers.as_ptr().cast(), DType::F32);
        let forward = |source| (Right::Columns { source, stride: columns }, columns, rows);
        let backward = |source: Source| {
            let last = (taps - 1) * channels;
            let steps = [-(channels as isize), 0];
            (Right::Rows { source: source.at(last), stride: columns, run: rows, wide: 1, steps }, taps * rows, channels)
        };
        for (micro, isa) in packing() {
            for (of_stored, of_plain) in [(forward(stored), forward(plain)), (backward(stored), backward(plain))] {
                let (_, depth, count) = of_stored;
                for first in (0..count).step_by(micro.columns) {
                    let some = first..(first + micro.columns).min(count);
                    let got = isa.with(|| panel(micro, of_stored.0, depth, some.clone()));
                    let want = panel(micro, of_plain.0, depth, some.clone());
                    assert!(got == want, "{} by {}, {layout:?}, columns {some:?} of {count}", micro.name, isa.name());
                }
            }
        }
    }
}
