//! The whole training computation on the CPU backend against PyTorch, diffusers and peft: forwards, gradients of LoRA factors, and
//! twenty AdamW steps, on every path of the kernels. f32 within 1e-4 (losses 1e-3), bf16 within 2e-2,
//! f16 (with a scaled loss) within 4e-3.
#![allow(clippy::unwrap_used)]

mod common;

use base::DType;
use common::{Golden, Tiny, assert_close, cases, run};
use config::GradScalerConfig;
use diffusion::{NoiseSchedule, SchedulerConfig, Weighting};
use engine::Session;
use engine::session::Data;
use graph::{Recompute, differentiate};
use models::{AdapterSpec, Adapters, clip, unet, vae};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use velatura_train::loss::Loss;
use velatura_train::loss_scale::LossScale;
use velatura_train::step::{Batch, Form, Programs, Text, Trainer, Verdict};

fn limit(dtype: DType) -> f64 {
    match dtype {
        DType::F32 => 1e-4,
        DType::F16 => 4e-3,
        _ => 2e-2,
    }
}

/// What the loss is multiplied by for the backward pass.
fn loss_scale(dtype: DType) -> f32 {
    if dtype == DType::F16 { 65536.0 } else { 1.0 }
}

#[test]
fn text_states_equal_those_of_transformers() {
    for (model, dtype) in cases() {
        let golden = Golden::open(&format!("{}/clip.safetensors", model.style));
        let dims = golden.dims("ids");
        for (clip_skip, expected) in [(1, "last_hidden_state"), (2, "clip_skip_2")] {
            let graph = model.graph(dtype, &Adapters::none(), |net| {
                let ids = clip::ids_input(net, dims[0], dims[1]);
                BTreeMap::from([("states", clip::forward(net, &model.parts.text_encoder, ids, clip_skip))])
            });
            let states = run(&mut model.session(graph), &[("ids", Data::U32(&golden.whole_numbers("ids")))], "states");
            assert_close(&format!("{model} {dtype} {expected}"), &states, &golden.values(expected), limit(dtype));
        }
    }
}

#[test]
fn the_autoencoder_encodes_and_decodes_as_diffusers() {
    for (model, dtype) in cases() {
        let golden = Golden::open(&format!("{}/vae.safetensors", model.style));
        let config = &model.parts.vae;
        let [pixels, latents] = ["pixels", "latent"].map(|name| golden.dims(name));
        let encoder = model.graph(dtype, &Adapters::none(), |net| {
            let input = vae::pixels_input(net, config, pixels[0], [pixels[1], pixels[2]]);
            BTreeMap::from([("moments", vae::encode(net, config, input))])
        });
        let moments = run(&mut model.session(encoder), &[("pixels", Data::F32(&golden.values("pixels")))], "moments");
        let channels = config.latent_channels;
        for (first, name) in [(0, "mean"), (channels, "logvar")] {
            let part: Vec<f32> = moments.chunks_exact(2 * channels).flat_map(|m| &m[first..first + channels]).copied().collect();
            assert_close(&format!("{model} {dtype} {name}"), &part, &golden.values(name), limit(dtype));
        }
        let decoder = model.graph(dtype, &Adapters::none(), |net| {
            let input = vae::latents_input(net, config, latents[0], [latents[1], latents[2]]);
            BTreeMap::from([("decoded", vae::decode(net, config, input))])
        });
        let decoded = run(&mut model.session(decoder), &[("latents", Data::F32(&golden.values("latent")))], "decoded");
        assert_close(&format!("{model} {dtype} decoded"), &decoded, &golden.values("decoded"), limit(dtype));
    }
}

#[test]
fn the_unet_predicts_what_diffusers_predicts() {
    for (model, dtype) in cases() {
        let golden = Golden::open(&format!("{}/unet.safetensors", model.style));
        for case in 0..3 {
            let name = |part: &str| format!("case{case}.{part}");
            let (latent, context) = (golden.dims(&name("latent")), golden.dims(&name("context")));
            let graph = model.graph(dtype, &Adapters::none(), |net| {
                let inputs = unet::inputs(net, &model.parts.unet, latent[0], [latent[1], latent[2]], context[1]);
                BTreeMap::from([("prediction", unet::forward(net, &model.parts.unet, inputs))])
            });
            let [latents, timesteps, context] = ["latent", "timesteps", "context"].map(|part| golden.values(&name(part)));
            let inputs = [("latents", Data::F32(&latents)), ("timestep", Data::F32(&timesteps)), ("context", Data::F32(&context))];
            let prediction = run(&mut model.session(graph), &inputs, "prediction");
            assert_close(&format!("{model} {dtype} case {case}"), &prediction, &golden.values(&name("output")), limit(dtype));
        }
    }
}

/// Rank 4, alpha 8, as in the golden files.
fn spec() -> AdapterSpec {
    AdapterSpec { rank: 4, alpha: 8.0, ..AdapterSpec::default() }
}

/// The session's parameters from the tensors `<prefix><name>` of a golden file.
fn flat(session: &Session, golden: &Golden, prefix: &str) -> Vec<f32> {
    session.params().iter().flat_map(|place| golden.values(&format!("{prefix}{}", place.name))).collect()
}

/// Loss and gradients of a session whose parameters, inputs and expected values a golden file holds.
fn gradients_of(session: &mut Session, golden: &Golden, encoded: bool, scale: f32) -> (f32, Vec<f32>) {
    session.set_params(&flat(session, golden, "")).unwrap();
    session.clear_gradients().unwrap();
    let [noisy, timesteps, context, target, weight] = ["noisy", "timesteps", "context", "target", "weight"].map(|name| golden.values(name));
    let weight: Vec<f32> = weight.into_iter().map(|w| w * scale).collect();
    let ids = if encoded { golden.whole_numbers("ids") } else { Vec::new() };
    let inputs = [
        ("latents", Data::F32(&noisy)),
        ("timestep", Data::F32(&timesteps)),
        if encoded { ("ids", Data::U32(&ids)) } else { ("context", Data::F32(&context)) },
        ("target", Data::F32(&target)),
        ("weight", Data::F32(&weight)),
    ];
    let loss = run(session, &inputs, "loss")[0];
    let mut gradients = vec![0.0; session.params().iter().map(|p| p.range.len()).sum()];
    session.read_gradients(&mut gradients).unwrap();
    (loss / scale, gradients.into_iter().map(|g| g / scale).collect())
}

fn check_gradients(model: &Tiny, kind: &str, spec: &AdapterSpec, dtype: DType) {
    let golden = Golden::open(&format!("{}/lora_{kind}.safetensors", model.style));
    let adapters = Adapters::resolve(spec, &model.parts.modules(1).unwrap()).unwrap();
    let trained: BTreeSet<String> = golden.names().filter_map(|n| n.strip_prefix("grad.")).map(str::to_owned).collect();
    let (dims, tokens) = (golden.dims("noisy"), golden.dims("context")[1]);
    let (forward, loss) = model.training_forward(dtype, &adapters, [dims[0], dims[1], dims[2]], tokens);
    let results = [Recompute::none(), Recompute::all(&forward)].map(|recompute| {
        let mut session = model.session(differentiate(forward.clone(), loss, &recompute));
        let ours: BTreeSet<String> = session.params().iter().map(|p| p.name.clone()).collect();
        assert_eq!(ours, trained, "{model} {kind}: other modules are adapted");
        let (loss, gradients) = gradients_of(&mut session, &golden, spec.text_encoder, loss_scale(dtype));
        (loss, gradients, flat(&session, &golden, "grad."), session.params().to_vec())
    });
    let [(loss, gradients, expected, places), (other_loss, other_gradients, ..)] = results;
    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    assert_eq!(bits(&[loss]), bits(&[other_loss]), "{model} {kind} {dtype}: recomputing changes the loss");
    assert!(bits(&gradients) == bits(&other_gradients), "{model} {kind} {dtype}: recomputing changes gradients");

    assert_close(&format!("{model} {kind} {dtype} loss"), &[loss], &golden.values("loss"), limit(dtype));
    assert_close(&format!("{model} {kind} {dtype} gradients"), &gradients, &expected, limit(dtype));
    if dtype == DType::F32 {
        for place in places {
            let range = place.range.clone();
            assert_close(&format!("{model} {kind} {}", place.name), &gradients[range.clone()], &expected[range], limit(dtype));
        }
    }
}

#[test]
fn gradients_of_linear_factors_equal_those_of_peft() {
    for (model, dtype) in cases() {
        check_gradients(&model, "linear", &spec(), dtype);
    }
}

#[test]
fn gradients_of_convolution_factors_equal_those_of_peft() {
    let ignored = vec![".attentions.".to_string()];
    let spec = AdapterSpec { conv_rank: Some(4), conv_alpha: Some(8.0), ignore_if_contains: ignored, ..spec() };
    for (model, dtype) in cases() {
        check_gradients(&model, "conv", &spec, dtype);
    }
}

#[test]
fn gradients_in_the_text_encoder_equal_those_of_peft() {
    let spec = AdapterSpec { unet: false, text_encoder: true, ..spec() };
    for (model, dtype) in cases() {
        check_gradients(&model, "text", &spec, dtype);
    }
}

/// The trainer of the golden run: AdamW with its settings, factors as they were at its start.
fn trainer(model: &Tiny, golden: &Golden, dtype: DType) -> Trainer {
    let adapters = Adapters::resolve(&spec(), &model.parts.modules(1).unwrap()).unwrap();
    let (dims, tokens) = (golden.dims("step00.latent"), golden.dims("step00.context")[1]);
    let form = Form { batch: dims[0], size: [dims[1], dims[2]] };
    let (forward, loss) = model.training_forward(dtype, &adapters, [dims[0], dims[1], dims[2]], tokens);
    let session = model.session(differentiate(forward, loss, &Recompute::none()));
    let mut params = Vec::new();
    for place in session.params() {
        match place.name.ends_with("lora_down") {
            true => params.extend(golden.values(&format!("initial.{}", place.name))),
            false => params.extend(vec![0.0; place.range.len()]),
        }
    }
    let settings = json!({"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01});
    let chosen = optim::choose("adamw", settings.as_object().unwrap()).unwrap();
    let optimizer = optim::Optimizer::new(chosen, common::layout(&session), 2e-3, None).unwrap();
    let scheduler = SchedulerConfig::from_json(&model.source.of("unet").scheduler_config().unwrap().to_string()).unwrap();
    let weighting = if model.style == "sd2" { Weighting::MinSnr { gamma: 5.0 } } else { Weighting::Even };
    let loss = Loss { weighting, ..Loss::mse(NoiseSchedule::new(&scheduler).unwrap()) };
    let programs = Programs { training: HashMap::from([(form, 0)]), ..Programs::default() };
    let config = GradScalerConfig { init_scale: f64::from(loss_scale(dtype)), ..GradScalerConfig::default() };
    let scale = (dtype == DType::F16).then(|| LossScale::new(config, None));
    Trainer::new(session, programs, loss, (optimizer, None), 0.0, params).unwrap().with_loss_scale(scale)
}

fn batch(golden: &Golden, step: usize) -> Batch {
    let name = |part: &str| format!("step{step:02}.{part}");
    let dims = golden.dims(&name("latent"));
    Batch {
        form: Form { batch: dims[0], size: [dims[1], dims[2]] },
        latents: golden.values(&name("latent")),
        noise: golden.values(&name("noise")),
        mixed: Vec::new(),
        weights: vec![1.0; dims[0]],
        mask: Vec::new(),
        preserved: None,
        timesteps: golden.values(&name("timesteps")).into_iter().map(|t| t as usize).collect(),
        text: Text::Context(golden.values(&name("context"))),
        dropout_seed: [0, 0],
    }
}

#[test]
fn twenty_steps_of_training_have_the_losses_of_peft_and_end_at_the_same_factors() {
    for (model, dtype) in cases() {
        let golden = Golden::open(&format!("{}/training.safetensors", model.style));
        let mut trainer = trainer(&model, &golden, dtype);
        let loss_limit = if dtype == DType::F32 { 1e-3 } else { limit(dtype) };
        for (step, expected) in golden.values("losses").into_iter().enumerate() {
            trainer.accumulate(&batch(&golden, step)).unwrap();
            let update = trainer.update(2e-3).unwrap();
            assert_eq!(update.verdict, Verdict::Applied);
            let away = (update.loss / f64::from(expected) - 1.0).abs();
            assert!(away < loss_limit, "{model} {dtype} step {step}: loss {} instead of {expected}", update.loss);
        }
        let expected: Vec<f32> = flat(trainer.session(), &golden, "final.");
        let distance = common::relative_l2(trainer.params(), &expected);
        // AdamW divides by the gradient's size, so a rounding of small gradients moves as much as one of large ones.
        let most = if dtype == DType::F16 { 2.0 * limit(dtype) } else { limit(dtype) };
        assert!(distance < most, "{model} {dtype}: final factors are {distance:.2e} away");
    }
}

#[test]
fn the_same_micro_batch_twice_has_the_loss_and_gradient_of_it_once() {
    for (model, dtype) in cases() {
        let golden = Golden::open(&format!("{}/training.safetensors", model.style));
        let whole = batch(&golden, 0);
        let mut once = trainer(&model, &golden, dtype);
        once.accumulate(&whole).unwrap();
        let once = once.update(1e-3).unwrap();
        let mut twice = trainer(&model, &golden, dtype);
        twice.accumulate(&whole).unwrap();
        twice.accumulate(&whole).unwrap();
        let twice = twice.update(1e-3).unwrap();
        assert!((once.loss / twice.loss - 1.0).abs() < 1e-6 && (once.grad_norm / twice.grad_norm - 1.0).abs() < 1e-5, "{once:?} {twice:?}");
    }
}
