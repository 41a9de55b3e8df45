//! Fills a micro-batch: which pictures, their latents, noise, timesteps and text. A pure function of (seed, number of the micro-batch).

use crate::encode::Caches;
use crate::latents;
use crate::prepare::Prepared;
use crate::programs::TextSide;
use crate::step::{Batch, Form, Preserved, Text};
use crate::text;
use anyhow::{Context, Result};
use base::Rng;
use config::{ContentOrStyle, DatasetConfig, LossConfig, NoiseConfig, TimestepType};
use data::decode::Rgb;
use diffusion::{Distribution, Draw, NoiseShape, Pyramid};
use engine::Session;
use std::ops::Range;

/// What a filled micro-batch still lacks.
#[derive(Default)]
pub struct Open {
    /// Pictures without cached latents, by their position in the batch: the VAE is the session's.
    pub pictures: Vec<(usize, Rgb)>,
    /// Items that couldn't be read, and why. They weigh nothing.
    pub failed: Vec<(usize, anyhow::Error)>,
}

/// Writes the micro-batch number `number` into `batch`, whose vectors are reused.
pub fn fill(run: &Prepared, caches: &Caches, epoch: u64, number: u64, picked: &data::Batch, batch: &mut Batch) -> Result<Open> {
    let (seed, train) = (run.config.seed, &run.config.train);
    let channels = run.model.parts.unet.in_channels;
    batch.form = Form { batch: picked.items.len(), size: latents::latent_size(&run.model, picked.bucket) };
    let item = batch.form.size[0] * batch.form.size[1] * channels;
    batch.latents.resize(item * picked.items.len(), 0.0);
    batch.noise.resize(item * picked.items.len(), 0.0);
    let pixels = if run.is_masked { batch.form.size[0] * batch.form.size[1] } else { 0 };
    batch.mask.clear();
    batch.mask.resize(pixels * picked.items.len(), 1.0);
    batch.timesteps.clear();
    batch.weights.clear();
    let (mut open, mut missing) = (Open::default(), 0);
    clear(&mut batch.text, run.text);
    clear_preserved(run, &mut batch.preserved);
    batch.mixed.resize(if train.noise.ip_noise_gamma > 0.0 { batch.noise.len() } else { 0 }, 0.0);
    for (i, picked) in picked.items.iter().enumerate() {
        let (range, position) = (i * item..(i + 1) * item, i as u64);
        let draw = Draw { seed, step: number, item: position };
        let of = &run.dataset.items[picked.item];
        let dataset = &run.config.datasets[of.dataset];
        let mut is_there = true;
        let view = (picked.item, picked.flip);
        if caches.is_lost(of.entry) {
            is_there = false;
        } else if run.is_cached(of) {
            let mut rng = latent_rng(seed, number, i);
            caches.latents.sample(&run.dataset, view, &mut rng, &mut batch.latents[range.clone()])?;
        } else {
            match run.dataset.pixels(view.0, view.1) {
                Ok(picture) => open.pictures.push((i, picture)),
                Err(error) => {
                    is_there = false;
                    open.failed.push((picked.item, error));
                }
            }
        }
        if is_there && pixels > 0 {
            caches.masks.weigh(run, view, &mut batch.mask[i * pixels..(i + 1) * pixels])?;
        }
        batch.weights.push(if is_there { weight(&train.loss, dataset) } else { 0.0 });
        missing += usize::from(!is_there);
        draw_noise(&train.noise, draw, range, batch);
        batch.timesteps.push(distribution(&train.noise, dataset).draw(draw, train.noise.min_timestep..=train.noise.max_timestep));
        let caption = run.dataset.caption(picked.item, seed, epoch, picked.occurrence);
        let chunks = run.text.chunks();
        let add = |caption: &str, text: &mut Text| {
            match text {
                Text::Context(context) => caches.texts.append(caption, chunks, context),
                Text::Ids(ids) => text::ids(&run.model, caption, chunks, ids),
            }
            .with_context(|| format!("the caption of {}", run.dataset.entry(picked.item).picture.file))
        };
        add(&caption, &mut batch.text)?;
        if let (Some(preserved), Some(caption)) = (&mut batch.preserved, run.preserved(picked.item, &caption)) {
            add(&caption, &mut preserved.text)?;
            // Regularisation pictures hold the class to what they show.
            preserved.weights.push(if dataset.is_reg || !is_there { 0.0 } else { 1.0 });
        }
    }
    let mut rng = Rng::new(seed, "dropout", &[number]);
    batch.dropout_seed = [rng.next_u32(), rng.next_u32()];
    spread_weights(&mut batch.weights, missing);
    Ok(open)
}

/// The noise of one item, whose latents are there unless the VAE still has to encode them.
fn draw_noise(config: &NoiseConfig, draw: Draw, range: Range<usize>, batch: &mut Batch) {
    let (latent, noise) = (&batch.latents[range.clone()], &mut batch.noise[range.clone()]);
    diffusion::noise::training_noise(draw, batch.form.size, &noise_shape(config), latent, noise);
    if config.ip_noise_gamma > 0.0 {
        diffusion::noise::perturbed(draw, config.ip_noise_gamma as f32, noise, &mut batch.mixed[range]);
    }
}

/// The numbers that an item's sample of its latents is drawn with.
fn latent_rng(seed: u64, number: u64, position: usize) -> Rng {
    Rng::new(seed, "latent sample", &[number, position as u64])
}

/// A program takes the mean over its items: those that are there share what `missing` ones leave.
fn spread_weights(weights: &mut [f32], missing: usize) {
    let there = weights.len() - missing;
    if missing > 0 && there > 0 {
        let share = weights.len() as f32 / there as f32;
        weights.iter_mut().for_each(|weight| *weight *= share);
    }
}

/// Encodes the pictures that a micro-batch was filled without, and draws from them as from cached ones.
pub fn encode(run: &Prepared, number: u64, pictures: &[(usize, Rgb)], session: &mut Session, batch: &mut Batch) -> Result<()> {
    let item = batch.latents.len() / batch.form.batch.max(1);
    for (position, picture) in pictures {
        let moments = latents::encode(&[picture], &run.model, session)?;
        let range = position * item..(position + 1) * item;
        let out = &mut batch.latents[range.clone()];
        let mut rng = latent_rng(run.config.seed, number, *position);
        moments.first().and_then(|moments| latents::draw(moments, &mut rng, out)).context("the VAE's encoder gave no moments")?;
        if run.config.train.noise.adaptive_noise_scale != 0.0 {
            // Drawn before the latents were there.
            let draw = Draw { seed: run.config.seed, step: number, item: *position as u64 };
            draw_noise(&run.config.train.noise, draw, range, batch);
        }
    }
    Ok(())
}

fn noise_shape(noise: &NoiseConfig) -> NoiseShape {
    let pyramid = Pyramid { iterations: noise.multires_noise_iterations, discount: noise.multires_noise_discount as f32 };
    let (offset, adaptive) = (noise.noise_offset as f32, noise.adaptive_noise_scale as f32);
    NoiseShape { offset, adaptive, pyramid: (pyramid.iterations > 0).then_some(pyramid) }
}

/// How the timesteps of a dataset's items are spread.
fn distribution(noise: &NoiseConfig, dataset: &DatasetConfig) -> Distribution {
    let favoured = if dataset.is_reg { noise.content_or_style_reg } else { noise.content_or_style };
    match (noise.timestep_type, favoured) {
        (TimestepType::Sigmoid, _) => Distribution::LogitNormal { mean: noise.logit_mean, std: noise.logit_std },
        (TimestepType::Uniform, ContentOrStyle::Balanced) => Distribution::Uniform,
        (TimestepType::Uniform, ContentOrStyle::Content) => Distribution::Content,
        (TimestepType::Uniform, ContentOrStyle::Style) => Distribution::Style,
    }
}

/// How much the items of a dataset count.
fn weight(loss: &LossConfig, dataset: &DatasetConfig) -> f32 {
    (dataset.loss_multiplier * if dataset.is_reg { loss.reg_weight } else { 1.0 }) as f32
}

/// Empties the text whose prediction is preserved, if one is.
fn clear_preserved(run: &Prepared, preserved: &mut Option<Preserved>) {
    if !run.config.train.loss.diff_output_preservation {
        return;
    }
    let preserved = preserved.get_or_insert_with(|| Preserved { text: Text::Ids(Vec::new()), weights: Vec::new() });
    clear(&mut preserved.text, run.text);
    preserved.weights.clear();
}

/// Empties the text side, keeping its vector.
fn clear(text: &mut Text, side: TextSide) {
    match (&mut *text, side) {
        (Text::Context(context), TextSide::Cached { .. }) => context.clear(),
        (Text::Ids(ids), TextSide::Encoded { .. }) => ids.clear(),
        (_, TextSide::Cached { .. }) => *text = Text::Context(Vec::new()),
        (_, TextSide::Encoded { .. }) => *text = Text::Ids(Vec::new()),
    }
}

/// An empty micro-batch to be filled.
pub fn empty() -> Batch {
    Batch {
        form: Form { batch: 0, size: [0; 2] },
        latents: Vec::new(),
        noise: Vec::new(),
        mixed: Vec::new(),
        timesteps: Vec::new(),
        weights: Vec::new(),
        mask: Vec::new(),
        text: Text::Context(Vec::new()),
        preserved: None,
        dropout_seed: [0; 2],
    }
}
