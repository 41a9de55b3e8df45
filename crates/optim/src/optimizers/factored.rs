//! A second moment kept as the means of its rows and columns (Shazeer & Stern, "Adafactor: Adaptive Learning Rates with Sublinear
//! Memory Cost", 2018, section 3): v_ij ≈ R_i·C_j / mean(R). Adafactor, CAME and Automagic share it.
//!
//! A parameter is the matrix of its first axis by all others. A vector has one number for each element, in `rows`.

use crate::table::Matrix;
use std::ops::Range;

/// Settings of a running mean of squares.
#[derive(Clone, Copy)]
pub(super) struct Mean {
    pub decay: f64,
    /// Added to each square.
    pub eps: f64,
}

/// R ← βR + (1−β)·mean over the columns, C ← βC + (1−β)·mean over the rows, of `square` (of the element's index) + ε.
pub(super) fn observe(matrix: Matrix, mean: Mean, rows: &mut [f32], columns: &mut [f32], square: impl Fn(usize) -> f32) {
    let (keep, share, eps) = (mean.decay as f32, (1.0 - mean.decay) as f32, mean.eps as f32);
    if matrix.columns == 0 {
        return rows.iter_mut().enumerate().for_each(|(i, v)| *v = *v * keep + share * (square(i) + eps));
    }
    columns.iter_mut().for_each(|c| *c *= keep);
    let of_row = share / matrix.rows as f32;
    for (i, row) in rows.iter_mut().enumerate() {
        let mut sum = 0.0f64;
        for (j, column) in columns.iter_mut().enumerate() {
            let value = square(i * matrix.columns + j) + eps;
            sum += f64::from(value);
            *column += of_row * value;
        }
        *row = *row * keep + share * (sum / matrix.columns as f64) as f32;
    }
}

/// Calls `each` for the stretches of a parameter in which 1/√v is one factor times 1/√ of the given numbers.
pub(super) fn stretches(matrix: Matrix, rows: &[f32], columns: &[f32], mut each: impl FnMut(Range<usize>, f32, &[f32])) {
    if matrix.columns == 0 {
        return each(0..matrix.rows, 1.0, rows);
    }
    let mean = rows.iter().map(|r| f64::from(*r)).sum::<f64>() / matrix.rows as f64;
    for (i, row) in rows.iter().enumerate() {
        each(i * matrix.columns..(i + 1) * matrix.columns, 1.0 / (row / mean as f32).sqrt(), columns);
    }
}

/// What the update g/√v must be divided by so that its root mean square is at most `threshold`.
pub(super) fn clip(matrix: Matrix, rows: &[f32], columns: &[f32], grads: &[f32], threshold: f64) -> f32 {
    let mut sum = 0.0f64;
    stretches(matrix, rows, columns, |range, factor, below| {
        sum += grads[range].iter().zip(below).map(|(g, c)| f64::from(g * (factor / c.sqrt())).powi(2)).sum::<f64>();
    });
    ((sum / grads.len() as f64).sqrt() / threshold).max(1.0) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_of_rank_one_is_kept_exactly_and_the_update_is_clipped_to_its_root_mean_square() {
        let matrix = Matrix { rows: 2, columns: 3 };
        let grads = [1.0f32, 2.0, 4.0, 3.0, 6.0, 12.0];
        let (mut rows, mut columns) = ([0.0; 2], [0.0; 3]);
        observe(matrix, Mean { decay: 0.0, eps: 0.0 }, &mut rows, &mut columns, |i| grads[i] * grads[i]);
        stretches(matrix, &rows, &columns, |range, factor, below| {
            for (g, c) in grads[range].iter().zip(below) {
                assert!((g * factor / c.sqrt() - 1.0).abs() < 1e-6);
            }
        });
        assert!((clip(matrix, &rows, &columns, &grads, 0.5) - 2.0).abs() < 1e-6);
        assert_eq!(clip(matrix, &rows, &columns, &grads, 5.0), 1.0);
    }
}
