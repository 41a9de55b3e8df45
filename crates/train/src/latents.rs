//! Latents of a run's pictures: the VAE's means and spreads, encoded once and cached; every step draws its own sample of them.

use crate::model::Model;
use crate::prepare::Prepared;
use anyhow::{Context, Result};
use base::{DType, Rng, Shape};
use data::cache::{Cache, Entry, Key};
use data::decode::Rgb;
use data::{Bucket, Dataset, View, pixels};
use engine::Session;
use engine::session::Data;
use models::vae::tiling::{self, Map, Tiles, Tiling};
use std::sync::Arc;

/// The largest stretch that the VAE works on at once. Beyond, pictures go through it in overlapping tiles.
///
/// 1024 pixels (at a factor of 8) hold every usual training size whole.
pub const ENCODER_TILING: Tiling = Tiling { tile: 128, overlap: 16 };

/// Size in latent pixels of what the encoder works on at once for pictures of a bucket.
pub fn tile_size(model: &Model, bucket: Bucket) -> Result<[usize; 2]> {
    Ok(Tiles::new(latent_size(model, bucket), ENCODER_TILING)?.tile_size())
}

/// Height and width of a bucket's latents.
pub fn latent_size(model: &Model, bucket: Bucket) -> [usize; 2] {
    [bucket.height as usize / model.factor(), bucket.width as usize / model.factor()]
}

/// Cached moments, by picture.
pub struct Latents {
    pub cache: Cache,
    identity: String,
}

impl Latents {
    /// `component` identifies the VAE's weights.
    pub fn new(cache: Cache, model: &Model, component: &str) -> Latents {
        let vae = &model.parts.vae;
        let identity = format!("{component} scaling {} shift {} tiles {ENCODER_TILING:?}", vae.scaling_factor, vae.shift_factor);
        Latents { cache, identity }
    }

    pub fn key(&self, dataset: &Dataset, (item, flip): View) -> Key {
        Key::latents(&dataset.entry(item).picture.content, dataset.look(item, flip), &self.identity, DType::F32)
    }

    /// Number of different latents: two files of one content share theirs.
    pub fn distinct(&self, run: &Prepared) -> usize {
        run.cached_views().into_iter().map(|view| self.key(&run.dataset, view)).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// The mean of a view's latents.
    pub fn mean(&self, dataset: &Dataset, view: View) -> Result<Vec<f32>> {
        let entry = self.entry(dataset, view)?;
        Ok(entry.tensor("mean").context("an entry of latents holds no mean")?.1.to_vec())
    }

    fn entry(&self, dataset: &Dataset, view: View) -> Result<Arc<Entry>> {
        self.cache.get(&self.key(dataset, view)).with_context(|| {
            format!("the latents of {} are gone from the cache; start the run again to make them anew", dataset.entry(view.0).picture.file)
        })
    }

    /// Writes a sample of a view's latents to `out`, drawn from `rng`.
    pub fn sample(&self, dataset: &Dataset, view: View, rng: &mut Rng, out: &mut [f32]) -> Result<()> {
        draw(&*self.entry(dataset, view)?, rng, out).context("an entry of latents holds no moments")
    }
}

/// Writes a sample of moments to `out`: mean + spread · N(0, 1). Nothing if the entry holds no moments.
pub fn draw(entry: &Entry, rng: &mut Rng, out: &mut [f32]) -> Option<()> {
    let (mean, spread) = (entry.tensor("mean")?.1, entry.tensor("spread")?.1);
    for ((out, mean), spread) in out.iter_mut().zip(mean).zip(spread) {
        *out = mean + spread * rng.normal();
    }
    Some(())
}

/// Moments of pictures of one size, in the units that the UNet is trained in: together if a program for so many was planned.
pub fn encode(pictures: &[&Rgb], model: &Model, session: &mut Session) -> Result<Vec<Entry>> {
    let Some(first) = pictures.first() else { return Ok(Vec::new()) };
    let size = [first.height as usize / model.factor(), first.width as usize / model.factor()];
    let together = session.find(&program_name(size, pictures.len())).filter(|_| pictures.len() > 1);
    let Some(program) = together else { return pictures.iter().map(|picture| encode_tiled(picture, model, session)).collect() };
    let pixels: Vec<f32> = pictures.iter().flat_map(|picture| pixels::to_f32(picture)).collect();
    session.run(program, &[("pixels", Data::F32(&pixels))])?;
    let moments = session.output(program, "moments")?;
    Ok(moments.chunks_exact(moments.len() / pictures.len()).map(|moments| entry(size, moments, model)).collect())
}

fn encode_tiled(picture: &Rgb, model: &Model, session: &mut Session) -> Result<Entry> {
    let picture = Map { height: picture.height as usize, width: picture.width as usize, channels: 3, data: pixels::to_f32(picture) };
    let factor = model.factor();
    let moments = tiling::encode(&picture, factor, ENCODER_TILING, &mut |tile| {
        let size = [tile.height / factor, tile.width / factor];
        let program = session.find(&program_name(size, 1)).context("an encoder was planned for every bucket")?;
        session.run(program, &[("pixels", Data::F32(&tile.data))])?;
        let data = session.output(program, "moments")?;
        Ok(Map { height: size[0], width: size[1], channels: 2 * model.parts.vae.latent_channels, data })
    })?;
    Ok(entry([moments.height, moments.width], &moments.data, model))
}

/// The encoder's output [h, w, 2C] as mean and spread.
fn entry(size: [usize; 2], moments: &[f32], model: &Model) -> Entry {
    let vae = &model.parts.vae;
    let channels = vae.latent_channels;
    let shape = Shape::from([size[0], size[1], channels]);
    let part = |first: usize, f: &dyn Fn(f32) -> f32| -> Vec<f32> {
        moments.chunks_exact(2 * channels).flat_map(|pixel| pixel[first..first + channels].iter().map(|v| f(*v))).collect()
    };
    let mean = part(0, &|mean| (mean - vae.shift_factor) * vae.scaling_factor);
    // Clamped as diffusers' DiagonalGaussianDistribution does.
    let spread = part(channels, &|logvar| (0.5 * logvar.clamp(-30.0, 20.0)).exp() * vae.scaling_factor);
    Entry { tensors: vec![("mean".into(), shape.clone(), mean), ("spread".into(), shape, spread)] }
}

/// Name of the encoder program for `batch` tiles of `size` latent pixels.
pub fn program_name(size: [usize; 2], batch: usize) -> String {
    let name = format!("encode {}x{}", size[1], size[0]);
    if batch == 1 { name } else { format!("{name} batch {batch}") }
}
