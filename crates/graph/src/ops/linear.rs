//! y = x Wᵀ + b + s · drop(x Aᵀ) Bᵀ over the last axis.
//!
//! x [..., K], W [N, K] frozen, b [N] frozen, A [r, K] and B [N, r] trained. 1×1 convolutions are this op: channels are last.

use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;
use base::{DType, Shape};

/// Inputs: x, W, then b if `bias`, then A, B (and a seed) if `lora`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    pub bias: bool,
    pub lora: Option<Lora>,
}

/// The gradient: ∂x = ∂y W + s · drop(∂y B) A, ∂B = s · ∂yᵀ h, ∂A = s · drop(∂y B)ᵀ x with h = drop(x Aᵀ) computed again.
///
/// Inputs: ∂y, then W if `input`, then x, A, B (and a seed) if `lora`.
/// Outputs: ∂x if `input`, then ∂A, ∂B (added into their places) if `lora`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearGrad {
    pub input: bool,
    pub lora: Option<Lora>,
}

impl Linear {
    /// Index of A among the inputs.
    pub fn lora_at(&self) -> usize {
        2 + usize::from(self.bias)
    }
}

impl LinearGrad {
    /// Index of x among the inputs; A, B and the seed follow.
    pub fn lora_at(&self) -> usize {
        1 + usize::from(self.input)
    }
}

/// Reads the seed of a low-rank branch from the input after A and B.
pub(super) fn seed(lora: Lora, inputs: &[&Array], at: usize) -> [u32; 2] {
    if lora.dropout > 0.0 { [inputs[at].data[0] as u32, inputs[at].data[1] as u32] } else { [0; 2] }
}

impl Rule for Linear {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let (x, w) = (inputs[0], inputs[1]);
        let (n, k) = (w.shape.dims()[0], w.shape.channels());
        assert_eq!(x.shape.channels(), k, "linear: x {} does not fit W {}", x.shape, w.shape);
        if let Some(lora) = self.lora {
            let (a, b) = (inputs[self.lora_at()], inputs[self.lora_at() + 1]);
            assert_eq!((a.shape.channels(), b.shape.dims()[0]), (k, n), "linear: A {} and B {} do not fit W {}", a.shape, b.shape, w.shape);
            assert_eq!(inputs.len(), self.lora_at() + lora.inputs());
        }
        vec![Meta { shape: x.shape.with_channels(n), dtype: x.dtype }]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (x, w) = (inputs[0], inputs[1]);
        let mut y = matmul_transposed(x, w);
        if self.bias {
            (0..y.shape.rows()).for_each(|i| y.row_mut(i).iter_mut().zip(&inputs[2].data).for_each(|(y, b)| *y += b));
        }
        if let Some(lora) = self.lora {
            let at = self.lora_at();
            let h = branch(lora, x, inputs[at], seed(lora, inputs, at + 2));
            y = y.zip(&matmul_transposed(&h, inputs[at + 1]), |y, u| y + lora.scale * u);
        }
        vec![y]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let lora = self.lora;
        lora::layer_gradient(g, lora.map(|_| self.lora_at()), |input| LinearGrad { input, lora }.into());
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        let rows = inputs[0].shape.rows() as f64;
        let weights = inputs[1].shape.elements()
            + self.lora.map_or(0, |_| inputs[self.lora_at()].shape.elements() + inputs[self.lora_at() + 1].shape.elements());
        Cost::new(2.0 * rows * weights as f64, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |shape: &[usize], n: usize, bias: bool, rank: usize, dropout: f32| {
            let k = shape[shape.len() - 1];
            let mut inputs = vec![(Meta::new(Shape::new(shape), types.activation), Fill::Normal(1.0)), scaled([n, k], types.weight)];
            if bias {
                inputs.push(normal([n], DType::F32));
            }
            let lora = (rank > 0).then_some(Lora { scale: 0.5, dropout, stream: 9 });
            if rank > 0 {
                inputs.extend([scaled([rank, k], DType::F32), scaled([n, rank], DType::F32)]);
            }
            if dropout > 0.0 {
                inputs.push((Meta::new([2], DType::U32), Fill::Below(1000)));
            }
            Case::new(Linear { bias, lora }, inputs)
        };
        vec![
            case(&[2, 16, 32], 64, true, 0, 0.0),
            case(&[3, 7, 33], 65, false, 0, 0.0),
            case(&[1, 1], 1, true, 1, 0.0),
            case(&[2, 5, 3, 40], 24, true, 4, 0.0),
            case(&[1, 77, 96], 130, false, 16, 0.25),
            case(&[300, 200], 100, true, 5, 0.0),
        ]
    }
}

impl Rule for LinearGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let dy = inputs[0];
        let mut outputs = Vec::new();
        if self.input {
            assert_eq!(
                inputs[1].shape.dims()[0],
                dy.shape.channels(),
                "linear gradient: ∂y {} does not fit W {}",
                dy.shape,
                inputs[1].shape
            );
            outputs.push(Meta { shape: dy.shape.with_channels(inputs[1].shape.channels()), dtype: dy.dtype });
        }
        if self.lora.is_some() {
            outputs.extend([inputs[self.lora_at() + 1].clone(), inputs[self.lora_at() + 2].clone()]);
        }
        outputs
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let dy = inputs[0];
        let mut outputs = Vec::new();
        if self.input {
            outputs.push(matmul(dy, inputs[1]));
        }
        if let Some(lora) = self.lora {
            let at = self.lora_at();
            let (x, a, b) = (inputs[at], inputs[at + 1], inputs[at + 2]);
            let seed = seed(lora, inputs, at + 3);
            let h = branch(lora, x, a, seed);
            let mut dh = matmul(dy, b).map(|v| v * lora.scale);
            dh.data.iter_mut().enumerate().for_each(|(i, v)| *v *= lora.keep(seed, i as u64));
            if self.input {
                outputs[0] = outputs[0].zip(&matmul(&dh, a), |x, y| x + y);
            }
            outputs.push(transposed_matmul(&dh, x));
            outputs.push(transposed_matmul(dy, &h).map(|v| v * lora.scale));
        }
        outputs
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        let rows = inputs[0].shape.rows() as f64;
        let weight = if self.input { inputs[1].shape.elements() } else { 0 };
        let factors = self.lora.map_or(0, |_| inputs[self.lora_at() + 1].shape.elements() + inputs[self.lora_at() + 2].shape.elements());
        Cost::new(2.0 * rows * (weight + 3 * factors) as f64, inputs, outputs)
    }

    fn accumulates_from(&self) -> usize {
        usize::from(self.input)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        let case = |shape: &[usize], n: usize, input: bool, rank: usize, dropout: f32| {
            let k = shape[shape.len() - 1];
            let dy = Meta { shape: Shape::new(shape).with_channels(n), dtype: types.activation };
            let mut inputs = vec![(dy, Fill::Normal(1.0))];
            if input {
                inputs.push(scaled([n, k], types.weight));
            }
            let lora = (rank > 0).then_some(Lora { scale: 0.5, dropout, stream: 9 });
            if rank > 0 {
                let x = (Meta::new(Shape::new(shape), types.activation), Fill::Normal(1.0));
                inputs.extend([x, scaled([rank, k], DType::F32), scaled([n, rank], DType::F32)]);
            }
            if dropout > 0.0 {
                inputs.push((Meta::new([2], DType::U32), Fill::Below(1000)));
            }
            Case::new(LinearGrad { input, lora }, inputs)
        };
        vec![
            case(&[2, 16, 32], 64, true, 0, 0.0),
            case(&[3, 7, 33], 65, true, 4, 0.0),
            case(&[1, 1], 1, true, 1, 0.0),
            case(&[2, 5, 3, 40], 24, false, 4, 0.0),
            case(&[1, 77, 96], 130, true, 16, 0.25),
            case(&[300, 200], 100, true, 5, 0.0),
        ]
    }
}

/// h = drop(x Aᵀ), one row per row of x.
fn branch(lora: Lora, x: &Array, a: &Array, seed: [u32; 2]) -> Array {
    let mut h = matmul_transposed(x, a);
    h.data.iter_mut().enumerate().for_each(|(i, v)| *v *= lora.keep(seed, i as u64));
    h
}

/// A matrix whose products keep the spread of what they multiply.
fn scaled<const N: usize>(shape: [usize; N], dtype: DType) -> (Meta, Fill) {
    let fan_in: usize = shape[1..].iter().product();
    (Meta::new(shape, dtype), Fill::Normal(1.0 / (fan_in as f32).sqrt()))
}

/// x Wᵀ
fn matmul_transposed(x: &Array, w: &Array) -> Array {
    let mut y = Array::zeros(x.shape.with_channels(w.shape.dims()[0]));
    for i in 0..x.shape.rows() {
        for j in 0..w.shape.dims()[0] {
            y.row_mut(i)[j] = x.row(i).iter().zip(w.row(j)).map(|(x, w)| f64::from(*x) * f64::from(*w)).sum::<f64>() as f32;
        }
    }
    y
}

/// x W
fn matmul(x: &Array, w: &Array) -> Array {
    let mut y = Array::zeros(x.shape.with_channels(w.shape.channels()));
    for i in 0..x.shape.rows() {
        for (j, x) in x.row(i).iter().enumerate() {
            y.row_mut(i).iter_mut().zip(w.row(j)).for_each(|(y, w)| *y += x * w);
        }
    }
    y
}

/// xᵀ y over all rows: [channels of x, channels of y].
fn transposed_matmul(x: &Array, y: &Array) -> Array {
    let mut out = Array::zeros([x.shape.channels(), y.shape.channels()]);
    for i in 0..x.shape.rows() {
        for (j, x) in x.row(i).iter().enumerate() {
            out.row_mut(j).iter_mut().zip(y.row(i)).for_each(|(o, y)| *o += x * y);
        }
    }
    out
}

impl Builder {
    /// y = x Wᵀ + b + s · drop(x Aᵀ) Bᵀ; `lora` holds the branch and its inputs A, B (and a seed with dropout).
    pub fn linear(&mut self, x: ValueId, weight: ValueId, bias: Option<ValueId>, lora: Option<(Lora, &[ValueId])>) -> ValueId {
        let mut inputs = vec![x, weight];
        inputs.extend(bias);
        inputs.extend(lora.iter().flat_map(|(_, factors)| factors.iter().copied()));
        self.push_one(Linear { bias: bias.is_some(), lora: lora.map(|(l, _)| l) }, &inputs)
    }
}
