//! Two-dimensional convolution, channels last, with an optional low-rank branch (LoCon): y = W ∗ x + b + s · drop(A ∗ x) Bᵀ.
//!
//! y[b, i, j, o] = Σ over u, v, c of W[o, u, v, c] · x[b, i·stride + u − top, j·stride + v − left, c], zeros outside of x.

use super::linear::seed;
use super::*;
use crate::builder::Builder;
use crate::graph::ValueId;
use base::Shape;

/// Zero rows and columns around the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Padding {
    pub top: usize,
    pub bottom: usize,
    pub left: usize,
    pub right: usize,
}

impl Padding {
    pub const fn same(all: usize) -> Padding {
        Padding { top: all, bottom: all, left: all, right: all }
    }
}

/// Inputs: x [B, H, W, I], W [O, kh, kw, I], then b [O] if `bias`, then A [r, kh, kw, I], B [O, r] (and a seed) if `lora`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2d {
    pub stride: usize,
    pub padding: Padding,
    pub bias: bool,
    pub lora: Option<Lora>,
}

/// Inputs: ∂y, then W if `input`, then x, A, B (and a seed) if `lora`. Outputs: ∂x if `input`, then ∂A, ∂B (added) if `lora`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Conv2dGrad {
    pub stride: usize,
    pub padding: Padding,
    /// Height and width of x.
    pub size: [usize; 2],
    pub input: bool,
    pub lora: Option<Lora>,
}

impl Conv2d {
    /// Index of A among the inputs.
    pub fn lora_at(&self) -> usize {
        2 + usize::from(self.bias)
    }
}

impl Conv2dGrad {
    /// Index of x among the inputs; A, B and the seed follow.
    pub fn lora_at(&self) -> usize {
        1 + usize::from(self.input)
    }
}

/// Height and width of the output.
fn output_size(size: [usize; 2], kernel: [usize; 2], stride: usize, p: Padding) -> [usize; 2] {
    let padded = [size[0] + p.top + p.bottom, size[1] + p.left + p.right];
    assert!(padded[0] >= kernel[0] && padded[1] >= kernel[1], "conv2d: a {size:?} picture is smaller than its {kernel:?} kernel");
    [(padded[0] - kernel[0]) / stride + 1, (padded[1] - kernel[1]) / stride + 1]
}

/// Calls `body(output row, input row, tap)` for every pair of pixels that a tap of the kernel connects.
fn each_tap(x: &Shape, y: &Shape, kernel: [usize; 2], stride: usize, p: Padding, mut body: impl FnMut(usize, usize, usize)) {
    let (h, w, out_h, out_w) = (x.dims()[1], x.dims()[2], y.dims()[1], y.dims()[2]);
    for b in 0..x.batch() {
        for (i, j) in (0..out_h).flat_map(|i| (0..out_w).map(move |j| (i, j))) {
            for (u, v) in (0..kernel[0]).flat_map(|u| (0..kernel[1]).map(move |v| (u, v))) {
                let (r, c) = ((i * stride + u).wrapping_sub(p.top), (j * stride + v).wrapping_sub(p.left));
                if r < h && c < w {
                    body((b * out_h + i) * out_w + j, (b * h + r) * w + c, u * kernel[1] + v);
                }
            }
        }
    }
}

fn kernel_of(w: &Shape) -> [usize; 2] {
    [w.dims()[1], w.dims()[2]]
}

fn convolve(x: &Array, w: &Array, stride: usize, p: Padding) -> Array {
    let kernel = kernel_of(&w.shape);
    let [out_h, out_w] = output_size([x.shape.dims()[1], x.shape.dims()[2]], kernel, stride, p);
    let outputs = w.shape.dims()[0];
    let mut y = Array::zeros([x.shape.batch(), out_h, out_w, outputs]);
    let shape = y.shape.clone();
    each_tap(&x.shape, &shape, kernel, stride, p, |to, from, tap| {
        for o in 0..outputs {
            y.row_mut(to)[o] += w.row(o * kernel[0] * kernel[1] + tap).iter().zip(x.row(from)).map(|(w, x)| w * x).sum::<f32>();
        }
    });
    y
}

/// Adds the gradient of the convolution's input to `dx`.
fn add_input_gradient(dx: &mut Array, dy: &Array, w: &Array, stride: usize, p: Padding) {
    let kernel = kernel_of(&w.shape);
    let shape = dx.shape.clone();
    each_tap(&shape, &dy.shape, kernel, stride, p, |to, from, tap| {
        for (o, dy) in dy.row(to).iter().enumerate() {
            dx.row_mut(from).iter_mut().zip(w.row(o * kernel[0] * kernel[1] + tap)).for_each(|(dx, w)| *dx += dy * w);
        }
    });
}

/// The gradient of the kernel: [channels of dy, kh, kw, channels of x].
fn weight_gradient(dy: &Array, x: &Array, kernel: [usize; 2], stride: usize, p: Padding) -> Array {
    let mut dw = Array::zeros([dy.shape.channels(), kernel[0], kernel[1], x.shape.channels()]);
    each_tap(&x.shape, &dy.shape, kernel, stride, p, |to, from, tap| {
        for (o, dy) in dy.row(to).iter().enumerate() {
            dw.row_mut(o * kernel[0] * kernel[1] + tap).iter_mut().zip(x.row(from)).for_each(|(dw, x)| *dw += dy * x);
        }
    });
    dw
}

fn branch(lora: Lora, x: &Array, a: &Array, seed: [u32; 2], stride: usize, p: Padding) -> Array {
    let mut h = convolve(x, a, stride, p);
    h.data.iter_mut().enumerate().for_each(|(i, v)| *v *= lora.keep(seed, i as u64));
    h
}

impl Rule for Conv2d {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let (x, w) = (inputs[0], inputs[1]);
        assert!(x.shape.rank() == 4 && w.shape.rank() == 4, "conv2d: x {} and W {} must have four axes", x.shape, w.shape);
        assert_eq!(x.shape.channels(), w.shape.channels(), "conv2d: x {} does not fit W {}", x.shape, w.shape);
        let [h, wide] = output_size([x.shape.dims()[1], x.shape.dims()[2]], kernel_of(&w.shape), self.stride, self.padding);
        if let Some(lora) = self.lora {
            let (a, b) = (inputs[self.lora_at()], inputs[self.lora_at() + 1]);
            assert_eq!(a.shape.dims()[1..], w.shape.dims()[1..], "conv2d: A {} does not fit W {}", a.shape, w.shape);
            assert_eq!(b.shape, Shape::from([w.shape.dims()[0], a.shape.dims()[0]]), "conv2d: B does not fit");
            assert_eq!(inputs.len(), self.lora_at() + lora.inputs());
        }
        vec![Meta::new([x.shape.batch(), h, wide, w.shape.dims()[0]], x.dtype)]
    }

    fn evaluate(&self, inputs: &[&Array]) -> Vec<Array> {
        let (x, w) = (inputs[0], inputs[1]);
        let mut y = convolve(x, w, self.stride, self.padding);
        let rows = y.shape.rows();
        if self.bias {
            (0..rows).for_each(|i| y.row_mut(i).iter_mut().zip(&inputs[2].data).for_each(|(y, b)| *y += b));
        }
        if let Some(lora) = self.lora {
            let (a, b) = (inputs[self.lora_at()], inputs[self.lora_at() + 1]);
            let h = branch(lora, x, a, seed(lora, inputs, self.lora_at() + 2), self.stride, self.padding);
            for i in 0..rows {
                for (o, y) in y.row_mut(i).iter_mut().enumerate() {
                    *y += lora.scale * b.row(o).iter().zip(h.row(i)).map(|(b, h)| b * h).sum::<f32>();
                }
            }
        }
        vec![y]
    }

    fn gradient(&self, g: &mut Adjoint) {
        let x = g.shape(g.inputs[0]);
        let Conv2d { stride, padding, lora, .. } = *self;
        let size = [x.dims()[1], x.dims()[2]];
        lora::layer_gradient(g, lora.map(|_| self.lora_at()), |input| Conv2dGrad { stride, padding, size, input, lora }.into());
    }

    fn cost(&self, inputs: &[&Meta], outputs: &[&Meta]) -> Cost {
        let rows = outputs[0].shape.rows() as f64;
        let factors = self.lora.map_or(0, |_| inputs[self.lora_at()].shape.elements() + inputs[self.lora_at() + 1].shape.elements());
        Cost::new(2.0 * rows * (inputs[1].shape.elements() + factors) as f64, inputs, outputs)
    }

    fn cases(types: CaseTypes) -> Vec<Case> {
        GEOMETRIES.map(|g| Case::new(Conv2d { stride: g.stride, padding: g.padding, bias: g.bias, lora: g.lora() }, g.inputs(types))).into()
    }
}

impl Rule for Conv2dGrad {
    fn outputs(&self, inputs: &[&Meta]) -> Vec<Meta> {
        let dy = inputs[0];
        let mut outputs = Vec::new();
        if self.input {
            let w = &inputs[1].shape;
            assert_eq!(w.dims()[0], dy.shape.channels(), "conv2d gradient: ∂y {} does not fit W {w}", dy.shape);
            outputs.push(Meta::new([dy.shape.batch(), self.size[0], self.size[1], w.channels()], dy.dtype));
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
            let mut dx = Array::zeros([dy.shape.batch(), self.size[0], self.size[1], inputs[1].shape.channels()]);
            add_input_gradient(&mut dx, dy, inputs[1], self.stride, self.padding);
            outputs.push(dx);
        }
        if let Some(lora) = self.lora {
            let at = self.lora_at();
            let (x, a, b) = (inputs[at], inputs[at + 1], inputs[at + 2]);
            let seed = seed(lora, inputs, at + 3);
            let h = branch(lora, x, a, seed, self.stride, self.padding);
            let (mut dh, mut db) = (Array::zeros(h.shape.clone()), Array::zeros(b.shape.clone()));
            for i in 0..dy.shape.rows() {
                for (o, dy) in dy.row(i).iter().enumerate() {
                    db.row_mut(o).iter_mut().zip(h.row(i)).for_each(|(db, h)| *db += lora.scale * dy * h);
                    dh.row_mut(i).iter_mut().zip(b.row(o)).for_each(|(dh, b)| *dh += lora.scale * dy * b);
                }
            }
            dh.data.iter_mut().enumerate().for_each(|(i, v)| *v *= lora.keep(seed, i as u64));
            if self.input {
                add_input_gradient(&mut outputs[0], &dh, a, self.stride, self.padding);
            }
            outputs.push(weight_gradient(&dh, x, kernel_of(&a.shape), self.stride, self.padding));
            outputs.push(db);
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
        let case = |(i, g): (usize, &Geometry)| {
            let [x, w, ..] = &g.inputs(types)[..] else { unreachable!("a convolution has two inputs or more") };
            let [h, wide] = output_size(g.size, g.kernel, g.stride, g.padding);
            let input = i != 2;
            let mut inputs = vec![normal([g.batch, h, wide, g.channels[1]], types.activation)];
            if input {
                inputs.push(w.clone());
            }
            if g.rank > 0 {
                inputs.push(x.clone());
                inputs.extend(g.factors());
            }
            Case::new(Conv2dGrad { stride: g.stride, padding: g.padding, size: g.size, input, lora: g.lora() }, inputs)
        };
        GEOMETRIES.iter().enumerate().map(case).collect()
    }
}

struct Geometry {
    batch: usize,
    size: [usize; 2],
    channels: [usize; 2],
    kernel: [usize; 2],
    stride: usize,
    padding: Padding,
    bias: bool,
    rank: usize,
    dropout: f32,
}

const PLAIN: Geometry = Geometry {
    batch: 2,
    size: [8, 8],
    channels: [32, 64],
    kernel: [3, 3],
    stride: 1,
    padding: Padding::same(1),
    bias: true,
    rank: 0,
    dropout: 0.0,
};

const GEOMETRIES: [Geometry; 8] = [
    PLAIN,
    Geometry { batch: 3, size: [5, 9], channels: [4, 33], rank: 4, ..PLAIN },
    Geometry { size: [7, 6], channels: [17, 5], stride: 2, bias: false, rank: 2, ..PLAIN },
    Geometry { size: [8, 10], stride: 2, padding: Padding { top: 0, bottom: 1, left: 0, right: 1 }, ..PLAIN },
    Geometry { batch: 1, size: [1, 1], channels: [3, 2], rank: 1, dropout: 0.5, ..PLAIN },
    Geometry { kernel: [1, 1], padding: Padding::same(0), size: [6, 3], channels: [20, 24], ..PLAIN },
    Geometry { batch: 1, size: [16, 16], channels: [64, 40], rank: 8, dropout: 0.25, ..PLAIN },
    Geometry { batch: 1, size: [32, 40], channels: [40, 4], bias: false, ..PLAIN },
];

impl Geometry {
    fn lora(&self) -> Option<Lora> {
        (self.rank > 0).then_some(Lora { scale: 0.5, dropout: self.dropout, stream: 3 })
    }

    fn kernel(&self, outputs: usize, dtype: DType) -> (Meta, Fill) {
        let fan_in = self.kernel[0] * self.kernel[1] * self.channels[0];
        (Meta::new([outputs, self.kernel[0], self.kernel[1], self.channels[0]], dtype), Fill::Normal(1.0 / (fan_in as f32).sqrt()))
    }

    fn factors(&self) -> Vec<(Meta, Fill)> {
        let b = (Meta::new([self.channels[1], self.rank], DType::F32), Fill::Normal(1.0 / (self.rank as f32).sqrt()));
        let mut factors = vec![self.kernel(self.rank, DType::F32), b];
        if self.dropout > 0.0 {
            factors.push((Meta::new([2], DType::U32), Fill::Below(1000)));
        }
        factors
    }

    fn inputs(&self, types: CaseTypes) -> Vec<(Meta, Fill)> {
        let x = normal([self.batch, self.size[0], self.size[1], self.channels[0]], types.activation);
        let mut inputs = vec![x, self.kernel(self.channels[1], types.weight)];
        if self.bias {
            inputs.push(normal([self.channels[1]], DType::F32));
        }
        if self.rank > 0 {
            inputs.extend(self.factors());
        }
        inputs
    }
}

impl Builder {
    /// A convolution; `lora` holds the low-rank branch and its inputs A, B (and a seed with dropout).
    pub fn conv2d(
        &mut self,
        x: ValueId,
        weight: ValueId,
        bias: Option<ValueId>,
        stride: usize,
        padding: Padding,
        lora: Option<(Lora, &[ValueId])>,
    ) -> ValueId {
        let mut inputs = vec![x, weight];
        inputs.extend(bias);
        inputs.extend(lora.iter().flat_map(|(_, factors)| factors.iter().copied()));
        self.push_one(Conv2d { stride, padding, bias: bias.is_some(), lora: lora.map(|(l, _)| l) }, &inputs)
    }
}
