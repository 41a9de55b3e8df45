//! Gradients of LoRA factors against peft: on linear layers, on convolutions, and through the UNet into the text encoder; with every
//! segment kept and with every segment recomputed.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Golden, Model, STYLES, assert_close, builder};
use graph::{Array, Recompute};
use std::collections::{BTreeSet, HashMap};
use velatura_models::{AdapterSpec, Adapters, Net, clip, unet};

const LIMIT: f64 = 1e-4;

fn check(style: &str, kind: &str, spec: &AdapterSpec) {
    let (model, golden) = (Model::open(style), Golden::open(&format!("{style}/lora_{kind}.safetensors")));
    let adapters = Adapters::resolve(spec, &model.config.modules(1).unwrap()).unwrap();
    let trained: BTreeSet<String> = golden.names().filter_map(|n| n.strip_prefix("grad.")).map(str::to_owned).collect();
    let ours: BTreeSet<String> = adapters.iter().flat_map(|a| a.params()).map(|(name, _)| name).collect();
    assert_eq!(ours, trained, "{style} {kind}: other modules are adapted");

    let latents = golden.array("noisy");
    let dims = latents.shape.dims().to_vec();
    let mut b = builder();
    let mut net = Net::new(&mut b, &adapters);
    let context = golden.array("context");
    let mut inputs = unet::inputs(&mut net, &model.config.unet, dims[0], [dims[1], dims[2]], context.shape.dims()[1]);
    if spec.text_encoder {
        let ids = clip::ids_input(&mut net, dims[0], context.shape.dims()[1]);
        inputs.context = clip::forward(&mut net, &model.config.text_encoder, ids, 1);
    }
    let prediction = unet::forward(&mut net, &model.config.unet, inputs);
    let target = b.input("target", latents.shape.clone(), base::DType::F32);
    let weight = b.input("weight", [dims[0]], base::DType::F32);
    let [loss, _] = b.mse(prediction, target, weight);
    b.output("loss", loss);
    let forward = b.finish();

    let mut given: HashMap<String, Array> = trained.iter().map(|name| (name.clone(), golden.factor(name))).collect();
    for (ours, theirs) in
        [("latents", "noisy"), ("timestep", "timesteps"), ("context", "context"), ("target", "target"), ("weight", "weight")]
    {
        given.insert(ours.to_owned(), golden.array(theirs));
    }
    if spec.text_encoder {
        given.insert("ids".to_owned(), golden.array("ids"));
    }
    for recompute in [Recompute::none(), Recompute::all(&forward)] {
        let graph = graph::differentiate(forward.clone(), loss, &recompute);
        graph::verify::verify(&graph).unwrap();
        let run = model.run(&graph, &given);
        let (ours, theirs) = (run.output("loss").data[0], golden.array("loss").data[0]);
        assert!((ours / theirs - 1.0).abs() < 1e-4, "{style} {kind}: loss {ours} instead of {theirs}");
        for name in &trained {
            assert_close(&format!("{style} {kind} {name}"), &run.gradients[name], &golden.factor(&format!("grad.{name}")), LIMIT);
        }
    }
}

/// Rank 4, alpha 8, as in the golden files.
fn spec() -> AdapterSpec {
    AdapterSpec { rank: 4, alpha: 8.0, ..AdapterSpec::default() }
}

#[test]
fn gradients_of_linear_factors_equal_those_of_peft() {
    STYLES.iter().for_each(|style| check(style, "linear", &spec()));
}

#[test]
fn gradients_of_convolution_factors_equal_those_of_peft() {
    let texts = |list: &[&str]| list.iter().map(|s| s.to_string()).collect();
    let spec = AdapterSpec { conv_rank: Some(4), conv_alpha: Some(8.0), ignore_if_contains: texts(&[".attentions."]), ..spec() };
    STYLES.iter().for_each(|style| check(style, "conv", &spec));
}

#[test]
fn gradients_in_the_text_encoder_equal_those_of_peft() {
    STYLES.iter().for_each(|style| check(style, "text", &AdapterSpec { unet: false, text_encoder: true, ..spec() }));
}
