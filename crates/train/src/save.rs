//! Checkpoints: the LoRA that other programs load, and the state that a resume goes on from.

use crate::contents::Contents;
use crate::course::Course;
use crate::event::{Event, Reporter};
use crate::folder::RunFolder;
use crate::lora;
use crate::loss_scale::LossScale;
use crate::prepare::Prepared;
use crate::state::{self, Manifest, State};
use crate::step::Trainer;
use anyhow::{Context, Result};
use base::DType;
use config::{Checkpointing, DatasetConfig, HuberSchedule, LossType, RunConfig, TrainConfig};
use diffusion::Prediction;
use engine::session::ParamPlace;
use models::Module;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use weights::lora::Layout;
use weights::metadata::{Facts, HuberFacts, MultiresNoise, Objective};

/// Tags of a dataset that are counted in the metadata.
const MOST_TAGS: usize = 10_000;

/// What checkpoints need beside the trainer.
pub struct Saver<'a> {
    pub run: &'a Prepared,
    pub folder: &'a RunFolder,
    pub places: Vec<ParamPlace>,
    /// Identity of the data order.
    pub data: String,
    pub course: Course,
}

impl Saver<'_> {
    /// LoRA file and state of a step; older ones beyond the number to keep are removed afterwards.
    pub fn checkpoint(&self, trainer: &mut Trainer, step: u64, reporter: &mut dyn Reporter) -> Result<PathBuf> {
        let path = self.folder.step_lora(step);
        self.write_lora(&path, trainer.published(), step, reporter)?;
        let state = self.write_state(trainer, step);
        // Also when the state found no room: LoRA files of one attempt after another must not fill the disk.
        self.folder.prune_loras(self.run.config.save.max_step_saves_to_keep)?;
        state?;
        reporter.report(Event::Saved(&path));
        Ok(path)
    }

    /// The state alone: at the start, so that a folder that can't be written is found now, and when a run is interrupted.
    pub fn write_state(&self, trainer: &Trainer, step: u64) -> Result<PathBuf> {
        let by_name = |values: &[f32]| self.places.iter().map(|p| (p.name.clone(), values[p.range.clone()].to_vec())).collect();
        let ema = trainer.ema().map(|ema| (ema.updates(), by_name(ema.average())));
        let manifest = Manifest {
            format_version: state::FORMAT_VERSION,
            step,
            total_steps: self.run.steps,
            course: Some(self.course.clone()),
            lr: self.run.config.train.base_lr(),
            seed: self.run.config.seed,
            sha256: String::new(),
            data: self.data.clone(),
            ema_updates: ema.as_ref().map(|(updates, _)| *updates),
            loss_scale: trainer.loss_scale().map(LossScale::standing),
            settings: self.run.settings()?,
            contents: Some(Contents::of(self.run)),
        };
        let state = State { manifest, params: by_name(trainer.params()), ema, optimizer: trainer.optimizer().state() };
        let written = state::write(&self.folder.states(), state)?;
        state::prune(&self.folder.states(), self.run.config.save.max_step_saves_to_keep)?;
        Ok(written)
    }

    /// Writes, reads back, and checks every key against the base model.
    pub fn write_lora(&self, path: &Path, params: &[f32], step: u64, reporter: &mut dyn Reporter) -> Result<()> {
        let config = &self.run.config.save;
        let file = lora::to_file(&self.run.adapters, params, self.metadata(step))?;
        let modules: Vec<_> = self.run.modules.iter().map(Module::in_lora_file).collect();
        weights::lora::check(&file, &modules).context("the LoRA would not load")?;
        let layout = match config.layout {
            config::Layout::Kohya => Layout::Kohya,
            config::Layout::Diffusers => Layout::Diffusers,
        };
        let report = weights::lora::write(path, &file, layout, config.dtype)?;
        for (share, what) in
            [(report.zeros_share, "became 0"), (report.infinite_share, "are too large for it and were cut to its largest number")]
        {
            if share > 0.0 {
                reporter.report(Event::Warning(format!(
                    "saved as {}, {} of the LoRA's values {what}; save.dtype: float32 keeps them",
                    config.dtype,
                    percent(share)
                )));
            }
        }
        Ok(())
    }

    /// Without dates, so that the same run gives the same file.
    fn metadata(&self, step: u64) -> BTreeMap<String, String> {
        let (run, config) = (self.run, &self.run.config);
        let train = &config.train;
        let epochs = |steps: u64| steps.div_ceil(run.batches.steps_per_epoch().max(1));
        let side = |pick: fn(&data::Bucket) -> u32| run.dataset.items.iter().map(|i| u64::from(pick(&i.bucket))).max().unwrap_or(0);
        let facts = Facts {
            family: Some(run.model.parts.family),
            v_prediction: run.model.schedule.prediction() == Prediction::Velocity,
            output_name: config.name.clone(),
            base_model: config.model.name_or_path.clone(),
            network_dim: config.network.linear,
            network_alpha: config.network.linear_alpha as f32,
            network_dropout: (config.network.dropout > 0.0).then_some(config.network.dropout as f32),
            network_args: network_args(&config.network),
            learning_rate: train.lr,
            unet_learning_rate: train.train_unet.then_some(train.unet_lr),
            text_encoder_learning_rate: train.train_text_encoder.then_some(train.text_encoder_lr),
            optimizer: train.optimizer.clone(),
            lr_scheduler: run.lr.name().to_string(),
            lr_warmup_steps: run.lr.warmup_steps(),
            max_grad_norm: (train.max_grad_norm > 0.0).then_some(train.max_grad_norm),
            steps: step,
            max_steps: run.steps,
            epoch: epochs(step),
            num_epochs: epochs(run.steps),
            seed: config.seed,
            batch_size: train.batch_size as u64,
            gradient_accumulation_steps: train.gradient_accumulation as u64,
            gradient_checkpointing: train.gradient_checkpointing != Checkpointing::All(false),
            mixed_precision: mixed_precision(train.dtype).to_string(),
            objective: objective(train),
            caption_dropout_rate: shared(config, |dataset| dataset.caption.caption_dropout_rate),
            caption_tag_dropout_rate: shared(config, |dataset| dataset.caption.token_dropout_rate),
            clip_skip: (config.model.clip_skip > 1).then_some(config.model.clip_skip as u64),
            resolution: [side(|b| b.width), side(|b| b.height)],
            num_train_images: run.batches.pictures_per_epoch(),
            tag_frequency: self.tags(),
            dataset_dirs: self.dataset_dirs(),
            trigger_phrase: config.trigger_word.clone(),
            ..Facts::default()
        };
        weights::metadata::build(&facts)
    }

    fn dataset_dirs(&self) -> Vec<(String, u64, u64)> {
        let datasets = self.run.config.datasets.iter().enumerate();
        let pictures = |index: usize| self.run.dataset.entries.iter().filter(|e| e.dataset == index).count() as u64;
        datasets.map(|(i, d)| (d.folder_path.display().to_string(), u64::from(d.num_repeats), pictures(i))).collect()
    }

    fn tags(&self) -> BTreeMap<String, BTreeMap<String, u64>> {
        let datasets = self.run.config.datasets.iter().enumerate();
        datasets
            .map(|(i, d)| (d.folder_path.display().to_string(), self.run.dataset.tag_frequency(i, MOST_TAGS).into_iter().collect()))
            .collect()
    }
}

/// What the run minimises, for programs that know sd-scripts.
fn objective(train: &TrainConfig) -> Objective {
    let (loss, noise) = (&train.loss, &train.noise);
    let on = |value: f64| (value != 0.0).then_some(value);
    let huber = match loss.huber_schedule {
        HuberSchedule::Constant => "constant",
        HuberSchedule::Exponential => "exponential",
        HuberSchedule::Snr => "snr",
    };
    let huber = HuberFacts { schedule: huber.to_string(), c: loss.huber_c, scale: loss.huber_scale };
    let (name, huber) = match loss.loss_type {
        LossType::Mse => ("l2", None),
        LossType::Mae => ("l1", None),
        LossType::Huber => ("huber", Some(huber)),
        LossType::SmoothL1 => ("smooth_l1", Some(huber)),
        LossType::PseudoHuber => ("pseudo_huber", Some(huber)),
    };
    let multires = MultiresNoise { iterations: noise.multires_noise_iterations, discount: noise.multires_noise_discount };
    Objective {
        loss_type: name.to_string(),
        huber,
        min_snr_gamma: on(loss.min_snr_gamma),
        debiased_estimation: loss.debiased_estimation_loss,
        prior_loss_weight: loss.reg_weight,
        noise_offset: on(noise.noise_offset),
        adaptive_noise_scale: on(noise.adaptive_noise_scale),
        multires_noise: (multires.iterations > 0).then_some(multires),
        ip_noise_gamma: on(noise.ip_noise_gamma),
        zero_terminal_snr: noise.zero_terminal_snr,
    }
}

/// What all datasets agree on.
fn shared(config: &RunConfig, of: fn(&DatasetConfig) -> f64) -> Option<f64> {
    let first = of(config.datasets.first()?);
    config.datasets.iter().all(|dataset| of(dataset) == first).then_some(first)
}

/// The name of a type of activations among sd-scripts' metadata.
fn mixed_precision(dtype: DType) -> &'static str {
    match dtype {
        DType::BF16 => "bf16",
        DType::F16 => "fp16",
        DType::F32 | DType::U32 | DType::U8 | DType::Quantized(_) => "no",
    }
}

/// A share for people; one too small for two digits is not shown as nothing.
fn percent(share: f64) -> String {
    if share < 1e-4 { "less than 0.01 %".to_string() } else { format!("{:.2} %", share * 100.0) }
}

fn network_args(network: &config::NetworkConfig) -> BTreeMap<String, String> {
    let mut args = BTreeMap::new();
    if network.conv > 0 {
        args.insert("conv_dim".to_string(), network.conv.to_string());
        args.insert("conv_alpha".to_string(), network.conv_alpha.to_string());
    }
    args
}
