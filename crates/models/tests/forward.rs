//! Forward of every part against PyTorch (diffusers, transformers), run by the oracle in f32.
#![allow(clippy::unwrap_used)]

mod common;

use common::{Golden, Model, STYLES, assert_close, builder};
use graph::Array;
use std::collections::HashMap;
use velatura_models::{Adapters, Net, clip, unet, vae};

const LIMIT: f64 = 1e-4;

fn given<const N: usize>(values: [(&str, Array); N]) -> HashMap<String, Array> {
    values.map(|(name, array)| (name.to_owned(), array)).into()
}

#[test]
fn text_states_equal_those_of_transformers_with_and_without_clip_skip() {
    for style in STYLES {
        let (model, golden) = (Model::open(style), Golden::open(&format!("{style}/clip.safetensors")));
        let ids = golden.array("ids");
        for (clip_skip, expected) in [(1, "last_hidden_state"), (2, "clip_skip_2")] {
            let (mut b, adapters) = (builder(), Adapters::none());
            let mut net = Net::new(&mut b, &adapters);
            let input = clip::ids_input(&mut net, ids.shape.dims()[0], ids.shape.dims()[1]);
            let states = clip::forward(&mut net, &model.config.text_encoder, input, clip_skip);
            b.output("states", states);
            let run = model.run(&b.finish(), &given([("ids", ids.clone())]));
            assert_close(&format!("{style} {expected}"), run.output("states"), &golden.array(expected), LIMIT);
        }
    }
}

fn check_unet(model: &Model, golden: &Golden, case: usize) {
    let part = |name: &str| golden.array(&format!("case{case}.{name}"));
    let (latents, context) = (part("latent"), part("context"));
    let dims = latents.shape.dims();
    let (mut b, adapters) = (builder(), Adapters::none());
    let mut net = Net::new(&mut b, &adapters);
    let inputs = unet::inputs(&mut net, &model.config.unet, dims[0], [dims[1], dims[2]], context.shape.dims()[1]);
    let prediction = unet::forward(&mut net, &model.config.unet, inputs);
    b.output("prediction", prediction);
    let values = given([("latents", latents.clone()), ("timestep", part("timesteps")), ("context", context)]);
    let run = model.run(&b.finish(), &values);
    assert_close(&format!("{} case {case}", model.style), run.output("prediction"), &part("output"), LIMIT);
}

#[test]
fn the_unet_predicts_what_diffusers_predicts() {
    for style in STYLES {
        let (model, golden) = (Model::open(style), Golden::open(&format!("{style}/unet.safetensors")));
        (0..3).for_each(|case| check_unet(&model, &golden, case));
    }
}

#[test]
fn the_unet_handles_sizes_that_do_not_halve_evenly() {
    let (model, golden) = (Model::open("sd2"), Golden::beside("unet_odd_sizes.safetensors"));
    (0..2).for_each(|case| check_unet(&model, &golden, case));
}

#[test]
fn the_autoencoder_encodes_and_decodes_as_diffusers() {
    for style in STYLES {
        let (model, golden) = (Model::open(style), Golden::open(&format!("{style}/vae.safetensors")));
        let adapters = Adapters::none();
        let pixels = golden.array("pixels");
        let dims = pixels.shape.dims();
        let mut b = builder();
        let mut net = Net::new(&mut b, &adapters);
        let input = vae::pixels_input(&mut net, &model.config.vae, dims[0], [dims[1], dims[2]]);
        let moments = vae::encode(&mut net, &model.config.vae, input);
        let channels = model.config.vae.latent_channels;
        for (name, start) in [("mean", 0), ("logvar", channels)] {
            let part = b.slice(moments, start, channels);
            b.output(name, part);
        }
        let run = model.run(&b.finish(), &given([("pixels", pixels.clone())]));
        for name in ["mean", "logvar"] {
            assert_close(&format!("{style} {name}"), run.output(name), &golden.array(name), LIMIT);
        }

        let latents = golden.array("latent");
        let dims = latents.shape.dims();
        let mut b = builder();
        let mut net = Net::new(&mut b, &adapters);
        let input = vae::latents_input(&mut net, &model.config.vae, dims[0], [dims[1], dims[2]]);
        let decoded = vae::decode(&mut net, &model.config.vae, input);
        b.output("decoded", decoded);
        let run = model.run(&b.finish(), &given([("latents", latents.clone())]));
        assert_close(&format!("{style} decoded"), run.output("decoded"), &golden.array("decoded"), LIMIT);
    }
}
