//! Compares kernels with the oracle at the cases of an op: every path and type, poisoned outputs, one thread and three.

use super::{Call, kernel};
use crate::isa::Isa;
use crate::tensor::Tensor;
use base::quantized::{Layout, Scheme};
use base::{DType, Rng};
use graph::ops::{Case, CaseTypes, Fill};
use graph::{Array, Meta, Op};

/// A cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Bytes aligned to 64.
pub struct Bytes {
    words: Vec<Line>,
    len: usize,
}

/// The pattern of untouched bytes: NaN in every float type.
const POISON: u64 = 0x7fff_7fff_7fff_7fff;

impl Bytes {
    pub fn poisoned(len: usize) -> Bytes {
        Bytes { words: vec![Line([POISON; 8]); len.div_ceil(64) + 1], len }
    }

    fn of(meta: &Meta, values: &[f32]) -> Bytes {
        let encoded = encode(meta, values);
        let mut bytes = Bytes::poisoned(encoded.len());
        bytes.slice().copy_from_slice(&encoded);
        bytes
    }

    pub fn slice(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }

    fn tail_is_untouched(&mut self) -> bool {
        let len = self.len;
        let poison = POISON.to_le_bytes();
        bytemuck::cast_slice::<_, u8>(&self.words)[len..].iter().enumerate().all(|(i, b)| *b == poison[(len + i) % 8])
    }
}

fn encode(meta: &Meta, values: &[f32]) -> Vec<u8> {
    match meta.dtype {
        DType::U8 => values.iter().map(|v| *v as u8).collect(),
        DType::U32 => values.iter().flat_map(|v| (*v as u32).to_le_bytes()).collect(),
        DType::Quantized(scheme) => Layout::of(scheme, &meta.shape).quantize(values).unwrap(),
        float => base::dtype::from_f32(float, values).unwrap(),
    }
}

/// Compares the kernels of an op's cases.
pub fn compare(cases: fn(CaseTypes) -> Vec<Case>) {
    compare_with(&[DType::F32, DType::BF16, DType::F16], cases);
}

/// Compares the kernels of a layer's cases, its frozen matrix in every type that one can have.
pub fn compare_layer(cases: fn(CaseTypes) -> Vec<Case>) {
    compare(cases);
    compare_with(&[Scheme::Int8, Scheme::Nf4].map(DType::Quantized), cases);
}

fn compare_with(weights: &[DType], cases: fn(CaseTypes) -> Vec<Case>) {
    for activation in [DType::F32, DType::BF16, DType::F16] {
        for weight in weights.iter().copied() {
            for (i, case) in cases(CaseTypes { activation, weight }).iter().enumerate() {
                compare_case(case, &format!("{activation} {weight} case {i}: {:?}", case.op));
            }
        }
    }
}

fn round(meta: &Meta, values: Vec<f32>) -> Vec<f32> {
    match meta.dtype {
        DType::U32 => values,
        DType::Quantized(scheme) => Layout::of(scheme, &meta.shape).dequantize(&encode(meta, &values)),
        float => base::dtype::to_f32(float, &encode(meta, &values)).unwrap(),
    }
}

fn inputs(case: &Case) -> Vec<Array> {
    let mut rng = Rng::new(7, "kernel cases", &[]);
    let mut arrays: Vec<Array> = Vec::new();
    for (meta, fill) in &case.inputs {
        let count = meta.shape.elements();
        let values = match fill {
            Fill::Normal(spread) => (0..count).map(|_| rng.normal() * spread).collect(),
            Fill::Positive => (0..count).map(|_| 0.5 + rng.uniform()).collect(),
            Fill::Below(n) => (0..count).map(|_| (rng.uniform() * *n as f32).floor()).collect(),
            Fill::Output(n) => {
                let Op::AttentionGrad(op) = &case.op else { unreachable!("only attention keeps outputs here") };
                let forward: Vec<&Array> = arrays[1..4].iter().collect();
                Op::from(op.attention).rule().evaluate(&forward)[*n].data.clone()
            }
        };
        arrays.push(Array::new(meta.shape.clone(), round(meta, values)));
    }
    arrays
}

/// Compares one case on every path that the machine has.
pub fn compare_case(case: &Case, what: &str) {
    let arrays = inputs(case);
    let expected = case.op.rule().evaluate(&arrays.iter().collect::<Vec<_>>());
    let metas: Vec<&Meta> = case.inputs.iter().map(|(m, _)| m).collect();
    let outputs = case.op.rule().outputs(&metas);
    for isa in Isa::available() {
        let runs: Vec<Vec<Vec<u8>>> = [1, 3].map(|threads| run_with(case, &arrays, &metas, &outputs, isa, threads)).into();
        assert!(runs[0] == runs[1], "{what} on {}: the number of threads changes the result", isa.name());
        for (o, bytes) in runs[0].iter().enumerate() {
            let got = base::dtype::to_f32(outputs[o].dtype, bytes).unwrap();
            let before = if o >= case.op.rule().accumulates_from() { 1.0 } else { 0.0 };
            let bounds = bounds(metas[0].dtype, outputs[o].dtype);
            check(&got, &expected[o].data, before, bounds, &format!("{what} on {}, output {o}", isa.name()));
        }
    }
}

/// Largest error of an element, and root of the mean square, against the spread of what is expected.
fn bounds(activation: DType, output: DType) -> (f32, f32) {
    match (activation, output) {
        (DType::BF16, _) => (3e-2, 7e-3),
        (_, DType::F16) => (1e-3, 5e-4),
        _ => (2e-5, 1e-5),
    }
}

fn check(got: &[f32], expected: &[f32], before: f32, (largest, mean): (f32, f32), what: &str) {
    let spread = (expected.iter().map(|e| e * e).sum::<f32>() / expected.len() as f32).sqrt().max(0.1) + before;
    let mut squares = 0.0f64;
    for (i, (g, e)) in got.iter().zip(expected).enumerate() {
        let error = (g - before - e).abs();
        squares += f64::from(error).powi(2);
        assert!(error <= largest * (spread + e.abs()), "{what}, element {i}: {} instead of {e}, spread {spread}", g - before);
    }
    let relative = (squares / got.len() as f64).sqrt() as f32 / spread;
    assert!(relative < mean, "{what}: relative error {relative}");
}

fn run_with(case: &Case, arrays: &[Array], metas: &[&Meta], outputs: &[Meta], isa: Isa, threads: usize) -> Vec<Vec<u8>> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
        isa.with(|| {
            let kernel = kernel(&case.op);
            let mut input_bytes: Vec<Bytes> = metas.iter().zip(arrays).map(|(m, a)| Bytes::of(m, &a.data)).collect();
            let mut output_bytes: Vec<Bytes> = outputs
                .iter()
                .enumerate()
                .map(|(o, m)| {
                    let adds = o >= case.op.rule().accumulates_from();
                    if adds { Bytes::of(m, &vec![1.0; m.shape.elements()]) } else { Bytes::poisoned(m.bytes() as usize) }
                })
                .collect();
            let mut scratch = Bytes::poisoned(kernel.scratch_bytes(metas, &outputs.iter().collect::<Vec<_>>()) as usize);
            let tensor = |bytes: &mut Bytes, meta| {
                // SAFETY: the vector outlives the call and has this many bytes.
                unsafe { Tensor::new(bytes.slice().as_mut_ptr(), meta) }
            };
            let inputs: Vec<Tensor> = input_bytes.iter_mut().zip(metas).map(|(b, m)| tensor(b, m)).collect();
            let results: Vec<Tensor> = output_bytes.iter_mut().zip(outputs).map(|(b, m)| tensor(b, m)).collect();
            kernel.run(&mut Call { inputs: &inputs, outputs: &results, scratch: scratch.slice() });
            assert!(scratch.tail_is_untouched(), "{:?} writes past its scratch", case.op);
            assert!(output_bytes.iter_mut().all(Bytes::tail_is_untouched), "{:?} writes past its output", case.op);
            output_bytes.iter_mut().map(|b| b.slice().to_vec()).collect()
        })
    })
}
