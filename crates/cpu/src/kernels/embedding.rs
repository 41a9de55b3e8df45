//! y[b, t] = table[id[b, t]] + positions[t].

use super::{Call, Kernel};
use crate::block::with_activation;
use crate::element::Element;
use crate::tensor::Tensor;
use anyhow::{Result, ensure};
use base::DType;
use graph::ops::Embedding;
use half::{bf16, f16};

impl Kernel for Embedding {
    fn check(&self, inputs: &[Tensor]) -> Result<()> {
        let entries = inputs[1].rows();
        let wrong = inputs[0].slice::<u32>().iter().find(|id| **id as usize >= entries);
        ensure!(wrong.is_none(), "token id {} is outside the table of {entries} entries", wrong.copied().unwrap_or_default());
        Ok(())
    }

    fn run(&self, call: &mut Call) {
        let [ids, table, positions] = call.inputs else { unreachable!("embedding has three inputs") };
        let (ids, y) = (ids.slice::<u32>(), &call.outputs[0]);
        with_activation!(self.dtype, T => embed::<T>(ids, table, positions, y));
    }
}

/// Element `i` of a tensor of any float type.
fn element(tensor: &Tensor, i: usize) -> f32 {
    match tensor.dtype() {
        DType::F32 => tensor.slice::<f32>()[i],
        DType::BF16 => tensor.slice::<bf16>()[i].to_f32(),
        DType::F16 => tensor.slice::<f16>()[i].to_f32(),
        DType::U32 | DType::U8 | DType::Quantized(_) => unreachable!("tables hold floats"),
    }
}

fn embed<T: Element>(ids: &[u32], table: &Tensor, positions: &Tensor, y: &Tensor) {
    let (tokens, channels) = (y.meta.shape.tokens(), y.channels());
    assert_eq!(y.elements(), ids.len() * channels, "embedding: the shapes don't fit");
    // SAFETY: nobody else holds y.
    let y = unsafe { y.slice_mut::<T>(0, y.elements()) };
    for (row, (y, id)) in y.chunks_exact_mut(channels).zip(ids).enumerate() {
        for (c, y) in y.iter_mut().enumerate() {
            *y = T::from_f32(element(table, *id as usize * channels + c) + element(positions, row % tokens * channels + c));
        }
    }
}
