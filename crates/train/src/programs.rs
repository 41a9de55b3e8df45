//! The graphs of a run: training at one batch shape, the UNet alone for samples, the VAE both ways, the text encoder.

use crate::model::Model;
use crate::recompute::Forward;
use crate::source::Stored;
use crate::step::Form;
use base::DType;
use graph::ops::{self, LossInputs};
use graph::{Builder, Graph, ValueId};
use models::{Adapters, Net, clip, unet, vae};
use std::sync::Arc;

/// Where a training program's text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextSide {
    /// Embeddings from the cache: so many chunks for each item.
    Cached { chunks: usize },
    /// Token ids through the text encoder, which is part of the program.
    Encoded { chunks: usize },
}

impl TextSide {
    pub fn chunks(self) -> usize {
        match self {
            TextSide::Cached { chunks } | TextSide::Encoded { chunks } => chunks,
        }
    }
}

/// A builder that stores the model's matrices as the run wants them.
fn builder(model: &Model, activations: DType, stored: Stored) -> Builder {
    let source = Arc::clone(&model.source);
    Builder::new(activations, Box::new(move |name| source.stored_dtype(name, stored, activations)))
}

/// The form of a program that sees noisy latents and text, and the type that it computes in.
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    pub form: Form,
    pub text: TextSide,
    /// f32, bf16 or f16.
    pub activations: DType,
}

/// The prediction at the inputs `latents` (noisy), `timestep`, and `context` or `ids`.
fn predict(net: &mut Net, model: &Model, frame: Frame) -> ValueId {
    let (config, form) = (&model.parts.unet, frame.form);
    let latents = net.b.input("latents", [form.batch, form.size[0], form.size[1], config.in_channels], DType::F32);
    let timestep = net.b.input("timestep", [form.batch], DType::F32);
    let context = context(net, model, form.batch, frame.text);
    unet::forward(net, config, unet::Inputs { latents, timestep, context })
}

/// The frozen model's prediction, without adapters, text encoder included. Inputs as [`predict`]. Output: `prediction`.
pub fn frozen(model: &Model, frame: Frame) -> Graph {
    let mut b = builder(model, frame.activations, model.stored);
    let adapters = Adapters::none();
    let mut net = Net::new(&mut b, &adapters);
    let prediction = predict(&mut net, model, frame);
    b.output("prediction", prediction);
    b.finish()
}

/// Forward and loss for one form. Inputs beside those of [`predict`]: `target`, `weight` and, as the loss has them,
/// `threshold` and `mask`; and the dropout seed if adapters drop. Output: `loss`.
pub fn training(model: &Model, adapters: &Adapters, frame: Frame, error: ops::Loss) -> Forward {
    let mut b = builder(model, frame.activations, model.stored);
    let mut net = Net::new(&mut b, adapters);
    let prediction = predict(&mut net, model, frame);
    let [batch, height, width] = [frame.form.batch, frame.form.size[0], frame.form.size[1]];
    let target = net.b.input("target", net.b.shape(prediction).clone(), DType::F32);
    let weight = net.b.input("weight", [batch], DType::F32);
    let threshold = error.has_threshold().then(|| net.b.input("threshold", [batch], DType::F32));
    let mask = error.masked.then(|| net.b.input("mask", [batch, height, width, 1], DType::F32));
    let [loss, _] = net.b.loss(error.error, LossInputs { pred: prediction, target, weight, threshold, mask });
    b.output("loss", loss);
    Forward { form: frame.form, graph: b.finish(), loss }
}

fn context(net: &mut Net, model: &Model, batch: usize, text: TextSide) -> ValueId {
    let config = &model.parts.text_encoder;
    let (length, width) = (config.max_positions, config.hidden_size);
    match text {
        TextSide::Cached { chunks } => net.b.input("context", [batch, chunks * length, width], DType::F32),
        TextSide::Encoded { chunks } => {
            let ids = clip::ids_input(net, batch * chunks, length);
            let states = clip::forward(net, config, ids, model.clip_skip);
            net.b.reshape(states, [batch, chunks * length, width])
        }
    }
}

/// The UNet's prediction. Inputs: `latents`, `timestep`, `context`. Output: `prediction`.
pub fn denoise(model: &Model, adapters: &Adapters, form: Form, chunks: usize, activations: DType) -> Graph {
    let mut b = builder(model, activations, model.stored);
    let mut net = Net::new(&mut b, adapters);
    let inputs = unet::inputs(&mut net, &model.parts.unet, form.batch, form.size, chunks * model.parts.text_encoder.max_positions);
    let prediction = unet::forward(&mut net, &model.parts.unet, inputs);
    b.output("prediction", prediction);
    b.finish()
}

/// The text encoder on `batch` chunks. Input: `ids`. Output: `states` in f32.
pub fn text(model: &Model, adapters: &Adapters, batch: usize, activations: DType, stored: Stored) -> Graph {
    let mut b = builder(model, activations, stored);
    let mut net = Net::new(&mut b, adapters);
    let ids = clip::ids_input(&mut net, batch, model.parts.text_encoder.max_positions);
    let states = clip::forward(&mut net, &model.parts.text_encoder, ids, model.clip_skip);
    let states = net.b.cast(states, DType::F32);
    b.output("states", states);
    b.finish()
}

/// The VAE's encoder on `batch` pictures (or tiles) of `size` latent pixels. Input: `pixels`. Output: `moments`. In f32: half precision
/// overflows in some VAEs, and it runs once for each picture.
pub fn encoder(model: &Model, batch: usize, size: [usize; 2]) -> Graph {
    let mut b = builder(model, DType::F32, Stored::default());
    let adapters = Adapters::none();
    let mut net = Net::new(&mut b, &adapters);
    let pixels = vae::pixels_input(&mut net, &model.parts.vae, batch, size.map(|side| side * model.factor()));
    let moments = vae::encode(&mut net, &model.parts.vae, pixels);
    b.output("moments", moments);
    b.finish()
}

/// The VAE's decoder on one picture (or tile) of `size` latent pixels. Input: `latents`. Output: `pixels`. In f32.
pub fn decoder(model: &Model, size: [usize; 2]) -> Graph {
    let mut b = builder(model, DType::F32, Stored::default());
    let adapters = Adapters::none();
    let mut net = Net::new(&mut b, &adapters);
    let latents = vae::latents_input(&mut net, &model.parts.vae, 1, size);
    let pixels = vae::decode(&mut net, &model.parts.vae, latents);
    b.output("pixels", pixels);
    b.finish()
}
