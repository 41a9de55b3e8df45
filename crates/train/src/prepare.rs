//! Everything up to the first step, without loading weights: what `plan` prints and `train` starts from.

use crate::dataset_options::{dataset_options, scheme};
use crate::event::{Event, Reporter};
use crate::frozen;
use crate::groups;
use crate::lora;
use crate::loss;
use crate::model::Model;
use crate::programs::TextSide;
use crate::sample;
use crate::text::{self, Chunking, TextReport};
use anyhow::{Context, Result, ensure};
use base::{DType, Shape};
use config::RunConfig;
use data::{CaptionOptions, Dataset, DatasetOptions, ImageRow, Item, Role, Scheme, View};
use diffusion::{NoiseSchedule, Prediction};
use graph::ops;
use models::adapters::Factor;
use models::{AdapterSpec, Adapters, Module};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A run that could start.
pub struct Prepared {
    pub config: RunConfig,
    pub notices: Vec<String>,
    pub model: Model,
    pub dataset: Dataset,
    /// Whether any picture has a mask; in such a run the others weigh 1 everywhere.
    pub is_masked: bool,
    /// The batches of every step.
    pub batches: data::Schedule,
    /// Optimizer steps.
    pub steps: u64,
    /// Every module of the base model: what LoRA files are checked against.
    pub modules: Vec<Module>,
    pub adapters: Adapters,
    pub text: TextSide,
    pub texts: TextReport,
    pub samples: Vec<sample::Request>,
    pub lr: optim::Schedule,
}

impl Prepared {
    /// `model_path` and `vae_path` are the config's, resolved to local files.
    pub fn new(loaded: config::Loaded, model_path: &Path, vae_path: Option<&Path>, reporter: &mut dyn Reporter) -> Result<Prepared> {
        let config::Loaded { mut config, mut notices } = loaded;
        // The model first: its headers are read in no time, and a wrong file is the commonest mistake.
        let mut model = Model::open(model_path, vae_path, &config.model)?;
        if config.train.noise.zero_terminal_snr {
            model.schedule = model.schedule.with_zero_terminal_snr().context("in train.zero_terminal_snr")?;
        }
        notices.extend(model.warnings.iter().cloned());
        check_buckets(&config, &model)?;
        check_timesteps(config.train.noise.max_timestep, &model.schedule)?;
        ensure!(
            !config.train.loss.scale_v_pred_loss_like_noise_pred || model.schedule.prediction() == Prediction::Velocity,
            "train.scale_v_pred_loss_like_noise_pred: true is for models that predict v, and this one predicts noise: remove the key, or \
             set model.prediction_type to v_prediction if that is what it predicts"
        );
        reporter.report(Event::Begin { what: "scanning pictures", total: config.datasets.len() as u64 });
        let options: Vec<DatasetOptions> = config.datasets.iter().map(|d| dataset_options(d, &model)).collect();
        let dataset = Dataset::build(&options)?;
        reporter.report(Event::End);
        let batches = data::Schedule::new(&dataset, config.seed, config.train.batch_size, config.train.gradient_accumulation);
        count_epochs(&mut config, batches.steps_per_epoch());
        let steps = length(&config, batches.steps_per_epoch())?;
        let modules = model.parts.modules(model.clip_skip)?;
        let adapters = Adapters::resolve(&adapter_spec(&config), &modules).context("in the section network")?;
        let (text, texts) = text_side(&config, &model, &dataset)?;
        let samples = config.sample.samples.iter().map(|prompt| sample::Request::new(prompt.clone(), &model)).collect::<Result<_>>()?;
        let lr = lr_schedule(&config, steps)?;
        notices.extend(lr.warning());
        let is_masked = dataset.entries.iter().any(|entry| entry.mask.is_some());
        let mut prepared =
            Prepared { config, notices, model, dataset, is_masked, batches, steps, modules, adapters, text, texts, samples, lr };
        prepared.notices.extend(prepared.observations());
        Ok(prepared)
    }

    /// What a user should know of the data and settings before the run starts.
    fn observations(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let (mean, asked) = (self.batches.mean_batch_size(), self.config.train.batch_size);
        let largest = self.dataset.bucket_counts().into_values().max().unwrap_or(0);
        if largest < asked as u64 {
            lines.push(format!("train.batch_size is {asked}, but no bucket holds more than {largest} pictures: batches run with fewer"));
        } else if mean < asked as f64 / 2.0 {
            let by_ratio = self.config.datasets.iter().any(|dataset| scheme(dataset) == Scheme::Ratio);
            lines.push(format!(
                "batches hold {mean:.1} pictures on average where train.batch_size asks for {asked}: the pictures have too many shapes; \
                 fewer or coarser buckets ({}a larger bucket_step) fill them up",
                if by_ratio { "datasets[].bucket_scheme: list, " } else { "" }
            ));
        }
        if self.config.model.quantize_te && matches!(self.text, TextSide::Cached { .. }) {
            let line = "model.quantize_te: the text encoder is no part of the training: embeddings are made before it, with whole weights";
            lines.push(line.to_string());
        }
        if self.texts.truncated > 0 {
            let ends: Vec<String> = self.texts.dropped_ends.iter().map(|end| format!("\"{}\"", base::excerpt(end, 80))).collect();
            lines.push(format!("{} captions are longer than their limit and are cut; dropped: {}", self.texts.truncated, ends.join(", ")));
        }
        lines
    }

    /// Fresh adapters, or those of an existing LoRA, sorted by name; and what the user should know of them.
    pub fn first_factors(&self) -> Result<(Vec<Factor>, Vec<String>)> {
        let mut factors = self.adapters.init(self.config.seed);
        let Some(path) = &self.config.network.pretrained_lora_path else { return Ok((factors, Vec::new())) };
        let file = weights::lora::read(path).context("in network.pretrained_lora_path")?;
        let mut notices = vec![format!("starting from the LoRA {}", path.display())];
        let started = lora::start_from(&file, &self.adapters, &mut factors);
        notices.extend(started.with_context(|| format!("can't start from {}", path.display()))?);
        Ok((factors, notices))
    }

    /// What decides the result beside pictures, seed, rate and length, by config key: the sections model, network, train and datasets,
    /// flat.
    pub fn settings(&self) -> Result<BTreeMap<String, String>> {
        let config = frozen::with_whole_paths(&self.config)?.to_json()?;
        let mut settings = BTreeMap::from([("the base model's weights".to_string(), self.model.fingerprint()?)]);
        for section in ["model", "network", "train"] {
            flatten(section, &config[section], &mut settings);
        }
        for (i, dataset) in config["datasets"].as_array().into_iter().flatten().enumerate() {
            flatten(&format!("datasets[{i}]"), dataset, &mut settings);
        }
        // Paths may change, caches change nothing, and the others are compared on their own.
        let apart = ["model.name_or_path", "network.pretrained_lora_path", "train.steps", "train.epochs"];
        let of_dataset = [".folder_path", ".mask_path", ".cache_latents", ".cache_latents_to_disk"];
        settings.retain(|key, _| {
            let rate = key.starts_with("train.") && key.ends_with("lr");
            let kept_apart = key.starts_with("datasets") && of_dataset.iter().any(|name| key.ends_with(name));
            !(apart.contains(&key.as_str()) || rate || kept_apart)
        });
        Ok(settings)
    }

    /// Path of the run's folder.
    pub fn folder(&self) -> std::path::PathBuf {
        self.config.run_folder()
    }

    pub fn activations(&self) -> DType {
        self.config.train.dtype
    }

    /// Writes the pictures as the VAE gets them, where the config asks for it.
    pub fn dump_pixels(&self, reporter: &mut dyn Reporter) -> Result<()> {
        let Some(folder) = &self.config.dump_pixels else { return Ok(()) };
        reporter.report(Event::Begin { what: "dumping pictures", total: self.dataset.views().len() as u64 });
        self.dataset.dump_pixels(folder, |done| reporter.report(Event::Done { done }))?;
        reporter.report(Event::End);
        reporter.report(Event::Notice(format!("the pictures as the VAE gets them are in {}", folder.display())));
        Ok(())
    }

    /// What becomes of each picture.
    pub fn image_rows(&self) -> Vec<ImageRow> {
        let mut rows = self.dataset.rows();
        if self.config.dump_pixels.is_some() {
            self.dataset.name_dumps(&mut rows);
        }
        rows
    }

    /// Adapters as samples use them.
    pub fn sampling_adapters(&self) -> Adapters {
        self.adapters.for_sampling(1.0)
    }

    /// Whether samples are made at all.
    pub fn samples_on(&self) -> bool {
        !self.samples.is_empty() && !self.config.train.disable_sampling
    }

    /// Trained numbers.
    pub fn adapter_elements(&self) -> u64 {
        self.adapters.iter().flat_map(|a| a.params()).map(|(_, shape)| shape.elements() as u64).sum()
    }

    /// Are an item's latents encoded once, before training? Those for validation always are: they are looked at again and again.
    pub fn is_cached(&self, item: &Item) -> bool {
        self.config.datasets[item.dataset].cache_latents || item.role == Role::Validate
    }

    /// Every picture that a run can meet and whose latents are encoded once.
    pub fn cached_views(&self) -> Vec<View> {
        let mut views = self.dataset.views();
        views.retain(|(item, _)| self.is_cached(&self.dataset.items[*item]));
        views
    }

    /// Is there anything to validate with, and is it asked for?
    pub fn validates(&self) -> bool {
        self.config.train.validate_every > 0 && self.dataset.items.iter().any(|item| item.role == Role::Validate)
    }

    /// Do caches live in files, or in memory?
    pub fn caches_on_disk(&self) -> bool {
        self.config.datasets.iter().any(|dataset| dataset.cache_latents_to_disk)
    }

    /// The loss at the end of the training programs.
    pub fn loss_op(&self) -> ops::Loss {
        ops::Loss { error: loss::pixel_error(self.config.train.loss.loss_type), masked: self.is_masked }
    }

    /// A caption of `item` with the trigger word's class in its place, if the model's output is to be preserved there.
    pub fn preserved(&self, item: usize, caption: &str) -> Option<String> {
        preserved(&self.config, self.dataset.caption_options(item), caption)
    }

    pub fn text_encoder_trains(&self) -> bool {
        self.config.train.train_text_encoder
    }

    /// The training texts whose embeddings are cached; none if they go through the text encoder in every step.
    pub fn cached_texts(&self) -> Option<Vec<String>> {
        matches!(self.text, TextSide::Cached { .. }).then(|| {
            let mut texts = self.dataset.texts().unwrap_or_default();
            texts.push(String::new());
            let items = 0..self.dataset.items.len();
            let kept = items.flat_map(|item| self.dataset.texts_of(item).into_iter().filter_map(move |text| self.preserved(item, &text)));
            texts.extend(kept.collect::<Vec<_>>());
            texts
        })
    }

    /// The trained parameters with their rates, in the session's order.
    pub fn layout(&self) -> Result<optim::Layout> {
        let params: Vec<(String, Shape)> = self.adapters.iter().flat_map(|adapter| adapter.params()).collect();
        let mut places: Vec<(&str, &Shape)> = params.iter().map(|(name, shape)| (name.as_str(), shape)).collect();
        places.sort_by_key(|(name, _)| *name);
        groups::layout(&self.config.train, places)
    }

    /// The optimizer as the config names it, without state.
    pub fn chosen(&self) -> Result<optim::Chosen> {
        optim::choose(&self.config.train.optimizer, &self.config.train.optimizer_params).context("in train.optimizer_params")
    }

    /// The learning-rate schedule, laid out for so many steps.
    pub fn lr_schedule(&self, steps: u64) -> Result<optim::Schedule> {
        lr_schedule(&self.config, steps)
    }

    pub fn optimizer(&self) -> Result<optim::Optimizer> {
        let (train, layout) = (&self.config.train, self.layout()?);
        let share = train.do_parameter_swapping.then_some(train.parameter_swapping_factor);
        let swap = share.map(|share| optim::Swap::new(self.config.seed, share, &layout)).transpose()?;
        optim::Optimizer::new(self.chosen()?, layout, train.base_lr(), swap)
    }
}

/// The leaves of a JSON value, under dotted keys.
fn flatten(key: &str, value: &Value, out: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| flatten(&format!("{key}.{name}"), value, out)),
        value => drop(out.insert(key.to_string(), value.to_string())),
    }
}

/// The optimizer steps of a run, now that those of an epoch are known.
fn length(config: &RunConfig, steps_per_epoch: u64) -> Result<u64> {
    let (steps, epochs) = (config.train.steps, config.train.epochs);
    let steps = if steps > 0 { steps } else { epochs.saturating_mul(steps_per_epoch) };
    ensure!(steps > 0, "nothing to train: train.steps and train.epochs come to 0 steps");
    ensure!(
        steps <= config::MOST_STEPS,
        "train.epochs: {epochs} of {steps_per_epoch} steps each are more than any run could do; at most {} steps",
        config::MOST_STEPS
    );
    Ok(steps)
}

/// Intervals in epochs become intervals in steps, now that the steps of an epoch are known.
fn count_epochs(config: &mut RunConfig, steps_per_epoch: u64) {
    for (steps, epochs) in [
        (&mut config.save.save_every, &mut config.save.save_every_epochs),
        (&mut config.sample.sample_every, &mut config.sample.sample_every_epochs),
    ] {
        let counted = std::mem::take(epochs).saturating_mul(steps_per_epoch);
        *steps = if counted > 0 { counted } else { *steps };
    }
}

/// The last timestep that is trained must exist, and leave the model something to learn from.
fn check_timesteps(last: usize, schedule: &NoiseSchedule) -> Result<()> {
    ensure!(last < schedule.timesteps(), "train.max_timestep: {last} is beyond the model's last timestep, {}", schedule.timesteps() - 1);
    ensure!(
        schedule.snr(last) > 0.0 || schedule.prediction() == Prediction::Velocity,
        "at timestep {last} the model's noise schedule (rescale_betas_zero_snr) is pure noise, at which a model that predicts epsilon learns \
         nothing: set train.max_timestep to {}, or model.prediction_type to v_prediction if that is what it predicts",
        last.saturating_sub(1)
    );
    Ok(())
}

fn check_buckets(config: &RunConfig, model: &Model) -> Result<()> {
    let step = model.factor() as u32;
    for (i, dataset) in config.datasets.iter().enumerate() {
        if let Some(wanted) = dataset.bucket_step {
            ensure!(wanted % step == 0, "datasets[{i}].bucket_step: {wanted} is no multiple of the VAE's {step} pixels");
        }
    }
    Ok(())
}

fn adapter_spec(config: &RunConfig) -> AdapterSpec {
    let network = &config.network;
    AdapterSpec {
        rank: network.linear,
        alpha: network.linear_alpha as f32,
        conv_rank: (network.conv > 0).then_some(network.conv),
        conv_alpha: (network.conv > 0).then_some(network.conv_alpha as f32),
        dropout: network.dropout as f32,
        only_if_contains: network.only_if_contains.clone(),
        ignore_if_contains: network.ignore_if_contains.clone(),
        unet: config.train.train_unet,
        text_encoder: config.train.train_text_encoder,
        strength: 1.0,
    }
}

/// A caption with the trigger word's class in its place, if the config wants the model's output preserved there.
fn preserved(config: &RunConfig, options: &CaptionOptions, caption: &str) -> Option<String> {
    let loss = &config.train.loss;
    let trigger = options.trigger_word.as_deref().unwrap_or_default();
    let replaced = || if trigger.is_empty() { caption.to_string() } else { caption.replace(trigger, &loss.diff_output_preservation_class) };
    loss.diff_output_preservation.then(replaced)
}

/// Cached where nothing stands against it; the number of chunks is the longest caption's.
fn text_side(config: &RunConfig, model: &Model, dataset: &Dataset) -> Result<(TextSide, TextReport)> {
    let chunking = Chunking::of(&config.train, model.tokenizer.room());
    let whole = (0..dataset.items.len()).map(|item| dataset.caption_options(item).whole(&dataset.entry(item).caption.text));
    let mut texts: BTreeSet<String> = whole.collect();
    let items = 0..dataset.items.len();
    let kept = items.filter_map(|item| {
        let options = dataset.caption_options(item);
        preserved(config, options, &options.whole(&dataset.entry(item).caption.text))
    });
    texts.extend(kept.collect::<Vec<_>>());
    let report = text::survey(model, texts.iter().map(String::as_str), chunking)?;
    let chunks = report.chunks;
    let cached = config.train.cache_text_embeddings && dataset.texts().is_some();
    Ok((if cached { TextSide::Cached { chunks } } else { TextSide::Encoded { chunks } }, report))
}

fn lr_schedule(config: &RunConfig, steps: u64) -> Result<optim::Schedule> {
    let train = &config.train;
    optim::schedule::parse(&train.lr_scheduler, &train.lr_scheduler_params, train.base_lr(), steps).context("in train.lr_scheduler")
}
