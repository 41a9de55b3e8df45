//! The loss on pictures that are never trained on. Everything but the adapters is the same each time: the pictures as they are, their
//! captions whole, the mean of their latents, fixed noise, and timesteps spread evenly over those that are trained. So two numbers of a
//! run (or of two runs on the same data) can be compared, which those of the steps can't. It costs forward passes only.

use crate::encode::Caches;
use crate::interrupt::Interrupt;
use crate::latents;
use crate::prepare::Prepared;
use crate::programs::{self, TextSide};
use crate::run_programs::TEXT_PROGRAM;
use crate::step::Form;
use crate::text;
use anyhow::{Context, Result};
use base::Rng;
use data::{Bucket, Role};
use engine::session::Data;
use engine::{Backend, Program, Session};
use std::collections::BTreeSet;

/// Timesteps at which each picture is looked at.
const TIMESTEPS: usize = 4;

/// Items that are set aside, by number.
pub fn items(run: &Prepared) -> Vec<usize> {
    let set_aside = |item: &usize| run.dataset.items[*item].role == Role::Validate;
    (0..run.dataset.items.len()).filter(set_aside).collect()
}

/// The programs that [`loss`] needs.
pub fn plan(run: &Prepared, backend: &dyn Backend) -> Result<Vec<Program>> {
    let buckets: BTreeSet<Bucket> = items(run).into_iter().map(|item| run.dataset.items[item].bucket).collect();
    let (adapters, activations) = (run.sampling_adapters(), run.activations());
    let denoise = |bucket: &Bucket| {
        let form = Form { batch: 1, size: latents::latent_size(&run.model, *bucket) };
        let graph = programs::denoise(&run.model, &adapters.of_component("unet"), form, run.text.chunks(), activations);
        Program::new(name(form.size), graph, backend)
    };
    Ok(buckets.iter().map(denoise).collect())
}

fn name(size: [usize; 2]) -> String {
    format!("validate {}x{}", size[1], size[0])
}

/// Mean squared error of the prediction, weighed by masks as in training, over all pictures and timesteps; none if there are no pictures, or somebody wants to stop.
pub fn loss(run: &Prepared, caches: &Caches, session: &mut Session, interrupt: &Interrupt) -> Result<Option<f64>> {
    let (mut sum, mut count) = (0.0, 0);
    for item in items(run).into_iter().filter(|item| !caches.is_lost(run.dataset.items[*item].entry)) {
        let size = latents::latent_size(&run.model, run.dataset.items[item].bucket);
        let program = session.find(&name(size)).context("a program was planned for every picture that validates")?;
        let clean = caches.latents.mean(&run.dataset, (item, false))?;
        let context = context(run, caches, session, item)?;
        let mut mask = vec![1.0; size[0] * size[1]];
        caches.masks.weigh(run, (item, false), &mut mask)?;
        for place in 0..TIMESTEPS {
            if interrupt.signal().is_some() {
                return Ok(None);
            }
            let (timestep, noise) = (timestep(run, place), noise(run, item, place, clean.len()));
            let (mut noisy, mut target) = (vec![0.0; clean.len()], vec![0.0; clean.len()]);
            run.model.schedule.add_noise(timestep, &clean, &noise, &mut noisy);
            run.model.schedule.target(timestep, &clean, &noise, &mut target);
            let at = [timestep as f32];
            let inputs = [("latents", Data::F32(&noisy)), ("timestep", Data::F32(&at)), ("context", Data::F32(&context))];
            session.run(program, &inputs)?;
            let prediction = session.output(program, "prediction")?;
            sum += error(&prediction, &target, &mask);
            count += 1;
        }
    }
    Ok((count > 0).then(|| sum / f64::from(count)))
}

/// Mean over all numbers of m · d², where m is a weight for each pixel.
fn error(prediction: &[f32], target: &[f32], mask: &[f32]) -> f64 {
    let channels = prediction.len() / mask.len();
    let pixels = prediction.chunks_exact(channels).zip(target.chunks_exact(channels)).zip(mask);
    let square = |(a, b): (&f32, &f32)| (f64::from(*a) - f64::from(*b)).powi(2);
    let sum: f64 = pixels.map(|((a, b), weight)| f64::from(*weight) * a.iter().zip(b).map(square).sum::<f64>()).sum();
    sum / prediction.len() as f64
}

/// The middles of equal stretches of the trained timesteps.
fn timestep(run: &Prepared, place: usize) -> usize {
    let (first, last) = (run.config.train.noise.min_timestep, run.config.train.noise.max_timestep);
    first + (last - first) * (2 * place + 1) / (2 * TIMESTEPS)
}

/// ε of a picture at one of its timesteps: by the picture's content, so that it stays when other pictures come and go.
fn noise(run: &Prepared, item: usize, place: usize, elements: usize) -> Vec<f32> {
    let content = &run.dataset.entry(item).picture.content;
    let word = u64::from_le_bytes(content[..8].try_into().expect("8 bytes"));
    let mut noise = vec![0.0; elements];
    Rng::new(run.config.seed, "validation noise", &[word, place as u64]).fill_normal(&mut noise);
    noise
}

/// The embedding of the whole caption: from the cache, or by the text encoder as it is now.
fn context(run: &Prepared, caches: &Caches, session: &mut Session, item: usize) -> Result<Vec<f32>> {
    let caption = run.dataset.caption_options(item).whole(&run.dataset.entry(item).caption.text);
    let mut context = Vec::new();
    match run.text {
        TextSide::Cached { chunks } => caches.texts.append(&caption, chunks, &mut context)?,
        TextSide::Encoded { chunks } => {
            let mut ids = Vec::new();
            text::ids(&run.model, &caption, chunks, &mut ids)?;
            let program = session.find(TEXT_PROGRAM).context("the text encoder was planned for the pictures that validate")?;
            for chunk in ids.chunks_exact(ids.len() / chunks) {
                session.run(program, &[("ids", Data::U32(chunk))])?;
                context.extend(session.output(program, "states")?);
            }
        }
    }
    Ok(context)
}

#[cfg(test)]
mod tests {
    use super::error;

    #[test]
    fn a_mask_weighs_the_pixels_of_the_error() {
        // Two pixels of two channels: squares 1, 4 and 9, 16.
        let (prediction, target) = ([1.0, 2.0, 3.0, 4.0], [0.0; 4]);
        assert_eq!(error(&prediction, &target, &[1.0, 1.0]), 7.5);
        assert_eq!(error(&prediction, &target, &[2.0, 0.0]), 2.5);
        assert_eq!(error(&prediction, &target, &[0.5, 1.5]), (2.5 + 37.5) / 4.0);
    }
}
