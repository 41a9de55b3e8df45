//! Fills a micro-batch: which pictures, their latents, noise, timesteps and text. A pure function of (seed, number of the micro-batch).

use crate::encode::Caches;
use crate::latents;
use crate::prepare::Prepared;
use crate::programs::TextSide;
use crate::step::{Batch, Form, Text};
use crate::text;
use anyhow::{Context, Result};
use base::Rng;
use data::decode::Rgb;
use engine::Session;

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
    batch.timesteps.clear();
    batch.weights.clear();
    let mut open = Open::default();
    clear(&mut batch.text, run.text);
    for (i, picked) in picked.items.iter().enumerate() {
        let (range, position) = (i * item..(i + 1) * item, i as u64);
        batch.weights.push(1.0);
        let view = (picked.item, picked.flip);
        if caches.is_lost(run.dataset.items[picked.item].entry) {
            batch.weights[i] = 0.0;
        } else if run.is_cached(&run.dataset.items[picked.item]) {
            let mut rng = latent_rng(seed, number, i);
            caches.latents.sample(&run.dataset, view, &mut rng, &mut batch.latents[range.clone()])?;
        } else {
            match run.dataset.pixels(view.0, view.1) {
                Ok(picture) => open.pictures.push((i, picture)),
                Err(error) => {
                    batch.weights[i] = 0.0;
                    open.failed.push((picked.item, error));
                }
            }
        }
        diffusion::noise::training_noise(seed, number, position, channels, train.noise_offset as f32, &mut batch.noise[range]);
        batch.timesteps.push(diffusion::timesteps::uniform(seed, number, position, train.min_timestep..=train.max_timestep));
        let caption = run.dataset.caption(picked.item, seed, epoch, picked.occurrence);
        let chunks = run.text.chunks();
        match &mut batch.text {
            Text::Context(context) => caches.texts.append(&caption, chunks, context),
            Text::Ids(ids) => text::ids(&run.model, &caption, chunks, ids),
        }
        .with_context(|| format!("the caption of {}", run.dataset.entry(picked.item).picture.file))?;
    }
    let mut rng = Rng::new(seed, "dropout", &[number]);
    batch.dropout_seed = [rng.next_u32(), rng.next_u32()];
    spread_weights(&mut batch.weights);
    Ok(open)
}

/// The numbers that an item's sample of its latents is drawn with.
fn latent_rng(seed: u64, number: u64, position: usize) -> Rng {
    Rng::new(seed, "latent sample", &[number, position as u64])
}

/// A program takes the mean over its items: those that are there share what the others leave.
fn spread_weights(weights: &mut [f32]) {
    let there = weights.iter().filter(|weight| **weight != 0.0).count();
    if there > 0 && there < weights.len() {
        let share = weights.len() as f32 / there as f32;
        weights.iter_mut().for_each(|weight| *weight *= share);
    }
}

/// Encodes the pictures that a micro-batch was filled without, and draws from them as from cached ones.
pub fn encode(run: &Prepared, number: u64, pictures: &[(usize, Rgb)], session: &mut Session, batch: &mut Batch) -> Result<()> {
    let item = batch.latents.len() / batch.form.batch.max(1);
    for (position, picture) in pictures {
        let moments = latents::encode(&[picture], &run.model, session)?;
        let out = &mut batch.latents[position * item..(position + 1) * item];
        let mut rng = latent_rng(run.config.seed, number, *position);
        moments.first().and_then(|moments| latents::draw(moments, &mut rng, out)).context("the VAE's encoder gave no moments")?;
    }
    Ok(())
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
        timesteps: Vec::new(),
        weights: Vec::new(),
        text: Text::Context(Vec::new()),
        dropout_seed: [0; 2],
    }
}
