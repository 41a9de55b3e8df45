//! A whole Stable Diffusion 1.x or 2.x: the configs of its three parts, from a checkpoint's JSON where it has some, else from shapes.

use crate::adapters::{Adapters, Module};
use crate::clip::{self, ClipConfig};
use crate::layers::Net;
use crate::shapes::Shapes;
use crate::unet::{self, UnetConfig};
use crate::vae::{self, VaeConfig};
use anyhow::{Context, Result, ensure};
use base::DType;
use graph::{Builder, Graph};
use weights::{Checkpoint, Family};

#[derive(Clone, Debug, PartialEq)]
pub struct StableDiffusion {
    pub family: Family,
    pub unet: UnetConfig,
    pub vae: VaeConfig,
    pub text_encoder: ClipConfig,
}

impl StableDiffusion {
    /// Reads the configs, and checks that the checkpoint has every tensor that they describe, in its shape.
    pub fn of_checkpoint(checkpoint: &Checkpoint) -> Result<StableDiffusion> {
        checkpoint.ensure_supported()?;
        let (shapes, family) = (Shapes::of_checkpoint(checkpoint), checkpoint.family());
        let unet = match checkpoint.config("unet") {
            Some(json) => UnetConfig::from_json(json),
            None => UnetConfig::from_shapes(&shapes, family),
        };
        let vae = match checkpoint.config("vae") {
            Some(json) => VaeConfig::from_json(json),
            None => VaeConfig::from_shapes(&shapes),
        };
        let text_encoder = match checkpoint.config("text_encoder") {
            Some(json) => ClipConfig::from_json(json),
            None => ClipConfig::from_shapes(&shapes, family),
        };
        let place = || format!("the model {}", checkpoint.path().display());
        let model = StableDiffusion {
            family,
            unet: unet.with_context(place)?,
            vae: vae.with_context(place)?,
            text_encoder: text_encoder.with_context(place)?,
        };
        model.check_parts_fit().with_context(place)?;
        model.check_tensors(&shapes)?;
        Ok(model)
    }

    /// Keys of the configs that this version does not know, with their file: worth a warning.
    pub fn unknown_keys(&self) -> Vec<String> {
        let of = |file: &str, keys: &[String]| keys.iter().map(|key| format!("{file}/config.json: {key}")).collect::<Vec<_>>();
        [of("unet", &self.unet.unknown_keys), of("vae", &self.vae.unknown_keys)].concat()
    }

    /// Every linear layer and convolution of the UNet and of the text encoder (up to the layer that `clip_skip` leaves).
    pub fn modules(&self, clip_skip: usize) -> Result<Vec<Module>> {
        self.text_encoder.check_clip_skip(clip_skip)?;
        let unet = self.forward_of(Part::Unet).1;
        let (_, text) = build(|net| {
            let ids = clip::ids_input(net, 1, 1);
            clip::forward(net, &self.text_encoder, ids, clip_skip);
        });
        Ok([unet, text].concat())
    }

    /// Modules of every part, the autoencoder included, with all layers.
    pub fn all_modules(&self) -> Vec<Module> {
        Part::ALL.into_iter().flat_map(|part| self.forward_of(part).1).collect()
    }

    /// One small graph for each part: what weights the model has.
    pub fn graphs(&self) -> Vec<Graph> {
        Part::ALL.into_iter().map(|part| self.forward_of(part).0).collect()
    }

    fn forward_of(&self, part: Part) -> (Graph, Vec<Module>) {
        build(|net| match part {
            Part::Unet => {
                let size = 1 << (self.unet.blocks() - 1);
                let inputs = unet::inputs(net, &self.unet, 1, [size; 2], 1);
                unet::forward(net, &self.unet, inputs);
            }
            Part::Encoder => {
                let pixels = vae::pixels_input(net, &self.vae, 1, [self.vae.factor(); 2]);
                vae::encode(net, &self.vae, pixels);
            }
            Part::Decoder => {
                let latents = vae::latents_input(net, &self.vae, 1, [1; 2]);
                vae::decode(net, &self.vae, latents);
            }
            Part::TextEncoder => {
                let ids = clip::ids_input(net, 1, 1);
                clip::forward(net, &self.text_encoder, ids, 1);
            }
        })
    }

    fn check_parts_fit(&self) -> Result<()> {
        let (text, context) = (self.text_encoder.hidden_size, self.unet.cross_attention_dim);
        ensure!(text == context, "the text encoder gives {text} channels, but the UNet reads {context}");
        let (latents, vae) = (self.unet.in_channels, self.vae.latent_channels);
        ensure!(latents == vae, "the VAE has {vae} latent channels, but the UNet reads {latents}");
        ensure!(self.unet.out_channels == latents, "the UNet reads {latents} channels, but writes {}", self.unet.out_channels);
        Ok(())
    }

    fn check_tensors(&self, shapes: &Shapes) -> Result<()> {
        self.graphs().iter().try_for_each(|graph| shapes.check(graph))
    }
}

#[derive(Clone, Copy)]
enum Part {
    Unet,
    Encoder,
    Decoder,
    TextEncoder,
}

impl Part {
    const ALL: [Part; 4] = [Part::Unet, Part::Encoder, Part::Decoder, Part::TextEncoder];
}

/// A graph without adapters, for its leaves and modules.
fn build(body: impl FnOnce(&mut Net)) -> (Graph, Vec<Module>) {
    let mut b = Builder::new(DType::F32, Box::new(|_| DType::F32));
    let adapters = Adapters::none();
    let mut net = Net::new(&mut b, &adapters);
    body(&mut net);
    let modules = net.modules;
    (b.finish(), modules)
}
