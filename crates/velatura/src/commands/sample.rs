//! `velatura sample CONFIG` or `velatura sample --model … --lora … --prompt …`: pictures, with or without a LoRA.

use crate::commands::open;
use crate::output;
use crate::terminal::Terminal;
use anyhow::{Context, Result, ensure};
use base::{DType, Shape};
use clap::Args;
use config::{ModelConfig, Prediction, SampleConfig, SamplePrompt, Sampler};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use train::event::{Event, Reporter};
use train::sample::Request;
use train::studio::Studio;
use weights::safetensors::Entry;

#[derive(Args)]
pub struct Arguments {
    /// A training config: its model, its finished LoRA, and the prompts of its `sample` section.
    #[arg(conflicts_with = "model", required_unless_present = "model")]
    config: Option<PathBuf>,
    /// Overrides a key of the config, such as `--set sample.seed=1`. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "config")]
    set: Vec<String>,
    /// A model folder, a checkpoint file, or a Hugging Face id.
    #[arg(long)]
    model: Option<String>,
    /// A LoRA file, in kohya or diffusers layout.
    #[arg(long)]
    lora: Option<PathBuf>,
    /// Strength of the LoRA.
    #[arg(long, default_value_t = 1.0, allow_negative_numbers = true)]
    strength: f32,
    /// A prompt; flags inside it work too (`--n`, `--w`, `--h`, `--d`, `--l`, `--s`). May be given several times.
    #[arg(long)]
    prompt: Vec<String>,
    /// What the pictures should not show.
    #[arg(long)]
    negative: Option<String>,
    #[arg(long)]
    seed: Option<u64>,
    /// Steps of the sampler.
    #[arg(long)]
    steps: Option<usize>,
    #[arg(long)]
    guidance_scale: Option<f64>,
    #[arg(long)]
    width: Option<u32>,
    #[arg(long)]
    height: Option<u32>,
    /// `ddim` or `euler`.
    #[arg(long)]
    sampler: Option<String>,
    /// `epsilon` or `v_prediction`, for checkpoints that don't say.
    #[arg(long)]
    prediction_type: Option<String>,
    /// Layers of the text encoder to leave out at its end, counted from 1.
    #[arg(long)]
    clip_skip: Option<usize>,
    /// Type of the activations: fp32, bf16 or fp16.
    #[arg(long, default_value = "fp32")]
    dtype: String,
    /// Folder for the pictures.
    #[arg(long, default_value = "samples")]
    output: PathBuf,
    /// Write the start noise of the first picture to a safetensors file: `noise`, [1, channels, height, width], f32.
    #[arg(long, value_name = "FILE")]
    save_noise: Option<PathBuf>,
}

/// What to draw with, from either form of the command.
struct Job {
    model: ModelConfig,
    lora: Option<PathBuf>,
    sample: SampleConfig,
    prompts: Vec<SamplePrompt>,
    /// Whether the LoRA was trained on noise up to pure noise, so that pictures begin there too.
    zero_terminal_snr: bool,
}

pub fn run(arguments: Arguments) -> Result<()> {
    arguments.save_noise.iter().try_for_each(|path| output::ensure_new("--save-noise", path))?;
    let mut terminal = Terminal::new(1);
    let job = arguments.job()?;
    let dtype = DType::parse(&arguments.dtype);
    let dtype = dtype.with_context(|| format!("--dtype {}: pictures are made in fp32, bf16 or fp16", arguments.dtype))?;
    ensure!(arguments.strength.is_finite(), "--strength {}: a LoRA's strength is a number", arguments.strength);
    let model = open::local("the model", &job.model.name_or_path, &mut terminal)?;
    let vae = job.model.vae_path.as_deref().map(|name| open::local("the VAE", name, &mut terminal)).transpose()?;
    let mut model = train::Model::open(&model, vae.as_deref(), &job.model)?;
    if job.zero_terminal_snr {
        model.schedule = model.schedule.with_zero_terminal_snr().context("in train.zero_terminal_snr")?;
    }
    let requests = job.prompts.iter().map(|p| Request::new(p.clone(), &model)).collect::<Result<Vec<_>>>()?;
    let lora = job.lora.as_deref().map(weights::lora::read).transpose()?;
    let mut studio = Studio::open(model, lora.as_ref(), arguments.strength, &requests, dtype, open::backend()?, &mut terminal)?;
    base::fs::create_dir(&arguments.output)?;
    terminal.report(Event::Begin { what: "sampling", total: requests.len() as u64 });
    let mut paths = Vec::new();
    for (i, request) in requests.iter().enumerate() {
        let noise = train::sample::noise(studio.model(), request);
        if let Some(path) = arguments.save_noise.as_deref().filter(|_| i == 0) {
            write_noise(path, &noise, studio.model(), request)?;
        }
        let picture = studio.draw(request, job.sample.sampler, &noise)?;
        let path = free_name(&arguments.output, i, request.prompt.seed);
        train::sample::write_png(&path, &picture)?;
        terminal.report(Event::Done { done: i as u64 + 1 });
        paths.push(path);
    }
    terminal.report(Event::End);
    terminal.report(Event::Memory("sampling", studio.usage()));
    paths.iter().try_for_each(|path| output::print(open::shown(path)))
}

impl Arguments {
    fn job(&self) -> Result<Job> {
        let mut job = match &self.config {
            Some(path) => job_of_config(open::load(path, &self.set)?.config)?,
            None => Job {
                model: self.model_config()?,
                lora: None,
                sample: plain_sample_config(),
                prompts: Vec::new(),
                zero_terminal_snr: false,
            },
        };
        job.lora = self.lora.clone().or(job.lora);
        self.apply(&mut job.sample)?;
        if !self.prompt.is_empty() {
            job.prompts = self.prompt.iter().map(|line| job.sample.parse_prompt(line)).collect::<Result<_>>()?;
        } else {
            job.prompts.iter_mut().for_each(|prompt| self.apply_to(prompt));
        }
        ensure!(!job.prompts.is_empty(), "there is nothing to draw: give --prompt, or prompts in the config's sample section");
        Ok(job)
    }

    fn model_config(&self) -> Result<ModelConfig> {
        let prediction_type = match self.prediction_type.as_deref() {
            None => None,
            Some("epsilon") => Some(Prediction::Epsilon),
            Some("v_prediction") => Some(Prediction::VPrediction),
            Some(other) => anyhow::bail!("--prediction-type {other}: it is epsilon or v_prediction"),
        };
        let model = ModelConfig::named(self.model.clone().unwrap_or_default());
        Ok(ModelConfig { prediction_type, clip_skip: self.clip_skip.unwrap_or(1), ..model })
    }

    fn apply(&self, sample: &mut SampleConfig) -> Result<()> {
        sample.sampler = match self.sampler.as_deref() {
            None => sample.sampler,
            Some("ddim") => Sampler::Ddim,
            Some("euler") => Sampler::Euler,
            Some(other) => anyhow::bail!("--sampler {other}: the samplers are ddim and euler"),
        };
        sample.width = self.width.unwrap_or(sample.width);
        sample.height = self.height.unwrap_or(sample.height);
        sample.seed = self.seed.unwrap_or(sample.seed);
        sample.sample_steps = self.steps.unwrap_or(sample.sample_steps);
        sample.guidance_scale = self.guidance_scale.unwrap_or(sample.guidance_scale);
        sample.neg = self.negative.clone().unwrap_or(std::mem::take(&mut sample.neg));
        Ok(())
    }

    fn apply_to(&self, prompt: &mut SamplePrompt) {
        prompt.width = self.width.unwrap_or(prompt.width);
        prompt.height = self.height.unwrap_or(prompt.height);
        prompt.seed = self.seed.unwrap_or(prompt.seed);
        prompt.sample_steps = self.steps.unwrap_or(prompt.sample_steps);
        prompt.guidance_scale = self.guidance_scale.unwrap_or(prompt.guidance_scale);
        if let Some(negative) = &self.negative {
            prompt.neg.clone_from(negative);
        }
    }
}

fn job_of_config(config: config::RunConfig) -> Result<Job> {
    let lora = config.run_folder().join(format!("{}.safetensors", config.name));
    ensure!(lora.exists(), "{} does not exist yet: train the config first, or give --lora a checkpoint of it", open::shown(&lora));
    let zero_terminal_snr = config.train.noise.zero_terminal_snr;
    Ok(Job { model: config.model, lora: Some(lora), prompts: config.sample.samples.clone(), sample: config.sample, zero_terminal_snr })
}

fn plain_sample_config() -> SampleConfig {
    SampleConfig {
        sampler: Sampler::Ddim,
        sample_every: 0,
        sample_every_epochs: 0,
        width: 512,
        height: 512,
        neg: String::new(),
        seed: 0,
        guidance_scale: 7.0,
        sample_steps: 20,
        samples: Vec::new(),
    }
}

/// A file name that nothing has yet: number and seed, never the prompt.
fn free_name(folder: &Path, number: usize, seed: u64) -> PathBuf {
    let name = |i: usize| if i == 0 { format!("{number:03}_{seed}.png") } else { format!("{number:03}_{seed}_{i}.png") };
    (0..).map(|i| folder.join(name(i))).find(|path| !path.exists()).expect("some number is free")
}

/// [h, w, c] → `noise` [1, c, h, w], as diffusers takes it.
fn write_noise(path: &Path, noise: &[f32], model: &train::Model, request: &Request) -> Result<()> {
    let (height, width) = (request.prompt.height as usize / model.factor(), request.prompt.width as usize / model.factor());
    let channels = noise.len() / (height * width);
    let planes: Vec<f32> = (0..channels).flat_map(|c| noise.iter().skip(c).step_by(channels).copied()).collect();
    let bytes = base::dtype::from_f32(DType::F32, &planes).context("f32 is a float type")?;
    let entry =
        Entry { name: "noise".into(), dtype: DType::F32, shape: Shape::from([1, channels, height, width]), bytes: Cow::Owned(bytes) };
    weights::safetensors::write(path, &[entry], &BTreeMap::new())
}
