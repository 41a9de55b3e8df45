//! y = x Wᵀ + b + s · drop(x Aᵀ) Bᵀ, and its gradient.

use super::low_rank::{Backward, Branch, Forward, forward_scratch};
use super::matmul::micro::Micro;
use super::matmul::operand::{Left, Right, Source, Term};
use super::matmul::store::{Store, Target};
use super::matmul::{Matmul, scratch_bytes};
use super::{Call, Kernel};
use crate::isa::isa;
use graph::Meta;
use graph::ops::{Linear, LinearGrad};

impl Kernel for Linear {
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        let (x, w) = (inputs[0], inputs[1]);
        let rank = self.lora.map(|_| inputs[self.lora_at() + 1].shape.channels());
        forward_scratch(Micro::of(isa(), x.dtype), x.shape.rows(), w.shape.dims()[0], w.shape.channels(), rank) as u64
    }

    fn run(&self, call: &mut Call) {
        let (x, w) = (&call.inputs[0], &call.inputs[1]);
        let depth = w.channels();
        Forward {
            micro: Micro::of(isa(), x.dtype()),
            rows: x.rows(),
            columns: w.elements() / depth,
            depth,
            x: Left::Rows { source: Source::of(x), stride: depth },
            weight: Source::of(w),
            bias: self.bias.then(|| call.inputs[2].pointer::<f32>().cast_const()),
            branch: self.lora.map(|lora| Branch::new(lora, &call.inputs[self.lora_at()..])),
            y: call.outputs[0],
        }
        .run(call.scratch);
    }
}

impl Kernel for LinearGrad {
    fn scratch_bytes(&self, inputs: &[&Meta], _: &[&Meta]) -> u64 {
        let dy = inputs[0];
        let (micro, rows, columns) = (Micro::of(isa(), dy.dtype), dy.shape.rows(), dy.shape.channels());
        let rank = self.lora.map(|_| inputs[self.lora_at() + 2].shape.channels());
        let mut bytes = 0;
        if self.input {
            let depth = inputs[1].shape.channels();
            bytes = scratch_bytes(micro, rows, depth, &[columns, rank.unwrap_or(0)]);
        }
        if let Some(rank) = rank {
            let depth = inputs[self.lora_at()].shape.channels();
            bytes = Backward::kept_bytes(micro, rows, rank) + bytes.max(Backward::scratch(micro, rows, columns, depth, 1, rank));
        }
        bytes as u64
    }

    fn run(&self, call: &mut Call) {
        let dy = call.inputs[0];
        let (micro, rows, columns) = (Micro::of(isa(), dy.dtype()), dy.rows(), dy.channels());
        let mut low = None;
        let mut scratch = &mut *call.scratch;
        if let Some(lora) = self.lora {
            let at = self.lora_at();
            let branch = Branch::new(lora, &call.inputs[at + 1..]);
            let x = &call.inputs[at];
            let x = Left::Rows { source: Source::of(x), stride: x.channels() };
            let first = usize::from(self.input);
            let (kept, rest) = scratch.split_at_mut(Backward::kept_bytes(micro, rows, branch.rank()));
            let backward = Backward { micro, rows, columns, dy, branch, x, da: call.outputs[first], db: call.outputs[first + 1] };
            low = Some((backward.run(kept, rest), branch));
            scratch = rest;
        }
        if self.input {
            let (w, dx) = (&call.inputs[1], &call.outputs[0]);
            let depth = w.channels();
            let own = Term {
                left: Left::Rows { source: Source::of(&dy), stride: columns },
                right: Right::rows(Source::of(w), depth),
                depth: columns,
            };
            let target = Target { pointer: dx.bytes_pointer(), dtype: dx.dtype(), row_stride: depth, column_stride: 1, add: false };
            let product = |terms: &[Term], scratch| Matmul { micro, rows, columns: depth, terms, store: Store::to(target) }.run(scratch);
            match low {
                None => product(&[own], scratch),
                Some((left, branch)) => {
                    let right = Right::rows(Source::of(&branch.a), depth);
                    product(&[own, Term { left, right, depth: branch.rank() }], scratch);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::compare_layer;
    use graph::ops::{Linear, LinearGrad, Rule};

    #[test]
    fn agrees_with_the_oracle_on_every_path() {
        compare_layer(Linear::cases);
        compare_layer(LinearGrad::cases);
    }
}
