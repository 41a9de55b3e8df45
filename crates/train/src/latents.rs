//! Latents of a run's pictures: the VAE's means and spreads, encoded once and cached; every step draws its own sample of them.

use crate::model::Model;
use anyhow::{Context, Result};
use base::{DType, Rng, Shape};
use data::cache::{Cache, Entry, Key};
use data::{Bucket, Dataset, pixels};
use engine::Session;
use engine::session::Data;
use models::vae::tiling::{self, Map, Tiles, Tiling};

/// A picture of the dataset, mirrored or not.
pub type View = (usize, bool);

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

    fn key(&self, dataset: &Dataset, (item, flip): View) -> Key {
        Key::latents(&dataset.entry(item).picture.content, dataset.look(item, flip), &self.identity, DType::F32)
    }

    pub fn has(&self, dataset: &Dataset, view: View) -> bool {
        self.cache.get(&self.key(dataset, view)).is_some()
    }

    /// Counts and keeps the moments of a view, encoding `pixels` if they are not there yet.
    pub fn encode(&self, dataset: &Dataset, view: View, rgb: &data::decode::Rgb, model: &Model, session: &mut Session) -> Result<()> {
        let entry = self.cache.get_or_encode(&self.key(dataset, view), || encode(rgb, model, session));
        entry.with_context(|| format!("the latents of {} can't be made", dataset.entry(view.0).picture.file))?;
        Ok(())
    }

    /// Counts an entry that is there.
    pub fn count_reuse(&self, dataset: &Dataset, view: View) -> Result<()> {
        self.cache
            .get_or_encode(&self.key(dataset, view), || anyhow::bail!("a cache entry disappeared while the run started; start again"))?;
        Ok(())
    }

    /// Number of different latents: two files of one content share theirs.
    pub fn distinct(&self, dataset: &Dataset) -> usize {
        dataset.views().into_iter().map(|view| self.key(dataset, view)).collect::<std::collections::BTreeSet<_>>().len()
    }

    /// Writes a sample of a view's latents to `out`: mean + spread · N(0, 1), drawn from `rng`.
    pub fn sample(&self, dataset: &Dataset, view: View, rng: &mut Rng, out: &mut [f32]) -> Result<()> {
        let entry = self.cache.get(&self.key(dataset, view));
        let parts = entry.as_ref().and_then(|e| Some((e.tensor("mean")?.1, e.tensor("spread")?.1)));
        let (mean, spread) = parts.with_context(|| {
            format!("the latents of {} are gone from the cache; start the run again to make them anew", dataset.entry(view.0).picture.file)
        })?;
        for ((out, mean), spread) in out.iter_mut().zip(mean).zip(spread) {
            *out = mean + spread * rng.normal();
        }
        Ok(())
    }
}

/// Moments of one picture, in the units that the UNet is trained in.
fn encode(rgb: &data::decode::Rgb, model: &Model, session: &mut Session) -> Result<Entry> {
    let vae = &model.parts.vae;
    let picture = Map { height: rgb.height as usize, width: rgb.width as usize, channels: 3, data: pixels::to_f32(rgb) };
    let factor = model.factor();
    let moments = tiling::encode(&picture, factor, ENCODER_TILING, &mut |tile| {
        let size = [tile.height / factor, tile.width / factor];
        let program = session.find(&program_name(size)).context("an encoder was planned for every bucket")?;
        session.run(program, &[("pixels", Data::F32(&tile.data))])?;
        Ok(Map { height: size[0], width: size[1], channels: 2 * vae.latent_channels, data: session.output(program, "moments")? })
    })?;
    let channels = vae.latent_channels;
    let shape = Shape::from([moments.height, moments.width, channels]);
    let part = |first: usize, f: &dyn Fn(f32) -> f32| -> Vec<f32> {
        moments.data.chunks_exact(2 * channels).flat_map(|pixel| pixel[first..first + channels].iter().map(|v| f(*v))).collect()
    };
    let mean = part(0, &|mean| (mean - vae.shift_factor) * vae.scaling_factor);
    // Clamped as diffusers' DiagonalGaussianDistribution does.
    let spread = part(channels, &|logvar| (0.5 * logvar.clamp(-30.0, 20.0)).exp() * vae.scaling_factor);
    Ok(Entry { tensors: vec![("mean".into(), shape.clone(), mean), ("spread".into(), shape, spread)] })
}

/// Name of the encoder program for tiles of `size` latent pixels.
pub fn program_name(size: [usize; 2]) -> String {
    format!("encode {}x{}", size[1], size[0])
}
