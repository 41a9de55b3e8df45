//! Pictures: noise to latents by a sampler with classifier-free guidance (Ho & Salimans, 2022), latents to pixels by the VAE, PNG with
//! everything that made it in a text chunk.

use crate::model::Model;
use crate::programs;
use crate::step::Form;
use crate::text::Embeddings;
use anyhow::{Context, Result};
use base::DType;
use config::{SamplePrompt, Sampler};
use diffusion::{guidance, sampler};
use engine::session::Data;
use engine::{Backend, Program, Session};
use models::Adapters;
use models::vae::tiling::{self, Map, Tiles, Tiling};
use std::path::Path;

/// The largest stretch that the decoder works on at once: 512 pixels at a factor of 8; beyond, tiles are blended.
const DECODER_TILING: Tiling = Tiling { tile: 64, overlap: 16 };

/// One picture to make, with the number of chunks of its texts.
#[derive(Clone, Debug)]
pub struct Request {
    pub prompt: SamplePrompt,
    pub chunks: usize,
}

impl Request {
    /// Counts the chunks of prompt and negative prompt: both are filled up to the longer one's.
    pub fn new(prompt: SamplePrompt, model: &Model) -> Result<Request> {
        let count = |text: &str| Ok::<_, anyhow::Error>(model.tokenizer.encode(text, crate::text::Chunking::long().most)?.chunks.len());
        let chunks = count(&prompt.prompt)?.max(if guided(&prompt) { count(&prompt.neg)? } else { 1 });
        let step = model.factor() as u32;
        anyhow::ensure!(
            prompt.width.is_multiple_of(step) && prompt.height.is_multiple_of(step),
            "a picture of {}×{} pixels: sides must be multiples of {step}",
            prompt.width,
            prompt.height
        );
        Ok(Request { prompt, chunks })
    }

    /// Texts whose embeddings it needs; the empty text fills up chunks.
    pub fn texts(&self) -> [&str; 3] {
        [&self.prompt.prompt, if guided(&self.prompt) { &self.prompt.neg } else { "" }, ""]
    }

    fn size(&self, model: &Model) -> [usize; 2] {
        [self.prompt.height as usize / model.factor(), self.prompt.width as usize / model.factor()]
    }

    fn form(&self, model: &Model) -> Form {
        Form { batch: if guided(&self.prompt) { 2 } else { 1 }, size: self.size(model) }
    }
}

/// Whether the negative prompt takes part: at a scale of 1 or less diffusers leaves it out too.
fn guided(prompt: &SamplePrompt) -> bool {
    prompt.guidance_scale > 1.0
}

fn denoise_name(form: Form, chunks: usize) -> String {
    format!("sample {}x{} batch {} chunks {chunks}", form.size[1], form.size[0], form.batch)
}

fn decode_name(tile: [usize; 2]) -> String {
    format!("decode {}x{}", tile[1], tile[0])
}

/// The programs that `requests` need, each once.
pub fn plan(model: &Model, adapters: &Adapters, requests: &[Request], activations: DType, backend: &dyn Backend) -> Result<Vec<Program>> {
    let mut programs: Vec<Program> = Vec::new();
    let known = |programs: &[Program], name: &str| programs.iter().any(|p| p.name == name);
    for request in requests {
        let form = request.form(model);
        let name = denoise_name(form, request.chunks);
        if !known(&programs, &name) {
            programs.push(Program::new(name, programs::denoise(model, adapters, form, request.chunks, activations), backend));
        }
        let tile = Tiles::new(form.size, DECODER_TILING)?.tile_size();
        if !known(&programs, &decode_name(tile)) {
            programs.push(Program::new(decode_name(tile), programs::decoder(model, tile), backend));
        }
    }
    Ok(programs)
}

/// A finished picture.
pub struct Picture {
    pub width: u32,
    pub height: u32,
    /// RGB, a byte a channel.
    pub pixels: Vec<u8>,
    /// What made it, as a line of text in the form that other programs read.
    pub parameters: String,
}

/// The start noise of a request: [h, w, channels], a function of its seed and size.
pub fn noise(model: &Model, request: &Request) -> Vec<f32> {
    let [height, width] = request.size(model);
    let mut noise = vec![0.0; height * width * model.parts.unet.in_channels];
    diffusion::noise::sample_noise(request.prompt.seed, &mut noise);
    noise
}

/// Makes a picture with a session that holds the programs of [`plan`].
pub fn draw(session: &mut Session, model: &Model, texts: &Embeddings, request: &Request, kind: Sampler, noise: &[f32]) -> Result<Picture> {
    let prompt = &request.prompt;
    let form = request.form(model);
    let mut context = Vec::new();
    if guided(prompt) {
        texts.append(&prompt.neg, request.chunks, &mut context)?;
    }
    texts.append(&prompt.prompt, request.chunks, &mut context)?;
    let name = match kind {
        Sampler::Ddim => "ddim",
        Sampler::Euler => "euler",
    };
    let sampler = sampler::build(name, &model.schedule, prompt.sample_steps)?;
    let program = session.find(&denoise_name(form, request.chunks)).context("a program was planned for every sample")?;
    let mut x = noise.to_vec();
    sampler.init_noise(&mut x);
    let mut input = vec![0.0; x.len() * form.batch];
    let mut output = vec![0.0; x.len() * form.batch];
    let mut prediction = vec![0.0; x.len()];
    for (i, t) in sampler.timesteps().iter().enumerate() {
        let (first, rest) = input.split_at_mut(x.len());
        sampler.scale_input(i, &x, first);
        rest.copy_from_slice(&first[..rest.len()]);
        let timesteps = vec![*t; form.batch];
        let inputs = [("latents", Data::F32(&input)), ("timestep", Data::F32(&timesteps)), ("context", Data::F32(&context))];
        session.run(program, &inputs)?;
        session.read_output(program, "prediction", &mut output)?;
        if guided(prompt) {
            let (negative, positive) = output.split_at(x.len());
            guidance::combine(negative, positive, prompt.guidance_scale as f32, &mut prediction);
            sampler.step(i, &prediction, &mut x);
        } else {
            sampler.step(i, &output, &mut x);
        }
    }
    anyhow::ensure!(x.iter().all(|v| v.is_finite()), "the sample's latents are not finite");
    let pixels = decode(session, model, form.size, &x)?;
    Ok(Picture { width: prompt.width, height: prompt.height, pixels, parameters: parameters(prompt, name) })
}

fn decode(session: &mut Session, model: &Model, size: [usize; 2], latents: &[f32]) -> Result<Vec<u8>> {
    let vae = &model.parts.vae;
    let data = latents.iter().map(|v| v / vae.scaling_factor + vae.shift_factor).collect();
    let map = Map { height: size[0], width: size[1], channels: vae.latent_channels, data };
    let factor = model.factor();
    let picture = tiling::decode(&map, factor, DECODER_TILING, &mut |tile| {
        let program = session.find(&decode_name([tile.height, tile.width])).context("a decoder was planned for every sample")?;
        session.run(program, &[("latents", Data::F32(&tile.data))])?;
        Ok(Map { height: tile.height * factor, width: tile.width * factor, channels: 3, data: session.output(program, "pixels")? })
    })?;
    anyhow::ensure!(picture.data.iter().all(|v| v.is_finite()), "the sample's pixels are not finite");
    Ok(picture.data.iter().map(|v| ((v / 2.0 + 0.5).clamp(0.0, 1.0) * 255.0).round() as u8).collect())
}

/// The settings in the form that Stable Diffusion front ends read out of PNG files.
fn parameters(prompt: &SamplePrompt, sampler: &str) -> String {
    let negative = if prompt.neg.is_empty() { String::new() } else { format!("Negative prompt: {}\n", prompt.neg) };
    format!(
        "{}\n{negative}Steps: {}, Sampler: {}, CFG scale: {}, Seed: {}, Size: {}x{}, Version: velatura {}",
        prompt.prompt,
        prompt.sample_steps,
        if sampler == "ddim" { "DDIM" } else { "Euler" },
        prompt.guidance_scale,
        prompt.seed,
        prompt.width,
        prompt.height,
        env!("CARGO_PKG_VERSION")
    )
}

/// Writes a PNG with its settings in a text chunk.
pub fn write_png(path: &Path, picture: &Picture) -> Result<()> {
    base::fs::write_atomic(path, &png_bytes(picture)?)
}

fn png_bytes(picture: &Picture) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, picture.width, picture.height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    if !picture.parameters.is_empty() {
        encoder.add_itxt_chunk("parameters".into(), picture.parameters.clone()).context("can't write the settings into the PNG")?;
    }
    let mut writer = encoder.write_header().context("can't write the PNG's header")?;
    writer.write_image_data(&picture.pixels).context("can't write the PNG's pixels")?;
    writer.finish().context("can't finish the PNG")?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_png_holds_its_pixels_and_its_settings_in_any_script() {
        let picture = Picture { width: 2, height: 1, pixels: vec![255, 0, 0, 1, 2, 3], parameters: "一只猫\nSteps: 20".into() };
        let bytes = png_bytes(&picture).unwrap();
        let mut reader = png::Decoder::new(std::io::Cursor::new(bytes)).read_info().unwrap();
        let mut pixels = vec![0; 6];
        reader.next_frame(&mut pixels).unwrap();
        assert_eq!(pixels, picture.pixels);
        let text = &reader.info().utf8_text[0];
        assert_eq!((text.keyword.as_str(), text.get_text().unwrap()), ("parameters", picture.parameters));
    }
}
