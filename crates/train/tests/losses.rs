//! The parts of a step's loss: item weights, masks, the pseudo-Huber errors, and predictions that are to stay the frozen model's.
#![allow(clippy::unwrap_used)]

mod common;

use base::DType;
use common::Tiny;
use config::{GradScalerConfig, LossType};
use cpu::isa::Isa;
use diffusion::{Huber, HuberSchedule, NoiseSchedule, Prediction, SchedulerConfig};
use engine::session::Data;
use engine::{Program, Session};
use graph::ops;
use graph::{Recompute, differentiate};
use models::{AdapterSpec, Adapters, unet};
use serde_json::Map;
use std::collections::{BTreeMap, HashMap};
use velatura_train::loss::{Loss, pixel_error};
use velatura_train::loss_scale::LossScale;
use velatura_train::step::{Batch, Form, Preserved, Programs, Text, Trainer, Update, Verdict};

const FORM: Form = Form { batch: 2, size: [8, 8] };
const TOKENS: usize = 16;

/// Adapters, moved away from zero by `up`.
fn trainer(kind: LossType, masked: bool, dtype: DType, up: f32) -> Trainer {
    let model = Tiny::open("sd1", *Isa::available().last().unwrap());
    let spec = AdapterSpec { rank: 4, alpha: 4.0, ..AdapterSpec::default() };
    let adapters = Adapters::resolve(&spec, &model.parts.modules(1).unwrap()).unwrap();
    let [height, width] = FORM.size;
    let error = ops::Loss { error: pixel_error(kind), masked };
    let (forward, loss) = model.forward_to(error, dtype, &adapters, ([FORM.batch, height, width], TOKENS));
    let frozen = model.graph(dtype, &Adapters::none(), |net| {
        let inputs = unet::inputs(net, &model.parts.unet, FORM.batch, FORM.size, TOKENS);
        BTreeMap::from([("prediction", unet::forward(net, &model.parts.unet, inputs))])
    });
    let backend = model.backend();
    let train = Program::new("train", differentiate(forward, loss, &Recompute::none()), backend.as_ref());
    let frozen = Program::new("frozen", frozen, backend.as_ref());
    let session = Session::new(backend, vec![train, frozen], model.source.as_ref()).unwrap();
    let factors = adapters.init(7).into_iter();
    let moved = factors.flat_map(|f| if f.name.ends_with("lora_up") { vec![up; f.data.len()] } else { f.data });
    let params: Vec<f32> = moved.collect();
    let optimizer = optim::Optimizer::new(optim::choose("sgd", &Map::new()).unwrap(), common::layout(&session), 1e-3, None).unwrap();
    let schedule = NoiseSchedule::new(&SchedulerConfig::stable_diffusion(Prediction::Epsilon)).unwrap();
    let huber = Huber { schedule: HuberSchedule::Exponential, c: 0.1, scale: 1.0 };
    let loss = Loss { kind, huber, preservation: 0.5, ..Loss::mse(schedule) };
    let programs = Programs { training: HashMap::from([(FORM, 0)]), frozen: HashMap::from([(FORM, 1)]) };
    Trainer::new(session, programs, loss, (optimizer, None), 0.0, params).unwrap()
}

fn wave(elements: usize, rate: f32) -> Vec<f32> {
    (0..elements).map(|i| (i as f32 * rate).sin()).collect()
}

fn batch(width: usize) -> Batch {
    let elements = FORM.batch * FORM.size[0] * FORM.size[1] * 4;
    Batch {
        form: FORM,
        latents: wave(elements, 0.7),
        noise: wave(elements, 1.3),
        mixed: Vec::new(),
        timesteps: vec![10, 900],
        weights: vec![1.0; 2],
        mask: Vec::new(),
        text: Text::Context(wave(FORM.batch * TOKENS * width, 0.3)),
        preserved: None,
        dropout_seed: [0, 1],
    }
}

fn context_width() -> usize {
    Tiny::open("sd1", Isa::Portable).parts.text_encoder.hidden_size
}

fn step(trainer: &mut Trainer, batch: &Batch) -> Update {
    trainer.accumulate(batch).unwrap();
    trainer.update(0.0).unwrap()
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-5 * b.abs().max(1e-9)
}

/// What the frozen model predicts at the noisy latents of a batch.
fn frozen(session: &mut Session, batch: &Batch, text: &Text) -> Vec<f32> {
    let Text::Context(context) = text else { panic!("the frozen program of these tests takes embeddings") };
    let schedule = NoiseSchedule::new(&SchedulerConfig::stable_diffusion(Prediction::Epsilon)).unwrap();
    let mut noisy = vec![0.0; batch.latents.len()];
    let item = noisy.len() / FORM.batch;
    for (i, t) in batch.timesteps.iter().enumerate() {
        let range = i * item..(i + 1) * item;
        schedule.add_noise(*t, &batch.latents[range.clone()], &batch.noise[range.clone()], &mut noisy[range]);
    }
    let timesteps: Vec<f32> = batch.timesteps.iter().map(|t| *t as f32).collect();
    session.run(1, &[("latents", Data::F32(&noisy)), ("timestep", Data::F32(&timesteps)), ("context", Data::F32(context))]).unwrap();
    session.output(1, "prediction").unwrap()
}

#[test]
fn items_weigh_what_they_are_given() {
    let mut trainer = trainer(LossType::Mse, false, DType::F32, 0.01);
    let with = |weights: [f32; 2]| Batch { weights: weights.to_vec(), ..batch(context_width()) };
    let [first, second, mixed] = [[1.0, 0.0], [0.0, 1.0], [2.0, 0.25]].map(|weights| step(&mut trainer, &with(weights)).loss);
    assert!(first > 0.0 && second > 0.0 && close(mixed, 2.0 * first + 0.25 * second), "{first} {second} {mixed}");
}

#[test]
fn a_mask_takes_pixels_out_of_loss_and_gradient() {
    let pixels = FORM.batch * FORM.size[0] * FORM.size[1];
    let plain = step(&mut trainer(LossType::Mse, false, DType::F32, 0.01), &batch(context_width()));
    let mut trainer = trainer(LossType::Mse, true, DType::F32, 0.01);
    let mut with = |mask: Vec<f32>| step(&mut trainer, &Batch { mask, ..batch(context_width()) });
    let even = with(vec![1.0; pixels]);
    assert!(close(even.loss, plain.loss) && close(even.grad_norm, plain.grad_norm), "{even:?} {plain:?}");
    let left = with((0..pixels).map(|i| if i % 8 < 4 { 1.0 } else { 0.0 }).collect());
    let right = with((0..pixels).map(|i| if i % 8 < 4 { 0.0 } else { 1.0 }).collect());
    assert!(left.loss > 0.0 && right.loss > 0.0 && close(left.loss + right.loss, plain.loss), "{left:?} {right:?}");
    let none = with(vec![0.0; pixels]);
    assert_eq!((none.loss, none.grad_norm), (0.0, 0.0));
}

#[test]
fn a_masked_loss_is_the_mean_of_weighed_squares_and_nothing_outside_has_a_gradient() {
    let mut trainer = trainer(LossType::Mse, true, DType::F32, 0.0);
    let clean = batch(context_width());
    let mask: Vec<f32> = (0..FORM.batch * FORM.size[0] * FORM.size[1]).map(|i| [0.0, 0.5, 2.0][i % 3]).collect();
    let masked = Batch { mask: mask.clone(), mixed: clean.noise.clone(), ..clean.clone() };
    let inside = step(&mut trainer, &masked);
    // Adapters that add nothing yet: what is predicted is the frozen model's.
    let prediction = frozen(trainer.session(), &clean, &clean.text);
    let squares = prediction.iter().zip(&clean.noise).map(|(p, t)| (f64::from(*p) - f64::from(*t)).powi(2));
    let weighed: f64 = squares.enumerate().map(|(i, square)| f64::from(mask[i / 4]) * square).sum();
    assert!(close(inside.loss, weighed / prediction.len() as f64), "{inside:?} {weighed}");
    // Another target where the mask is 0 changes neither loss nor gradient; elsewhere it does.
    let mut with_target = |moved: f32| {
        let target = clean.noise.iter().enumerate().map(|(i, n)| if mask[i / 4] == moved { n + 3.0 } else { *n });
        step(&mut trainer, &Batch { noise: target.collect(), ..masked.clone() })
    };
    assert_eq!(with_target(0.0), inside);
    assert_ne!(with_target(0.5).grad_norm, inside.grad_norm);
}

#[test]
fn huber_losses_are_multiples_of_each_other_by_the_threshold_of_each_timestep() {
    let loss = |kind, item: usize| {
        let mut weights = vec![0.0; 2];
        weights[item] = 1.0;
        step(&mut trainer(kind, false, DType::F32, 0.01), &Batch { weights, ..batch(context_width()) }).loss
    };
    for (item, timestep) in [(0, 10), (1, 900)] {
        let c = 0.1f64.powf(timestep as f64 / 1000.0);
        let [huber, smooth, pseudo] = [LossType::Huber, LossType::SmoothL1, LossType::PseudoHuber].map(|kind| loss(kind, item));
        assert!(close(huber, c * smooth) && close(smooth, 2.0 * pseudo), "{huber} {smooth} {pseudo} at c = {c}");
        let (mse, mae) = (loss(LossType::Mse, item), loss(LossType::Mae, item));
        assert!(huber > 0.0 && huber < mse && huber < 2.0 * c * mae, "{huber} {mse} {mae}");
    }
}

#[test]
fn preserving_the_frozen_output_costs_nothing_until_the_adapters_change_it() {
    for dtype in common::DTYPES {
        let width = context_width();
        let text = Text::Context(wave(FORM.batch * TOKENS * width, 0.9));
        let kept =
            |weights: [f32; 2]| Batch { preserved: Some(Preserved { text: text.clone(), weights: weights.to_vec() }), ..batch(width) };
        let mut zero = trainer(LossType::Mse, false, dtype, 0.0);
        let (plain, preserved) = (step(&mut zero, &batch(width)), step(&mut zero, &kept([1.0; 2])));
        assert_eq!((preserved.preservation, plain.preservation), (Some(0.0), None), "{dtype}");
        assert_eq!((preserved.loss, preserved.grad_norm), (plain.loss, plain.grad_norm), "{dtype}");
        assert!(preserved.grad_norm > 0.0 && preserved.verdict == Verdict::Applied);

        let mut moved = trainer(LossType::Mse, false, dtype, 0.05);
        let plain = step(&mut moved, &batch(width));
        let [both, first, second] = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]].map(|weights| step(&mut moved, &kept(weights)));
        let value = |update: &Update| update.preservation.unwrap();
        assert!(value(&first) > 0.0 && close(value(&first) + value(&second), value(&both)), "{dtype}: {first:?} {second:?} {both:?}");
        assert!(both.loss == plain.loss && both.grad_norm != plain.grad_norm, "{dtype}: {both:?} {plain:?}");

        // ½ · mean((adapted − frozen)²): an ordinary step at the same noisy latents whose target is the frozen prediction.
        let target = frozen(moved.session(), &batch(width), &text);
        let direct = step(&mut moved, &Batch { noise: target, mixed: batch(width).noise, text: text.clone(), ..batch(width) });
        assert!(close(value(&both), 0.5 * direct.loss), "{dtype}: {both:?} {direct:?}");
    }
}

#[test]
fn a_mask_leaves_the_preserved_output_alone() {
    let width = context_width();
    let preserved = Some(Preserved { text: Text::Context(wave(FORM.batch * TOKENS * width, 0.9)), weights: vec![1.0; 2] });
    let mut trainer = trainer(LossType::Mse, true, DType::F32, 0.05);
    let mut with = |mask: f32| {
        let mask = vec![mask; FORM.batch * FORM.size[0] * FORM.size[1]];
        step(&mut trainer, &Batch { mask, preserved: preserved.clone(), ..batch(width) })
    };
    let (whole, none) = (with(1.0), with(0.0));
    assert!(none.loss == 0.0 && none.preservation == whole.preservation && none.preservation.unwrap() > 0.0, "{none:?} {whole:?}");
}

#[test]
fn noise_that_is_mixed_in_is_not_the_target() {
    let width = context_width();
    let clean = batch(width);
    let mixed: Vec<f32> = clean.noise.iter().zip(wave(clean.noise.len(), 2.1)).map(|(n, w)| n + 0.1 * w).collect();
    let run = |batch: &Batch| step(&mut trainer(LossType::Mse, false, DType::F32, 0.01), batch).loss;
    let (plain, same, perturbed) =
        (run(&clean), run(&Batch { mixed: clean.noise.clone(), ..clean.clone() }), run(&Batch { mixed: mixed.clone(), ..clean.clone() }));
    assert!(plain == same && plain != perturbed);
    // With the target perturbed as well the loss is another one again.
    assert_ne!(perturbed, run(&Batch { noise: mixed, ..clean }));
}

/// A trainer whose loss is multiplied by `init_scale` at first.
fn scaled(dtype: DType, init_scale: f64) -> Trainer {
    let config = GradScalerConfig { init_scale, growth_interval: 2, min_scale: 1024.0, ..GradScalerConfig::default() };
    trainer(LossType::Mse, false, dtype, 0.01).with_loss_scale(Some(LossScale::new(config, None)))
}

#[test]
fn a_scale_of_the_loss_changes_neither_loss_nor_gradient() {
    let mut preserved = batch(context_width());
    preserved.preserved =
        Some(Preserved { text: Text::Context(wave(FORM.batch * TOKENS * context_width(), 0.9)), weights: vec![1.0, 0.5] });
    let plain = step(&mut trainer(LossType::Mse, false, DType::F32, 0.01), &preserved);
    let found = step(&mut scaled(DType::F32, 2048.0), &preserved);
    // A power of two moves nothing but exponents.
    assert_eq!((found.loss, found.preservation, found.grad_norm), (plain.loss, plain.preservation, plain.grad_norm));
    assert_eq!((plain.loss_scale, found.loss_scale), (None, Some(2048.0)));
    let half = step(&mut scaled(DType::F16, 2048.0), &preserved);
    assert_eq!(half.verdict, Verdict::Applied);
    assert!((half.grad_norm / plain.grad_norm - 1.0).abs() < 5e-3 && (half.loss / plain.loss - 1.0).abs() < 5e-3, "{half:?} {plain:?}");
    // Without a scale most of the gradient lies below f16's smallest number.
    let mut tiny = preserved;
    tiny.weights = vec![1e-6; 2];
    tiny.preserved = None;
    let [exact, lost] = [DType::F32, DType::F16].map(|dtype| step(&mut trainer(LossType::Mse, false, dtype, 0.01), &tiny).grad_norm);
    let kept = step(&mut scaled(DType::F16, 2f64.powi(24)), &tiny).grad_norm;
    assert!((kept / exact - 1.0).abs() < 5e-3 && (lost / exact - 1.0).abs() > 0.2, "{exact} {kept} {lost}");
}

#[test]
fn an_overflow_changes_nothing_but_the_scale_until_that_is_as_small_as_it_may_be() {
    let batch = batch(context_width());
    let mut trainer = scaled(DType::F16, 2f64.powi(40));
    let before = trainer.params().to_vec();
    let mut scales = Vec::new();
    loop {
        trainer.accumulate(&batch).unwrap();
        let update = trainer.update(1e-3).unwrap();
        let Verdict::Overflow(next) = update.verdict else {
            assert_eq!(update.verdict, Verdict::Applied);
            assert!(update.grad_norm.is_finite() && trainer.params() != before);
            break;
        };
        assert!(update.loss.is_finite() && trainer.params() == before && update.loss_scale == Some(2.0 * next));
        scales.push(next);
    }
    assert!(scales.len() > 3, "{scales:?}");
    // Two good steps, and the scale grows again.
    trainer.accumulate(&batch).unwrap();
    assert_eq!(trainer.update(1e-3).unwrap().verdict, Verdict::Applied);
    assert_eq!(trainer.loss_scale().unwrap().scale(), 2.0 * scales.last().unwrap());
    // At the floor an overflow is a step that is not finite.
    let heavy = Batch { weights: vec![1e12; 2], ..batch };
    let mut floor = scaled(DType::F16, 2048.0);
    assert_eq!(step(&mut floor, &heavy).verdict, Verdict::Overflow(1024.0));
    assert_eq!(step(&mut floor, &heavy).verdict, Verdict::NotFinite);
    // A loss that is not finite does not move it: it comes out of the forward pass.
    let broken = Batch { latents: vec![f32::INFINITY; heavy.latents.len()], ..heavy };
    let mut trainer = scaled(DType::F16, 4096.0);
    assert_eq!(step(&mut trainer, &broken).verdict, Verdict::NotFinite);
    assert_eq!(trainer.loss_scale().unwrap().scale(), 4096.0);
}
