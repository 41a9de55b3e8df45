//! Factors between memory ([rank, kh, kw, in], channels last) and files ([rank, in, kh, kw]), and their product's size.

use super::{LoraModule, ModuleShape};
use anyhow::{Result, ensure};
use base::Shape;

impl LoraModule {
    /// From the trainer's factors: `down` [rank, kh, kw, in] (or [rank, in]) and `up` [out, rank].
    pub fn from_memory(shape: &ModuleShape, rank: usize, alpha: f32, down: &[f32], up: &[f32]) -> Result<LoraModule> {
        let [kh, kw] = shape.kernel.unwrap_or([1, 1]);
        let name = &shape.name;
        ensure!(
            down.len() == rank * kh * kw * shape.input,
            "lora_down of {name} has {} values, not {rank} × {kh}×{kw} × {}",
            down.len(),
            shape.input
        );
        ensure!(up.len() == shape.output * rank, "lora_up of {name} has {} values, not {} × {rank}", up.len(), shape.output);
        let (down_shape, up_shape) = match shape.kernel {
            None => (Shape::from([rank, shape.input]), Shape::from([shape.output, rank])),
            Some(_) => (Shape::from([rank, shape.input, kh, kw]), Shape::from([shape.output, rank, 1, 1])),
        };
        let down = swap_inner(down, rank, kh * kw, shape.input);
        Ok(LoraModule { module: name.clone(), down, down_shape, up: up.to_vec(), up_shape, alpha })
    }

    /// `down` as the trainer holds it: [rank, kh, kw, in].
    pub fn down_in_memory(&self) -> Vec<f32> {
        match self.down_shape.dims() {
            &[rank, input, kh, kw] => swap_inner(&self.down, rank, input, kh * kw),
            _ => self.down.clone(),
        }
    }

    /// Frobenius norm of ΔW = (alpha/rank)·up·down, without forming it: ‖BA‖² = tr((BᵀB)(AAᵀ)), both rank × rank.
    pub fn delta_norm(&self) -> f64 {
        let rank = self.rank();
        let width = self.down.len() / rank.max(1);
        let row = |i: usize| &self.down[i * width..(i + 1) * width];
        let column = |i: usize| self.up.iter().skip(i).step_by(rank);
        let mut sum = 0.0;
        for i in 0..rank {
            for j in 0..rank {
                let downs: f64 = row(i).iter().zip(row(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                let ups: f64 = column(i).zip(column(j)).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                sum += downs * ups;
            }
        }
        f64::from(self.scale()).abs() * sum.max(0.0).sqrt()
    }
}

/// [outer, a, b] → [outer, b, a].
fn swap_inner(values: &[f32], outer: usize, a: usize, b: usize) -> Vec<f32> {
    let mut out = Vec::with_capacity(values.len());
    for block in 0..outer {
        for y in 0..b {
            out.extend((0..a).map(|x| values[(block * a + x) * b + y]));
        }
    }
    out
}
