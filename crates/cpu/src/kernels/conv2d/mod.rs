//! Convolution as a product: rows are output pixels, the reduction runs over taps and channels. Packing gathers the pixels that a tap
//! meets, so the im2col matrix never exists. A 1×1 convolution of stride 1 is a linear layer.
//!
//! The input gradient is a convolution of ∂y with the flipped kernel. With stride s it falls into s² classes of input pixels, by row and
//! column modulo s: each meets its own subset of the taps and is a product of its own.

mod transform;
mod winograd;

use super::low_rank::{Backward, Branch, Forward, forward_scratch};
use super::matmul::micro::Micro;
use super::matmul::operand::{Left, Pixels, Right, Source, Term};
use super::matmul::store::{RowMap, Store, Target};
use super::matmul::{Matmul, scratch_bytes};
use super::{Call, Kernel};
use crate::isa::isa;
use crate::tensor::Tensor;
use base::{DType, Shape};
use graph::Meta;
use graph::ops::{Conv2d, Conv2dGrad, Lora, Padding};
use winograd::{Size, Winograd};

/// Geometry of a convolution: a picture [height, width], its channels, the kernel, and the output.
#[derive(Clone, Copy)]
struct Geometry {
    size: [usize; 2],
    channels: usize,
    kernel: [usize; 2],
    outputs: usize,
    out: [usize; 2],
    batch: usize,
    stride: usize,
    padding: Padding,
}

/// Input pixels of one class along one axis: those at `first + i · stride`, and the taps that reach them, `tap + a · stride`.
#[derive(Clone, Copy)]
struct Class {
    first: usize,
    count: usize,
    tap: usize,
    taps: usize,
    /// The output row (or column) that pixel 0 meets through tap 0; it falls by one a tap.
    origin: isize,
}

impl Class {
    fn new(first: usize, size: usize, kernel: usize, stride: usize, padding: usize) -> Class {
        let tap = (first + padding) % stride;
        Class {
            first,
            count: size.saturating_sub(first).div_ceil(stride),
            tap,
            taps: kernel.saturating_sub(tap).div_ceil(stride),
            origin: ((first + padding) / stride) as isize,
        }
    }
}

impl Geometry {
    fn forward(op: &Conv2d, x: &Shape, kernel: &Shape, y: &Shape) -> Geometry {
        Geometry::new([x.dims()[1], x.dims()[2]], kernel, y, op.stride, op.padding)
    }

    /// `kernel` is W or A.
    fn backward(op: &Conv2dGrad, dy: &Shape, kernel: &Shape) -> Geometry {
        Geometry::new(op.size, kernel, dy, op.stride, op.padding)
    }

    fn new(size: [usize; 2], kernel: &Shape, y: &Shape, stride: usize, padding: Padding) -> Geometry {
        let (w, y) = (kernel.dims(), y.dims());
        Geometry { size, channels: w[3], kernel: [w[1], w[2]], outputs: y[3], out: [y[1], y[2]], batch: y[0], stride, padding }
    }

    fn depth(&self) -> usize {
        self.taps() * self.channels
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Rows of the output.
    fn rows(&self) -> usize {
        self.batch * self.out[0] * self.out[1]
    }

    /// The sizes of Winograd's way to the output, where it is the one to take: with no branch to add, for this kernel and these sizes.
    fn forward_size(&self, activation: DType, lora: Option<Lora>) -> Option<Size> {
        self.fast(Size { batch: self.batch, out: self.out, channels: self.channels, columns: self.outputs }, activation, lora)
    }

    /// The same for the input gradient.
    fn backward_size(&self, activation: DType, lora: Option<Lora>) -> Option<Size> {
        self.fast(Size { batch: self.batch, out: self.size, channels: self.outputs, columns: self.channels }, activation, lora)
    }

    fn fast(&self, size: Size, activation: DType, lora: Option<Lora>) -> Option<Size> {
        (lora.is_none() && self.kernel == [3, 3] && self.stride == 1 && size.suits(isa(), activation)).then_some(size)
    }

    /// x as the kernel meets it from each output pixel.
    fn input(&self, x: &Tensor) -> Left {
        let p = self.padding;
        if self.kernel == [1, 1] && self.stride == 1 && p == Padding::same(0) {
            return Left::Rows { source: Source::of(x), stride: self.channels };
        }
        Left::Pixels(Pixels {
            source: Source::of(x),
            size: self.size,
            channels: self.channels,
            grid: self.out,
            step: self.stride,
            taps: self.kernel,
            origin: [-(p.top as isize), -(p.left as isize)],
            direction: 1,
        })
    }

    /// The classes of input pixels, as (class of the row, class of the column).
    fn classes(&self) -> impl Iterator<Item = (Class, Class)> {
        let g = *self;
        let row = move |i| Class::new(i, g.size[0], g.kernel[0], g.stride, g.padding.top);
        let column = move |j| Class::new(j, g.size[1], g.kernel[1], g.stride, g.padding.left);
        (0..g.stride).flat_map(move |i| (0..g.stride).map(move |j| (row(i), column(j)))).filter(|(r, c)| r.count * c.count > 0)
    }

    /// One product of the input gradient: `dy` [batch, out, channels of dy] against a kernel [channels of dy, kh, kw, I], for one class.
    fn gradient_term(&self, class: (Class, Class), dy: Source, dy_channels: usize, kernel: &Tensor) -> Term {
        let (row, column) = class;
        let left = Left::Pixels(Pixels {
            source: dy,
            size: self.out,
            channels: dy_channels,
            grid: [row.count, column.count],
            step: 1,
            taps: [row.taps, column.taps],
            origin: [row.origin, column.origin],
            direction: -1,
        });
        let (line, tap) = (self.kernel[1] * self.channels, self.channels);
        let right = Right::Rows {
            source: Source::of(kernel).at(row.tap * line + column.tap * tap),
            stride: self.depth(),
            run: dy_channels,
            wide: column.taps.max(1),
            steps: [(self.stride * line) as isize, (self.stride * tap) as isize],
        };
        Term { left, right, depth: row.taps * column.taps * dy_channels }
    }

    /// Where the pixels of a class stand in ∂x.
    fn class_rows(&self, class: (Class, Class)) -> RowMap {
        if self.stride == 1 {
            return RowMap::Same;
        }
        let (row, column) = class;
        RowMap::Pixels { grid: [row.count, column.count], size: self.size, origin: [row.first, column.first], step: self.stride }
    }
}

impl Kernel for Conv2d {
    fn scratch_bytes(&self, inputs: &[&Meta], outputs: &[&Meta]) -> u64 {
        let g = Geometry::forward(self, &inputs[0].shape, &inputs[1].shape, &outputs[0].shape);
        let rank = self.lora.map(|_| inputs[self.lora_at() + 1].shape.channels());
        let fast = g.forward_size(inputs[0].dtype, self.lora).map_or(0, |size| winograd::scratch_bytes(isa(), &size));
        fast.max(forward_scratch(Micro::of(isa(), inputs[0].dtype), g.rows(), g.outputs, g.depth(), rank)) as u64
    }

    fn run(&self, call: &mut Call) {
        let (x, w, y) = (&call.inputs[0], &call.inputs[1], call.outputs[0]);
        let g = Geometry::forward(self, &x.meta.shape, &w.meta.shape, &y.meta.shape);
        let bias = self.bias.then(|| call.inputs[2].pointer::<f32>().cast_const());
        if g.forward_size(x.dtype(), self.lora).is_some() {
            let term = Term { left: g.input(x), right: Right::Columns { source: Source::of(w), stride: g.depth() }, depth: g.depth() };
            let out = Target { pointer: y.bytes_pointer(), dtype: y.dtype(), row_stride: g.outputs, column_stride: 1, add: false };
            let store = Store { bias, ..Store::to(out) };
            if Winograd::new(&term, g.batch, g.outputs, store).is_some_and(|w| w.run(isa(), call.scratch)) {
                return;
            }
        }
        Forward {
            micro: Micro::of(isa(), x.dtype()),
            rows: g.rows(),
            columns: g.outputs,
            depth: g.depth(),
            x: g.input(x),
            weight: Source::of(w),
            bias,
            branch: self.lora.map(|lora| Branch::new(lora, &call.inputs[self.lora_at()..])),
            y,
        }
        .run(call.scratch);
    }
}

/// Index of a kernel among the inputs of a gradient: W, or A where there is no input gradient.
fn kernel_at(op: &Conv2dGrad) -> usize {
    if op.input { 1 } else { op.lora_at() + 1 }
}

/// ∂x, class after class; `low` is dh with its branch.
fn input_gradient(g: &Geometry, call: &Call, low: Option<(Left, Branch)>, scratch: &mut [u8]) {
    let (dy, w, dx) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
    let target = Target { pointer: dx.bytes_pointer(), dtype: dx.dtype(), row_stride: g.channels, column_stride: 1, add: false };
    for class in g.classes() {
        let rows = g.batch * class.0.count * class.1.count;
        let store = Store { rows: g.class_rows(class), ..Store::to(target) };
        let own = g.gradient_term(class, Source::of(dy), g.outputs, w);
        if g.backward_size(dy.dtype(), low.as_ref().map(|(_, branch)| branch.lora)).is_some()
            && Winograd::new(&own, g.batch, g.channels, store).is_some_and(|w| w.run(isa(), scratch))
        {
            continue;
        }
        let product = |terms: &[Term], scratch: &mut [u8]| {
            Matmul { micro: Micro::of(isa(), dy.dtype()), rows, columns: g.channels, terms, store }.run(scratch);
        };
        match &low {
            Some((Left::Rows { source, .. }, branch)) => {
                product(&[own, g.gradient_term(class, *source, branch.rank(), &branch.a)], scratch);
            }
            _ => product(&[own], scratch),
        }
    }
}

impl Kernel for Conv2dGrad {
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        let dy = inputs[0];
        let micro = Micro::of(isa(), dy.dtype);
        if !self.input && self.lora.is_none() {
            return 0;
        }
        let g = Geometry::backward(self, &dy.shape, &inputs[kernel_at(self)].shape);
        let rank = self.lora.map(|_| inputs[self.lora_at() + 2].shape.channels());
        let mut bytes = 0;
        if self.input {
            let class = |(r, c): (Class, Class)| {
                let taps = r.taps * c.taps;
                scratch_bytes(micro, g.batch * r.count * c.count, g.channels, &[taps * g.outputs, taps * rank.unwrap_or(0)])
            };
            bytes = g.classes().map(class).max().unwrap_or(0);
            let fast = g.backward_size(dy.dtype, self.lora).map_or(0, |size| winograd::scratch_bytes(isa(), &size));
            bytes = bytes.max(fast);
        }
        if let Some(rank) = rank {
            let backward = Backward::scratch(micro, g.rows(), g.outputs, g.depth(), g.taps(), rank);
            bytes = Backward::kept_bytes(micro, g.rows(), rank) + bytes.max(backward);
        }
        bytes as u64
    }

    fn run(&self, call: &mut Call) {
        if !self.input && self.lora.is_none() {
            return;
        }
        let dy = call.inputs[0];
        let micro = Micro::of(isa(), dy.dtype());
        let g = Geometry::backward(self, &dy.meta.shape, &call.inputs[kernel_at(self)].meta.shape);
        let mut scratch = std::mem::take(&mut call.scratch);
        let mut low = None;
        if let Some(lora) = self.lora {
            let at = self.lora_at();
            let branch = Branch::new(lora, &call.inputs[at + 1..]);
            let first = usize::from(self.input);
            let (kept, rest) = scratch.split_at_mut(Backward::kept_bytes(micro, g.rows(), branch.rank()));
            let (da, db) = (call.outputs[first], call.outputs[first + 1]);
            let backward = Backward { micro, rows: g.rows(), columns: g.outputs, dy, branch, x: g.input(&call.inputs[at]), da, db };
            low = Some((backward.run(kept, rest), branch));
            scratch = rest;
        }
        if self.input {
            input_gradient(&g, call, low, scratch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::compare_layer;
    use graph::ops::{Conv2d, Conv2dGrad, Rule};

    #[test]
    fn agrees_with_the_oracle_on_every_path() {
        compare_layer(Conv2d::cases);
        compare_layer(Conv2dGrad::cases);
    }
}
