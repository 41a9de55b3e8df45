//! Test values: what a case asks for, in the numbers that its element types can hold.

use base::quantized::Layout;
use base::{DType, Rng, dtype};
use graph::ops::{Case, Fill};
use graph::{Array, Meta, Op};

/// Bytes of an array as stored under `meta`.
pub fn encode(meta: &Meta, array: &Array) -> Vec<u8> {
    assert_eq!(meta.shape, array.shape);
    match meta.dtype {
        DType::U8 => array.data.iter().map(|v| *v as u8).collect(),
        DType::U32 => array.data.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect(),
        DType::Quantized(scheme) => Layout::of(scheme, &meta.shape).quantize(&array.data).expect("finite weights"),
        float => dtype::from_f32(float, &array.data).expect("a float type"),
    }
}

/// The array that is stored in `bytes` under `meta`.
pub fn decode(meta: &Meta, bytes: &[u8]) -> Array {
    let word = |b: &[u8]| u32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32;
    let data = match meta.dtype {
        DType::U8 => bytes.iter().map(|byte| f32::from(*byte)).collect(),
        DType::U32 => bytes.chunks_exact(4).map(word).collect(),
        DType::Quantized(scheme) => Layout::of(scheme, &meta.shape).dequantize(bytes),
        float => dtype::to_f32(float, bytes).expect("whole elements of a float type"),
    };
    Array::new(meta.shape.clone(), data)
}

/// The nearest array that `meta`'s element type can hold.
pub fn rounded(meta: &Meta, array: &Array) -> Array {
    decode(meta, &encode(meta, array))
}

/// Normal numbers of spread 1, as `meta` holds them.
pub fn normal(meta: &Meta, rng: &mut Rng) -> Array {
    filled(meta, Fill::Normal(1.0), rng)
}

fn filled(meta: &Meta, fill: Fill, rng: &mut Rng) -> Array {
    let mut draw = || match fill {
        Fill::Normal(spread) => spread * rng.normal(),
        Fill::Positive => 0.5 + rng.uniform(),
        Fill::Below(n) => rng.below(u64::from(n)) as f32,
        Fill::Output(_) => unreachable!("outputs of the forward are computed, not drawn"),
    };
    let data = (0..meta.shape.elements()).map(|_| draw()).collect();
    rounded(meta, &Array::new(meta.shape.clone(), data))
}

/// The forward op of a gradient op that keeps outputs of it.
fn forward_of(op: &Op) -> Op {
    match op {
        Op::AttentionGrad(grad) => grad.attention.into(),
        other => panic!("{} asks for outputs of its forward; say here which op that is", other.name()),
    }
}

/// The inputs of a case, rounded to their element types.
pub fn inputs(case: &Case, rng: &mut Rng) -> Vec<Array> {
    let mut inputs: Vec<Array> = Vec::new();
    let mut forward: Vec<Array> = Vec::new();
    for (meta, fill) in &case.inputs {
        let Fill::Output(output) = fill else {
            inputs.push(filled(meta, *fill, rng));
            continue;
        };
        if forward.is_empty() {
            forward = forward_of(&case.op).rule().evaluate(&inputs[1..].iter().collect::<Vec<_>>());
        }
        inputs.push(rounded(meta, &forward[*output]));
    }
    inputs
}

pub fn input_metas(case: &Case) -> Vec<&Meta> {
    case.inputs.iter().map(|(meta, _)| meta).collect()
}

pub fn evaluate(op: &Op, inputs: &[Array]) -> Vec<Array> {
    op.rule().evaluate(&inputs.iter().collect::<Vec<_>>())
}
