//! The base model of a run, opened: configs, tokenizer and noise schedule, but no weights yet.

use crate::source::{Source, Stored};
use anyhow::{Context, Result, bail, ensure};
use config::{ModelConfig, Prediction as Wanted};
use diffusion::{NoiseSchedule, Prediction, SchedulerConfig};
use models::clip::Padding;
use models::{ClipTokenizer, StableDiffusion, VaeConfig};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::Arc;
use weights::{Checkpoint, Family};

/// What a run knows of its base model before it loads weights.
pub struct Model {
    pub source: Arc<Source>,
    pub parts: StableDiffusion,
    pub tokenizer: ClipTokenizer,
    pub schedule: NoiseSchedule,
    pub clip_skip: usize,
    pub stored: Stored,
    pub warnings: Vec<String>,
}

impl Model {
    /// Opens `path` (a folder or a file) with the settings of `config`.
    pub fn open(path: &Path, vae_path: Option<&Path>, config: &ModelConfig) -> Result<Model> {
        let checkpoint = Checkpoint::open(path)?;
        let mut parts = StableDiffusion::of_checkpoint(&checkpoint)?;
        check_arch(config, parts.family, path)?;
        parts.text_encoder.check_clip_skip(config.clip_skip)?;
        let mut warnings = Vec::new();
        let unknown = parts.unknown_keys();
        if !unknown.is_empty() {
            warnings
                .push(format!("the model's configs have keys that this version does not know and does not use: {}", unknown.join(", ")));
        }
        let vae = vae_path.map(|path| open_vae(path, &mut parts)).transpose()?;
        let tokenizer = match checkpoint.tokenizer_dir() {
            Some(dir) => ClipTokenizer::from_dir(&dir, &parts.text_encoder)?,
            None => {
                let padding = if parts.family == Family::Sd2 { Padding::Zero } else { Padding::End };
                ClipTokenizer::embedded(padding, &parts.text_encoder)?
            }
        };
        let schedule = schedule(&checkpoint, config, parts.family)?;
        let source = Arc::new(Source::new(checkpoint, vae));
        Ok(Model { source, parts, tokenizer, schedule, clip_skip: config.clip_skip, stored: Stored::by(config), warnings })
    }

    /// Pixels on a side for one latent pixel.
    pub fn factor(&self) -> usize {
        self.parts.vae.factor()
    }

    /// Sides of buckets are multiples of this many pixels, so that every level of the UNet has a whole size.
    pub fn bucket_step(&self) -> usize {
        self.factor() << (self.parts.unet.blocks() - 1)
    }

    /// A quick identity of the UNet, from a few of its tensors: tells another base model, not a changed digit.
    pub fn fingerprint(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for name in ["unet.conv_in.weight", "unet.time_embedding.linear_1.weight", "unet.conv_out.weight"] {
            hash.update(self.source.of(name).tensor(name)?.bytes);
        }
        Ok(hash.finalize().iter().take(8).map(|b| format!("{b:02x}")).collect())
    }
}

fn check_arch(config: &ModelConfig, family: Family, path: &Path) -> Result<()> {
    let Some(arch) = config.arch.as_deref() else { return Ok(()) };
    let wanted = match arch {
        "sd1" => Family::Sd1,
        "sd2" => Family::Sd2,
        other => bail!("model.arch: {other} is not supported by this version"),
    };
    ensure!(wanted == family, "model.arch is {arch}, but {} is {}", path.display(), family.describe());
    Ok(())
}

/// A VAE of its own in place of the model's: a diffusers folder of a model or a VAE, or a file.
fn open_vae(path: &Path, parts: &mut StableDiffusion) -> Result<Checkpoint> {
    let checkpoint = Checkpoint::open(path).context("in model.vae_path")?;
    let shapes = models::Shapes::of_checkpoint(&checkpoint);
    let vae = match checkpoint.config("vae") {
        Some(json) => VaeConfig::from_json(json),
        None => VaeConfig::from_shapes(&shapes),
    };
    let vae = vae.with_context(|| format!("model.vae_path: {} holds no VAE that can be used", path.display()))?;
    ensure!(
        vae.latent_channels == parts.vae.latent_channels && vae.factor() == parts.vae.factor(),
        "model.vae_path: the VAE in {} makes latents of another kind than the model's ({} channels at 1/{} of the size, not {} at 1/{})",
        path.display(),
        vae.latent_channels,
        vae.factor(),
        parts.vae.latent_channels,
        parts.vae.factor()
    );
    parts.vae = vae;
    drop(shapes);
    Ok(checkpoint)
}

/// The noise schedule: from the model's scheduler config, or Stable Diffusion's where a single file has none.
fn schedule(checkpoint: &Checkpoint, config: &ModelConfig, family: Family) -> Result<NoiseSchedule> {
    let wanted = config.prediction_type.map(|wanted| match wanted {
        Wanted::Epsilon => Prediction::Epsilon,
        Wanted::VPrediction => Prediction::Velocity,
    });
    let stated = checkpoint.prediction_type().map(Prediction::parse).transpose()?;
    let prediction = match (wanted, stated, family) {
        (Some(wanted), _, _) => wanted,
        (None, Some(stated), _) => stated,
        (None, None, Family::Sd1) => Prediction::Epsilon,
        (None, None, _) => bail!(
            "{} does not say what its UNet predicts: set model.prediction_type to epsilon (the 512 px base models) or v_prediction (768 px)",
            checkpoint.path().display()
        ),
    };
    let mut scheduler = match checkpoint.scheduler_config() {
        Some(json) => SchedulerConfig::from_json(&json.to_string())?,
        None => SchedulerConfig::stable_diffusion(prediction),
    };
    scheduler.prediction_type = prediction.name().to_string();
    NoiseSchedule::new(&scheduler).with_context(|| format!("the noise schedule of {}", checkpoint.path().display()))
}
