//! Fills a micro-batch: which pictures, their latents, noise, timesteps and text. A pure function of (seed, number of the micro-batch).

use crate::encode::Caches;
use crate::latents;
use crate::prepare::Prepared;
use crate::programs::TextSide;
use crate::step::{Batch, Form, Text};
use crate::text;
use anyhow::{Context, Result};
use base::Rng;

/// Writes the micro-batch number `number` (counted over the whole run) into `batch`, whose vectors are reused.
pub fn fill(run: &Prepared, caches: &Caches, epoch: u64, number: u64, picked: &data::Batch, batch: &mut Batch) -> Result<()> {
    let (seed, train) = (run.config.seed, &run.config.train);
    let channels = run.model.parts.unet.in_channels;
    batch.form = Form { batch: picked.items.len(), size: latents::latent_size(&run.model, picked.bucket) };
    let item = batch.form.size[0] * batch.form.size[1] * channels;
    batch.latents.resize(item * picked.items.len(), 0.0);
    batch.noise.resize(item * picked.items.len(), 0.0);
    batch.timesteps.clear();
    clear(&mut batch.text, run.text);
    for (i, picked) in picked.items.iter().enumerate() {
        let (range, position) = (i * item..(i + 1) * item, i as u64);
        let mut rng = Rng::new(seed, "latent sample", &[number, position]);
        caches.latents.sample(&run.dataset, (picked.item, picked.flip), &mut rng, &mut batch.latents[range.clone()])?;
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
        text: Text::Context(Vec::new()),
        dropout_seed: [0; 2],
    }
}
