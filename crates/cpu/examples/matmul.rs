//! Speed of the matrix kernels at the shapes of Stable Diffusion 1.5 at 512 px: `cargo run --release -p velatura-cpu --example matmul [FILTER]`.
//!
//! Rates are per second of processor time, summed over threads, so that other load on the machine shows less; the share is of what a
//! loop of multiply-adds on registers alone reaches in the same run. The best of several runs counts.

use anyhow::Result;
use base::{DType, Rng};
use engine::backend::{Scratch, Step};
use engine::{Backend, View};
use graph::ops::{Attention, AttentionGrad, Conv2d, Conv2dGrad, Linear, LinearGrad, Lora, Padding};
use graph::{Meta, Op};
use std::time::Instant;
use velatura_cpu::Cpu;
use velatura_cpu::isa::isa;
use velatura_cpu::speed::registers_only;

/// Seconds of processor time of all threads of this process so far.
fn processor_seconds() -> f64 {
    #[repr(C)]
    struct Time {
        seconds: i64,
        nanoseconds: i64,
    }
    unsafe extern "C" {
        fn clock_gettime(clock: i32, time: *mut Time) -> i32;
    }
    const PROCESS: i32 = 2;
    let mut time = Time { seconds: 0, nanoseconds: 0 };
    // SAFETY: the C library's function, with its struct on 64-bit Linux.
    let failed = unsafe { clock_gettime(PROCESS, &mut time) };
    assert_eq!(failed, 0, "no clock of processor time");
    time.seconds as f64 + time.nanoseconds as f64 * 1e-9
}

fn bf16(shape: &[usize]) -> Meta {
    Meta::new(base::Shape::new(shape), DType::BF16)
}

fn f32(shape: &[usize]) -> Meta {
    Meta::new(base::Shape::new(shape), DType::F32)
}

/// Ops to time, with their inputs.
fn shapes() -> Vec<(String, Op, Vec<Meta>)> {
    let mut all = Vec::new();
    let lora = Lora { scale: 1.0, dropout: 0.0, stream: 0 };
    let factors = |n: usize, k: &[usize]| [f32(&[&[16], k].concat()), f32(&[n, 16])];
    for (m, k, n) in [
        (4096, 320, 320),
        (4096, 320, 2560),
        (4096, 1280, 320),
        (1024, 640, 640),
        (1024, 640, 5120),
        (1024, 2560, 640),
        (256, 1280, 1280),
        (256, 1280, 10240),
        (256, 5120, 1280),
        (77, 768, 320),
        (77, 768, 1280),
        (1, 1280, 320),
    ] {
        let name = format!("{m}×{k}×{n}");
        let (x, y, w, b) = (bf16(&[m, k]), bf16(&[m, n]), bf16(&[n, k]), f32(&[n]));
        all.push((format!("linear {name}"), Linear { bias: true, lora: None }.into(), vec![x.clone(), w.clone(), b]));
        all.push((format!("linear gradient {name}"), LinearGrad { input: true, lora: None }.into(), vec![y.clone(), w.clone()]));
        if k == n || m == 77 {
            let [a, b] = factors(n, &[k]);
            all.push((
                format!("linear+lora {name}"),
                Linear { bias: false, lora: Some(lora) }.into(),
                vec![x.clone(), w.clone(), a.clone(), b.clone()],
            ));
            all.push((format!("linear+lora gradient {name}"), LinearGrad { input: true, lora: Some(lora) }.into(), vec![y, w, x, a, b]));
        }
    }
    for (side, i, o, kernel, stride) in [
        (64, 320, 320, 3, 1),
        (64, 960, 320, 3, 1),
        (32, 640, 640, 3, 1),
        (32, 1920, 640, 3, 1),
        (16, 1280, 1280, 3, 1),
        (16, 2560, 1280, 3, 1),
        (8, 1280, 1280, 3, 1),
        (64, 320, 320, 3, 2),
        (64, 960, 320, 1, 1),
        (64, 4, 320, 3, 1),
        (64, 320, 4, 3, 1),
    ] {
        let padding = Padding::same(kernel / 2);
        let out = (side + 2 * (kernel / 2) - kernel) / stride + 1;
        let (x, y, w) = (bf16(&[1, side, side, i]), bf16(&[1, out, out, o]), bf16(&[o, kernel, kernel, i]));
        let name = format!("{side}² {i}→{o} {kernel}×{kernel} /{stride}");
        all.push((format!("conv {name}"), Conv2d { stride, padding, bias: true, lora: None }.into(), vec![x, w.clone(), f32(&[o])]));
        let op = Conv2dGrad { stride, padding, size: [side, side], input: true, lora: None };
        all.push((format!("conv gradient {name}"), op.into(), vec![y, w]));
    }
    for (tokens, keys, heads, depth) in [
        (4096, 4096, 8, 40),
        (1024, 1024, 8, 80),
        (256, 256, 8, 160),
        (4096, 77, 8, 40),
        (1024, 77, 8, 80),
        (4096, 4096, 10, 64),
        (4096, 4096, 1, 512),
    ] {
        let op = Attention { heads, scale: (depth as f32).powf(-0.5), causal: false };
        let (q, k) = (bf16(&[1, tokens, heads * depth]), bf16(&[1, keys, heads * depth]));
        let name = format!("{tokens}×{keys} {heads}×{depth}");
        all.push((format!("attention {name}"), op.into(), vec![q.clone(), k.clone(), k.clone()]));
        if depth < 512 {
            let inputs = vec![q.clone(), q.clone(), k.clone(), k, q, f32(&[1, heads, tokens])];
            all.push((format!("attention gradient {name}"), AttentionGrad { attention: op, query: true, keys: true }.into(), inputs));
        }
    }
    all
}

fn random_bytes(meta: &Meta, log_sum: bool) -> Vec<u8> {
    let mut rng = Rng::new(1, "bench", &[]);
    let values: Vec<f32> = (0..meta.shape.elements()).map(|_| if log_sum { 8.0 } else { rng.normal() }).collect();
    base::dtype::from_f32(meta.dtype, &values).expect("floats")
}

/// A step with its tensors in a buffer of their own.
fn bind(device: &mut Cpu, op: &Op, inputs: &[Meta]) -> Result<Step> {
    let metas: Vec<&Meta> = inputs.iter().collect();
    let outputs = op.rule().outputs(&metas);
    let bytes = device.scratch_bytes(op, &metas, &outputs.iter().collect::<Vec<_>>());
    let total: u64 = inputs.iter().chain(&outputs).map(|m| m.bytes().next_multiple_of(64)).sum();
    let buffer = device.allocate(total + bytes)?;
    let mut offset = 0;
    let mut place = |meta: &Meta| {
        let view = View { buffer, offset, meta: meta.clone() };
        offset += meta.bytes().next_multiple_of(64);
        view
    };
    let input_views: Vec<View> = inputs.iter().map(&mut place).collect();
    let output_views: Vec<View> = outputs.iter().map(&mut place).collect();
    for (i, view) in input_views.iter().enumerate() {
        let log_sum = i == 5 && matches!(op, Op::AttentionGrad(_));
        device.write(buffer, view.offset, &random_bytes(&view.meta, log_sum))?;
    }
    Ok(Step { op: op.clone(), inputs: input_views, outputs: output_views, scratch: Scratch { buffer, offset, bytes } })
}

/// FLOP per second that one core reaches on registers alone, with the instruction that the path multiplies bf16 by.
fn peak() -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..300 {
        let start = processor_seconds();
        let flop = registers_only(isa(), 200_000);
        best = best.max(flop / (processor_seconds() - start));
    }
    best
}

/// The lowest rate at which one of as many threads as the device has multiplies on registers alone, right now.
fn rate_now(threads: usize) -> f64 {
    let rate = || {
        let start = Instant::now();
        registers_only(isa(), 4000) / start.elapsed().as_secs_f64()
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(rate)).collect();
        all.into_iter().map(|thread| thread.join().expect("a loop")).fold(f64::INFINITY, f64::min)
    })
}

/// The median of what was measured in one state of the machine, with the number of measurements.
fn median(mut seconds: Vec<f64>) -> String {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds.get(seconds.len() / 2);
    middle.map_or("–".into(), |s| format!("{:.3} ms ({})", s * 1e3, seconds.len()))
}

fn main() -> Result<()> {
    let filter = std::env::args().nth(1).unwrap_or_default();
    let mut device = Cpu::new()?;
    let threads = std::thread::available_parallelism()?.get();
    let peak = peak();
    println!("{}; registers alone: {:.0} GFLOP/s a core", device.describe(), peak / 1e9);
    for (name, op, inputs) in shapes().into_iter().filter(|(name, ..)| name.contains(&filter)) {
        let step = bind(&mut device, &op, &inputs)?;
        let metas: Vec<&Meta> = inputs.iter().collect();
        let outputs = op.rule().outputs(&metas);
        let flop = op.rule().cost(&metas, &outputs.iter().collect::<Vec<_>>()).flops;
        let (mut best, begin) = (f64::INFINITY, Instant::now());
        let (mut quiet, mut busy) = (Vec::new(), Vec::new());
        for round in 0.. {
            let before = rate_now(threads);
            let start = processor_seconds();
            device.run(&step)?;
            let seconds = processor_seconds() - start;
            let rates = [before, rate_now(threads)];
            best = best.min(seconds);
            if rates.iter().all(|rate| *rate > 0.8 * peak) {
                quiet.push(seconds);
            } else if rates.iter().all(|rate| *rate < 0.6 * peak) {
                busy.push(seconds);
            }
            if round > 1 && begin.elapsed().as_secs_f64() > 1.0 || round > 200 {
                break;
            }
        }
        let share = flop / best / peak * 100.0;
        println!(
            "{name:44} {:8.3} ms  {:7.1} GFLOP/s  {share:5.1} %   quiet {}, busy {}",
            best * 1e3,
            flop / best / 1e9,
            median(quiet),
            median(busy)
        );
        device.free(step.scratch.buffer);
    }
    Ok(())
}
