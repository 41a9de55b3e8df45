//! Special values and memory forms that the ops' cases don't reach.

use super::micro::Micro;
use super::operand::{Left, Right, Source, Term};
use super::store::{Store, Target};
use super::{Matmul, scratch_bytes};
use crate::isa::Isa;
use crate::kernels::testing::Bytes;
use base::DType;

fn product(isa: Isa, rows: usize, columns: usize, depth: usize, a: &[f32], b: &[f32]) -> Vec<f32> {
    let micro = Micro::of(isa, DType::F32);
    let source = |v: &[f32]| Source { pointer: v.as_ptr().cast(), dtype: DType::F32 };
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
