//! Speed of the memory-bound kernels, in GB/s of inputs and outputs, beside a plain copy.
//!
//! `cargo run --release -p velatura-cpu --example kernels [op…]`

use base::{DType, Rng, Shape};

use engine::backend::{Scratch, Step};
use engine::{Backend, View};
use graph::ops::*;
use graph::{Meta, Op};
use std::time::{Duration, Instant};
use velatura_cpu::Cpu;

const BATCH: usize = 1;
const RUNS: usize = 100;

/// Feature maps and tokens of a Stable Diffusion 1.5 step, and one map of its VAE.
fn cases(dtype: DType) -> Vec<(Op, Vec<Meta>)> {
    let meta = |dims: &[usize]| Meta::new(Shape::new(dims), dtype);
    let float = |dims: &[usize]| Meta::new(Shape::new(dims), DType::F32);
    let (map, tokens, wide) = (meta(&[BATCH, 64, 64, 320]), meta(&[BATCH, 4096, 320]), meta(&[BATCH, 4096, 2560]));
    let (large, gamma, statistics) = (meta(&[1, 256, 256, 128]), float(&[320]), float(&[BATCH, 32, 2]));
    let silu = ActivationKind::Silu;
    let other = if dtype == DType::F32 { DType::BF16 } else { DType::F32 };
    vec![
        (Reshape { to: Shape::from([BATCH, 4096, 320]) }.into(), vec![map.clone()]),
        (Activation { kind: silu }.into(), vec![map.clone()]),
        (Activation { kind: ActivationKind::Gelu }.into(), vec![map.clone()]),
        (ActivationGrad { kind: silu }.into(), vec![map.clone(), map.clone()]),
        (Add.into(), vec![map.clone(), map.clone()]),
        (AddChannels.into(), vec![map.clone(), meta(&[BATCH, 320])]),
        (SumTokens.into(), vec![map.clone()]),
        (Cast { to: other }.into(), vec![map.clone()]),
        (Concat.into(), vec![map.clone(), map.clone()]),
        (Slice { start: 320, channels: 320 }.into(), vec![meta(&[BATCH, 64, 64, 640])]),
        (SliceGrad { start: 320, total: 640 }.into(), vec![map.clone()]),
        (Geglu.into(), vec![wide.clone()]),
        (GegluGrad.into(), vec![meta(&[BATCH, 4096, 1280]), wide]),
        (GroupNorm { groups: 32, eps: 1e-5, silu: true }.into(), vec![map.clone(), gamma.clone(), gamma.clone()]),
        (GroupNorm { groups: 32, eps: 1e-5, silu: false }.into(), vec![map.clone(), gamma.clone(), gamma.clone()]),
        (GroupNorm { groups: 32, eps: 1e-6, silu: true }.into(), vec![large, float(&[128]), float(&[128])]),
        (GroupNormGrad { groups: 32, silu: true }.into(), vec![map.clone(), map.clone(), gamma.clone(), gamma.clone(), statistics]),
        (LayerNorm { eps: 1e-5 }.into(), vec![tokens.clone(), gamma.clone(), gamma.clone()]),
        (LayerNormGrad.into(), vec![tokens.clone(), tokens, gamma, float(&[BATCH * 4096, 2])]),
        (Loss::MSE.into(), vec![map.clone(), float(&[BATCH, 64, 64, 320]), float(&[BATCH])]),
        (LossGrad { loss: Loss::MSE }.into(), vec![map.clone(), float(&[BATCH, 64, 64, 320]), float(&[BATCH])]),
        (Scale { factor: 0.5 }.into(), vec![map.clone()]),
        (Upsample { size: [128, 128] }.into(), vec![map]),
        (UpsampleGrad { size: [64, 64] }.into(), vec![meta(&[BATCH, 128, 128, 320])]),
        (Add.into(), vec![meta(&[1, 77, 64]), meta(&[1, 77, 64])]),
    ]
}

/// Binds an op to a buffer of its own, with normal numbers in its inputs.
fn bound(cpu: &mut Cpu, op: Op, inputs: &[Meta]) -> anyhow::Result<Step> {
    let before: Vec<&Meta> = inputs.iter().collect();
    let outputs = op.rule().outputs(&before);
    let scratch = cpu.scratch_bytes(&op, &before, &outputs.iter().collect::<Vec<_>>());
    let mut end = 0;
    let mut place = |bytes: u64| {
        let offset = end;
        end = (end + bytes).next_multiple_of(64);
        offset
    };
    let places: Vec<(u64, &Meta)> = inputs.iter().chain(&outputs).map(|m| (place(m.bytes()), m)).collect();
    let offset = place(scratch);
    let buffer = cpu.allocate(end)?;
    let mut rng = Rng::new(1, "kernels", &[]);
    let pattern: Vec<f32> = (0..65_536).map(|_| rng.normal()).collect();
    for (offset, meta) in &places[..inputs.len()] {
        let values: Vec<f32> = pattern.iter().copied().cycle().take(meta.shape.elements()).collect();
        cpu.write(buffer, *offset, &base::dtype::from_f32(meta.dtype, &values).unwrap_or_default())?;
    }
    let view = |(offset, meta): &(u64, &Meta)| View { buffer, offset: *offset, meta: (*meta).clone() };
    let (before, after) = places.split_at(inputs.len());
    let (inputs, outputs) = (before.iter().map(view).collect(), after.iter().map(view).collect());
    Ok(Step { op, inputs, outputs, scratch: Scratch { buffer, offset, bytes: scratch } })
}

/// The shortest of some runs.
fn fastest(cpu: &mut Cpu, step: &Step) -> anyhow::Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        cpu.run(step)?;
        best = best.min(start.elapsed());
    }
    Ok(best)
}

fn main() -> anyhow::Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let mut cpu = Cpu::new()?;
    println!("{}", cpu.describe());
    for dtype in [DType::BF16, DType::F32] {
        for (op, inputs) in cases(dtype).into_iter().filter(|(op, _)| wanted.is_empty() || wanted.iter().any(|w| w == op.name())) {
            let step = bound(&mut cpu, op, &inputs)?;
            let time = fastest(&mut cpu, &step)?;
            let bytes: u64 = step.inputs.iter().chain(&step.outputs).map(|v| v.meta.bytes()).sum();
            let name = format!("{:?}", step.op);
            println!(
                "{dtype:5} {:9.1} µs {:6.1} GB/s  {}",
                time.as_secs_f64() * 1e6,
                bytes as f64 / time.as_secs_f64() / 1e9,
                &name[..name.len().min(90)]
            );
            cpu.free(step.inputs[0].buffer);
        }
    }
    Ok(())
}
