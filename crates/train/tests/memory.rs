//! What a run takes is what was planned, and a step takes nothing more: an allocator that counts shows it.
#![allow(clippy::unwrap_used)]

mod common;

use base::DType;
use base::quantized::Scheme;
use common::{Tiny, cases};
use diffusion::{NoiseSchedule, Prediction, SchedulerConfig, Weighting};
use engine::{Program, Session};
use graph::{Recompute, differentiate};
use models::{AdapterSpec, Adapters};
use serde_json::Map;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use velatura_train::loss::Loss;
use velatura_train::source::Stored;
use velatura_train::step::{Batch, Form, Programs, Text, Trainer, Verdict};

/// From this size on an allocation counts as memory for a tensor. Below are the small change of threads and error texts.
const TENSOR_BYTES: usize = 4096;

static WATCHING: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);
static LARGEST: AtomicUsize = AtomicUsize::new(0);

struct Counting;

fn note(bytes: usize) {
    if bytes >= TENSOR_BYTES && WATCHING.load(Ordering::Relaxed) {
        COUNT.fetch_add(1, Ordering::Relaxed);
        LARGEST.fetch_max(bytes, Ordering::Relaxed);
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size);
        unsafe { System.realloc(pointer, layout, new_size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Linear layers, convolutions and the text encoder, with dropout: every op of a training step.
fn adapters(model: &Tiny) -> Adapters {
    let spec = AdapterSpec {
        rank: 4,
        alpha: 4.0,
        conv_rank: Some(4),
        conv_alpha: Some(4.0),
        dropout: 0.1,
        text_encoder: true,
        ..AdapterSpec::default()
    };
    Adapters::resolve(&spec, &model.parts.modules(1).unwrap()).unwrap()
}

const FORM: Form = Form { batch: 2, size: [12, 16] };
const TOKENS: usize = 16;

fn trainer(model: &Tiny, dtype: DType, recompute: bool, optimizer: &str) -> Trainer {
    let adapters = adapters(model);
    let (forward, loss) = model.training_forward(dtype, &adapters, [FORM.batch, FORM.size[0], FORM.size[1]], TOKENS);
    let recompute = if recompute { Recompute::all(&forward) } else { Recompute::none() };
    let backend = model.backend();
    let program = Program::new("train", differentiate(forward, loss, &recompute), backend.as_ref());
    let planned = Session::memory_of(std::slice::from_ref(&program)).unwrap();
    let session = Session::new(backend, vec![program], model.source.as_ref()).unwrap();
    assert_eq!(planned.total(), session.allocated_bytes(), "the plan and the backend disagree");
    assert_eq!(planned.arena, arena_end(&session), "the arena has another size than its program uses");

    let params: Vec<f32> = adapters.init(7).into_iter().flat_map(|f| f.data).collect();
    let chosen = optim::choose(optimizer, &Map::new()).unwrap();
    let planned = chosen.held_bytes(&common::layout(&session));
    let optimizer = optim::Optimizer::new(chosen, common::layout(&session), 1e-3, None).unwrap();
    assert_eq!(planned, optimizer.held_bytes(), "the plan and the optimizer disagree");
    let ema = Some(optim::Ema::new(0.99, true, &params).unwrap()).filter(|_| !optimizer.averages());
    let schedule = NoiseSchedule::new(&SchedulerConfig::stable_diffusion(Prediction::Epsilon)).unwrap();
    let loss = Loss { weighting: Weighting::MinSnr { gamma: 5.0 }, ..Loss::mse(schedule) };
    let programs = Programs { training: HashMap::from([(FORM, 0)]), ..Programs::default() };
    Trainer::new(session, programs, loss, (optimizer, ema), 1.0, params).unwrap()
}

/// The end of the last byte of the arena that the session's program touches.
fn arena_end(session: &Session) -> u64 {
    let (forward, backward) = session.steps(0);
    let steps = || forward.iter().chain(backward);
    let arena = steps().next().unwrap().scratch.buffer;
    let outputs = steps().flat_map(|step| &step.outputs).filter(|view| view.buffer == arena).map(|view| view.offset + view.meta.bytes());
    let scratch = steps().map(|step| step.scratch).filter(|scratch| scratch.bytes > 0).map(|scratch| scratch.offset + scratch.bytes);
    outputs.chain(scratch).map(graph::plan::align).max().unwrap()
}

fn batch(step: u32) -> Batch {
    let elements = FORM.batch * FORM.size[0] * FORM.size[1] * 4;
    let wave = |rate: f32| (0..elements).map(|i| (i as f32 * rate).sin()).collect();
    Batch {
        form: FORM,
        latents: wave(0.7),
        noise: wave(1.3),
        mixed: Vec::new(),
        timesteps: vec![10, 900],
        weights: vec![1.0; FORM.batch],
        mask: Vec::new(),
        preserved: None,
        text: Text::Ids((0..(FORM.batch * TOKENS) as u32).map(|i| i % 98).collect()),
        dropout_seed: [step, 1],
    }
}

/// One test for all cases: the counter is the whole process's.
#[test]
fn sessions_take_the_planned_bytes_and_steps_allocate_no_tensor_memory() {
    let mut cases = cases();
    // The same once more, the base in blocks of few bits.
    let [int8, nf4] = [Scheme::Int8, Scheme::Nf4].map(Some);
    for (i, stored) in
        [(int8, nf4), (nf4, int8)].map(|(unet, text_encoder)| Stored { dtype: None, unet, text_encoder }).into_iter().enumerate()
    {
        let (first, dtype) = &cases[i];
        cases.push((Tiny { stored, ..Tiny::open(first.style, first.isa) }, *dtype));
    }
    let every_path = cases.iter().flat_map(|case| [(case, false, "adamw"), (case, true, "adamw")]);
    let every_optimizer = optim::OPTIMIZERS.iter().map(|entry| (&cases[0], false, entry.name));
    for ((model, dtype), recompute, optimizer) in every_path.chain(every_optimizer) {
        WATCHING.store(true, Ordering::SeqCst);
        let mut trainer = trainer(model, *dtype, recompute, optimizer);
        WATCHING.store(false, Ordering::SeqCst);
        assert!(COUNT.swap(0, Ordering::SeqCst) > 0, "the counter does not count");
        LARGEST.store(0, Ordering::SeqCst);
        let batches = [0, 1, 2].map(batch);
        let mut step = |batch: &Batch| {
            trainer.accumulate(batch).unwrap();
            trainer.accumulate(batch).unwrap();
            assert_eq!(trainer.update(1e-3).unwrap().verdict, Verdict::Applied);
        };
        // The first step fills the staging vectors and starts the threads.
        step(&batches[0]);
        WATCHING.store(true, Ordering::SeqCst);
        batches[1..].iter().for_each(&mut step);
        WATCHING.store(false, Ordering::SeqCst);
        let (count, largest) = (COUNT.swap(0, Ordering::SeqCst), LARGEST.swap(0, Ordering::SeqCst));
        assert_eq!(
            count, 0,
            "{model} {dtype} recompute {recompute} {optimizer}: {count} allocations in two steps, the largest of {largest} bytes"
        );
    }
}
