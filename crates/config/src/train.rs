//! `train:` length, batch, optimizer, loss, precision.

use crate::checkpointing::{self, Checkpointing};
use crate::ema::{self, EmaConfig, RawEma};
use crate::findings::Findings;
use crate::grad_scaler::{self, GradScalerConfig, RawGradScaler};
use crate::loss::{self, LossConfig};
use crate::lr_scheduler;
use crate::model::{dtype, read_dtype};
use crate::noise::{self, NoiseConfig};
use crate::older;
use crate::optimizer::{self, OnOptimizerChange};
use crate::param_group::{self, ParamGroup, RawParamGroup};
use crate::rates;
use crate::scalar::{Flag, FlagOrTexts, Number, Numbers, Whole};
use crate::section::section;
use anyhow::{Result, bail, ensure};
use base::DType;
use serde::Serialize;
use serde_json::{Map, Value};

section! {
    RawTrain {
        /// Optimizer steps; 0 with `epochs`: as many as the epochs take.
        steps: Whole,
        /// Passes over the data instead of a number of steps.
        epochs: Whole,
        /// Pictures of one bucket that go through the model together.
        batch_size: Whole,
        /// Batches whose mean gradient makes one optimizer step.
        #[serde(alias = "gradient_accumulation_steps")]
        gradient_accumulation: Whole,
        /// Learning rate; default: the optimizer's usual one.
        #[serde(alias = "learning_rate")]
        lr: Number,
        /// Rate of the UNet's adapters; default: `lr`.
        unet_lr: Number,
        /// Rate of the text encoder's adapters; default: `lr`.
        text_encoder_lr: Number,
        /// Its name: see the list below.
        optimizer: String,
        /// Of older files: the optimizer in its 8-bit form.
        use_8bit_optimizer: Flag,
        /// Of older files: `dtype`.
        mixed_precision: String,
        /// Of older files: `dataloader.num_workers`.
        num_workers: Whole,
        /// Its settings, such as `weight_decay`, `betas`, `eps`; an unknown one is refused with the list of those it has.
        optimizer_params: Map<String, Value>,
        /// What a resume does if the saved state is another optimizer's: `stop` or `fresh`.
        on_optimizer_change: String,
        /// Name of the schedule: see the list below.
        lr_scheduler: String,
        /// Its settings, such as `num_cycles` or `min_lr_ratio`.
        lr_scheduler_params: Map<String, Value>,
        /// Steps (or, below 1, the share of all steps) in which the rate rises to `lr`.
        lr_warmup_steps: Number,
        /// "LoRA+: Efficient Low Rank Adaptation of Large Models" (Hayou et al., 2024): factor on the rate of `lora_up`.
        loraplus_lr_ratio: Number,
        /// Rates and weight decay of some of the parameters.
        param_groups: Vec<RawParamGroup>,
        /// Trains a random share of the parameters in each step (ai-toolkit's spelling is taken too).
        #[serde(alias = "do_paramiter_swapping")]
        do_parameter_swapping: Flag,
        /// That share.
        #[serde(alias = "paramiter_swapping_factor")]
        parameter_swapping_factor: Number,
        /// Largest norm of the gradient; 0: not clipped.
        max_grad_norm: Number,
        /// "Efficient Diffusion Training via Min-SNR Weighting Strategy" (Hang et al., 2023); 0 or absent: off.
        min_snr_gamma: Number,
        /// Refused: its weight grows without bound at noisy timesteps. `min_snr_gamma` is the bounded one.
        snr_gamma: Number,
        /// The same with a soft minimum ("Scalable High-Resolution Pixel-Space Image Synthesis with Hourglass Diffusion Transformers").
        soft_min_snr_gamma: Number,
        /// "Debias the Training of Diffusion Models" (Yu et al., 2023).
        #[serde(alias = "debiased_estimation")]
        debiased_estimation_loss: Flag,
        /// Weighs timesteps of a v-prediction model as if it predicted noise: the loss times SNR/(SNR + 1).
        scale_v_pred_loss_like_noise_pred: Flag,
        /// `mse` (or `l2`), `mae` (`l1`), `huber`, `smooth_l1` or `pseudo_huber`.
        loss_type: String,
        /// How the threshold of the Huber losses depends on the timestep: `constant`, `exponential` or `snr`.
        huber_schedule: String,
        /// Threshold of the Huber losses: errors below it are squared.
        huber_c: Number,
        /// Factor on the threshold of the schedules `constant` and `exponential`.
        huber_scale: Number,
        /// Weighs the middle timesteps most: a bell with a mean of 1.
        linear_timesteps: Flag,
        /// The same on the noisy side only.
        linear_timesteps2: Flag,
        /// Weight of the pictures of datasets with `is_reg`.
        #[serde(alias = "prior_loss_weight")]
        reg_weight: Number,
        /// Holds the model to the frozen base model's predictions where the trigger word is replaced by its class.
        diff_output_preservation: Flag,
        /// Weight of `diff_output_preservation`.
        diff_output_preservation_multiplier: Number,
        /// The word in the trigger word's place.
        diff_output_preservation_class: String,
        /// Strength of a constant added to each channel's noise, for darker darks and brighter brights; 0: none.
        noise_offset: Number,
        /// What `noise_offset` grows by in each channel, times the distance of the latent's mean there from zero; below 0 it shrinks, to none at most.
        adaptive_noise_scale: Number,
        /// Levels of "Multi-Resolution Noise for Diffusion Model Training" (Whitaker, 2023); 0: off.
        multires_noise_iterations: Whole,
        /// Weight of each level of `multires_noise_iterations`, as a share of the one before.
        multires_noise_discount: Number,
        /// "Input Perturbation Reduces Exposure Bias in Diffusion Models" (Ning et al., 2023); 0: off.
        #[serde(alias = "input_perturbation")]
        ip_noise_gamma: Number,
        /// "Common Diffusion Noise Schedules and Sample Steps are Flawed" (Lin et al., 2023); for v-prediction models.
        zero_terminal_snr: Flag,
        /// `uniform`, or `sigmoid`: more in the middle.
        #[serde(alias = "timestep_sampling")]
        timestep_type: String,
        /// Of `timestep_type: sigmoid`: above 0 favours noisy timesteps.
        logit_mean: Number,
        /// Of `timestep_type: sigmoid`: smaller favours the middle.
        #[serde(alias = "sigmoid_scale")]
        logit_std: Number,
        /// `content` favours noisy timesteps, `style` the others; `balanced`.
        content_or_style: String,
        /// The same for datasets with `is_reg`.
        content_or_style_reg: String,
        /// Whether the UNet gets adapters.
        train_unet: Flag,
        /// Whether the text encoder gets adapters.
        train_text_encoder: Flag,
        /// Encodes each caption once; default: true, unless captions change in each epoch or the text encoder is trained.
        cache_text_embeddings: Flag,
        /// Type of activations: `fp32`, `bf16` or `fp16`. Adapters, gradients and optimizer are f32 in any case.
        dtype: String,
        /// `auto` (as few as `memory.budget` allows, else all), true, false, or a list of patterns that segment names are matched with.
        gradient_checkpointing: FlagOrTexts,
        /// What happens to captions beyond the encoder's limit: `chunk` or `truncate`.
        long_captions: String,
        /// Most tokens of a caption that are used (75, 150, 225, …); absent: no limit but `long_captions`.
        max_token_length: Whole,
        /// Steps with a non-finite loss or gradient, in a row, that end the run.
        max_non_finite_steps: Whole,
        /// First timestep that is trained.
        min_timestep: Whole,
        /// Last timestep that is trained.
        max_timestep: Whole,
        /// Steps between measuring the loss on the pictures that datasets[].validation sets aside; 0: never.
        #[serde(alias = "validate_every_n_steps")]
        validate_every: Whole,
        /// ai-toolkit's form of `max_timestep`, counted from the noisy end.
        min_denoising_steps: Whole,
        /// ai-toolkit's form of `min_timestep`, counted from the noisy end.
        max_denoising_steps: Whole,
        /// No samples before the first step.
        skip_first_sample: Flag,
        /// No samples at all.
        disable_sampling: Flag,
        /// `ddpm`; training has one noise schedule, the model's.
        noise_scheduler: String,
        ema_config: RawEma,
        grad_scaler: RawGradScaler,
    }
    no effect {
        xformers: Flag => "attention has one implementation",
        enable_xformers: Flag => "attention has one implementation",
        sdp: Flag => "attention has one implementation",
        attention_backend: String => "attention has one implementation",
        unload_text_encoder: Flag => "a text encoder whose embeddings are cached is dropped by itself",
        performance_log_every: Whole => "every step's times are in metrics.jsonl",
        force_first_sample: Flag => "samples at the start are made unless skip_first_sample is set",
        train_refiner: Flag => "there is no refiner",
        refiner_lr: Number => "there is no refiner",
        embedding_lr: Number => "no embedding is trained",
        adapter_lr: Number => "no such adapter is trained",
        next_sample_timesteps: Whole => "it belongs to flow matching",
        bypass_guidance_embedding: Flag => "it belongs to another family of models",
        switch_boundary_every: Whole => "it belongs to another family of models",
        merge_network_on_save_strength: Number => "nothing is merged",
        max_loss_debug: Flag => "there is no such limit",
        blank_prompt_preservation_multiplier: Number => "blank_prompt_preservation is not supported yet",
        guidance_loss_target: Numbers => "do_guidance_loss is not supported yet",
        guidance_loss_schedule: String => "do_guidance_loss is not supported yet",
        unconditional_prompt: String => "do_guidance_loss is not supported yet",
        do_guidance_loss_cfg_zero: Flag => "do_guidance_loss is not supported yet",
        signal_correction_noise_scale: Number => "do_signal_correction_noise is not supported yet",
        batch_noise_correction_scale: Number => "do_batch_noise_correction is not supported yet",
        signal_amplification_strength: Number => "do_signal_amplification is not supported yet",
        correct_pred_norm_multiplier: Number => "correct_pred_norm is not supported yet",
        differential_guidance_scale: Number => "do_differential_guidance is not supported yet",
        diffusion_feature_extractor_weight: Number => "there is no feature extractor",
        inverted_mask_prior_multiplier: Number => "it belongs to inverted_mask_prior",
        audio_loss_multiplier: Number => "these are pictures",
        allow_tf32: Flag => "the CPU has no TF32; products of f32 numbers are computed in f32, and train.dtype: bf16 is the faster type",
        tf32: Flag => "the CPU has no TF32; products of f32 numbers are computed in f32, and train.dtype: bf16 is the faster type",
    }
    not yet {
        learnable_snr_gos: false, loss_target: "noise", num_train_timesteps: 1000,
        single_item_batching: false, start_step: 0, merge_network_on_save: false, max_loss: 0,
        train_turbo: false, free_u: false, inverted_mask_prior: false, blank_prompt_preservation: false,
        do_prior_divergence: false, do_fft_loss: false, t0_loss_target: false, pred_scaler: 1.0, correct_pred_norm: false,
        target_norm_std: false, do_guidance_loss: false, do_differential_guidance: false, diffusion_feature_extractor_path: "",
        do_cfg: false, do_random_cfg: false, cfg_scale: 1.0, max_cfg_scale: 1.0, cfg_rescale: "", dynamic_noise_offset: false,
        noise_multiplier: 1.0, target_noise_multiplier: 1.0, random_noise_multiplier: 0, random_noise_shift: 0,
        do_signal_correction_noise: false, do_batch_noise_correction: false, do_signal_amplification: false, img_multiplier: 1.0,
        latent_multiplier: 1.0, noisy_latent_multiplier: 1.0, match_noise_norm: false, optimal_noise_pairing_samples: 1,
        force_consistent_noise: false, blended_blur_noise: false, standardize_images: false, standardize_latents: false, weight_jitter: 0,
        negative_prompt: "", prompt_dropout_prob: 0, prompt_saturation_chance: 0, short_and_long_captions: false,
        short_and_long_captions_encoder_split: false, validation_config: "",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LongCaptions {
    /// In pieces of 75 tokens, whose embeddings are joined.
    Chunk,
    Truncate,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrainConfig {
    /// Optimizer steps; 0: `epochs` counts.
    pub steps: u64,
    /// Passes over the data; 0: `steps` counts.
    pub epochs: u64,
    pub batch_size: usize,
    pub gradient_accumulation: usize,
    pub lr: f64,
    pub unet_lr: f64,
    pub text_encoder_lr: f64,
    /// The optimizer's own name.
    pub optimizer: String,
    /// Its settings, defaults included.
    pub optimizer_params: Map<String, Value>,
    pub on_optimizer_change: OnOptimizerChange,
    /// The schedule's own name.
    pub lr_scheduler: String,
    /// Its settings, defaults included.
    pub lr_scheduler_params: Map<String, Value>,
    pub loraplus_lr_ratio: f64,
    pub param_groups: Vec<ParamGroup>,
    pub do_parameter_swapping: bool,
    pub parameter_swapping_factor: f64,
    pub ema_config: EmaConfig,
    /// 0: not clipped.
    pub max_grad_norm: f64,
    #[serde(flatten)]
    pub loss: LossConfig,
    #[serde(flatten)]
    pub noise: NoiseConfig,
    pub train_unet: bool,
    pub train_text_encoder: bool,
    pub cache_text_embeddings: bool,
    #[serde(serialize_with = "dtype")]
    pub dtype: DType,
    /// Only `dtype: fp16` uses it: see [`TrainConfig::loss_scaling`].
    pub grad_scaler: GradScalerConfig,
    pub gradient_checkpointing: Checkpointing,
    pub long_captions: LongCaptions,
    pub max_token_length: Option<usize>,
    pub max_non_finite_steps: u64,
    pub validate_every: u64,
    pub skip_first_sample: bool,
    pub disable_sampling: bool,
}

impl TrainConfig {
    /// The rate that the schedule shapes; the parts' own rates are shares of it.
    pub fn base_lr(&self) -> f64 {
        base_lr([self.train_unet, self.train_text_encoder], [self.unet_lr, self.text_encoder_lr])
    }

    /// How the loss is scaled: in fp16 only, whose range is too small for gradients as they are.
    pub fn loss_scaling(&self) -> Option<GradScalerConfig> {
        (self.dtype == DType::F16).then_some(self.grad_scaler)
    }
}

/// The largest rate of the parts that are trained.
fn base_lr(trained: [bool; 2], rates: [f64; 2]) -> f64 {
    trained.iter().zip(rates).fold(0.0, |most, (on, lr)| if *on { most.max(lr) } else { most })
}

/// The resolved section, and what `cache_text_embeddings` says, which is settled together with the datasets.
pub(crate) fn resolve(mut raw: RawTrain, findings: &mut Findings) -> (TrainConfig, Option<bool>) {
    if let Some(Number(gamma)) = raw.snr_gamma.filter(|gamma| gamma.0 != 0.0) {
        let why = "is refused: its weight γ/SNR grows without bound at noisy timesteps; use train.min_snr_gamma";
        findings.wrong(format!("train.snr_gamma: {gamma} {why}"));
    }
    raw.check_foreign("train", findings);
    let loss = loss::resolve(&raw, findings);
    let noise = noise::resolve(&raw, findings);
    findings.check(check_noise_scheduler(raw.noise_scheduler.as_deref(), &loss));
    let precision = older::precision(raw.mixed_precision.take(), raw.dtype.take(), findings);
    let precision = findings.or(precision, None);
    let dtype = findings.or(precision.as_deref().map_or(Ok(DType::BF16), |name| read_dtype("train.dtype", name)), DType::BF16);
    let grad_scaler = grad_scaler::resolve(raw.grad_scaler.take(), dtype, findings);
    let ema_config = ema::resolve(raw.ema_config.take(), findings);
    let (steps, epochs) = findings.or(length(raw.steps, raw.epochs), (1000, 0));
    let (train_unet, train_text_encoder) = (raw.train_unet.is_none_or(|f| f.0), raw.train_text_encoder.is_some_and(|f| f.0));
    if !(train_unet || train_text_encoder) {
        findings.wrong("train.train_unet and train.train_text_encoder are both false: nothing would be trained".to_string());
    }
    let rates::Updates { chosen, lr, unet_lr, text_encoder_lr } = rates::resolve(&mut raw, [train_unet, train_text_encoder], findings);
    if ema_config.use_ema && chosen.averages {
        let advice = "saves an average of its steps already; set it to false, or choose another optimizer";
        findings.wrong(format!("train.ema_config.use_ema: {} {advice}", chosen.name));
    }
    let shape = [base_lr([train_unet, train_text_encoder], [unet_lr, text_encoder_lr]), steps as f64];
    let scheduler = lr_scheduler::resolve(raw.lr_scheduler.as_deref(), raw.lr_scheduler_params, raw.lr_warmup_steps, shape, findings);
    let constant = || lr_scheduler::Scheduler { name: "constant".to_string(), params: Map::new() };
    let scheduler = findings.or(scheduler.map(Some), None).unwrap_or_else(constant);
    let config = TrainConfig {
        steps,
        epochs,
        batch_size: findings.or(count("train.batch_size", raw.batch_size, 1), 1),
        gradient_accumulation: findings.or(count("train.gradient_accumulation", raw.gradient_accumulation, 1), 1),
        lr,
        unet_lr,
        text_encoder_lr,
        optimizer: chosen.name,
        optimizer_params: chosen.params,
        on_optimizer_change: findings.or(optimizer::on_change(raw.on_optimizer_change.as_deref()), OnOptimizerChange::Stop),
        lr_scheduler: scheduler.name,
        lr_scheduler_params: scheduler.params,
        loraplus_lr_ratio: findings.or(not_negative("train.loraplus_lr_ratio", raw.loraplus_lr_ratio, 1.0), 1.0),
        param_groups: param_group::resolve(raw.param_groups.unwrap_or_default(), findings),
        do_parameter_swapping: raw.do_parameter_swapping.is_some_and(|f| f.0),
        parameter_swapping_factor: findings.or(swapping_factor(raw.parameter_swapping_factor), 0.1),
        ema_config,
        max_grad_norm: findings.or(grad_norm(raw.max_grad_norm), 1.0),
        loss,
        noise,
        train_unet,
        train_text_encoder,
        cache_text_embeddings: false,
        dtype,
        grad_scaler,
        gradient_checkpointing: findings.or(checkpointing::read(raw.gradient_checkpointing), Checkpointing::Auto),
        long_captions: findings.or(long_captions(raw.long_captions.as_deref()), LongCaptions::Chunk),
        max_token_length: raw.max_token_length.filter(|n| n.0 > 0).map(|n| n.0 as usize),
        max_non_finite_steps: findings.or(count("train.max_non_finite_steps", raw.max_non_finite_steps, 5), 5) as u64,
        validate_every: raw.validate_every.map_or(100, |n| n.0),
        skip_first_sample: raw.skip_first_sample.is_some_and(|f| f.0),
        disable_sampling: raw.disable_sampling.is_some_and(|f| f.0),
    };
    (config, raw.cache_text_embeddings.map(|f| f.0))
}

fn long_captions(name: Option<&str>) -> Result<LongCaptions> {
    match name.unwrap_or("chunk") {
        "chunk" => Ok(LongCaptions::Chunk),
        "truncate" => Ok(LongCaptions::Truncate),
        other => bail!("train.long_captions: {other} is unknown; it is chunk or truncate"),
    }
}

/// Optimizer steps beyond the life of any machine; counting them must not overflow either.
pub const MOST_STEPS: u64 = 1_000_000_000;

/// Steps and epochs, of which exactly one counts.
fn length(steps: Option<Whole>, epochs: Option<Whole>) -> Result<(u64, u64)> {
    for (key, value) in [("train.steps", &steps), ("train.epochs", &epochs)] {
        let value = value.as_ref().map_or(0, |v| v.0);
        ensure!(value <= MOST_STEPS, "{key}: {value} is more than any run could do; at most {MOST_STEPS}");
    }
    match (steps.map(|s| s.0), epochs.map_or(0, |e| e.0)) {
        (Some(0), 0) => bail!("train.steps: 0 leaves the length open; give a number of steps, or train.epochs"),
        (None, 0) => Ok((1000, 0)),
        (Some(steps), 0) => Ok((steps, 0)),
        (None | Some(0), epochs) => Ok((0, epochs)),
        (Some(steps), epochs) => bail!("train.steps ({steps}) and train.epochs ({epochs}) are both given; keep one"),
    }
}

/// How often something happens: at least once, and within what an index can hold.
fn count(key: &str, value: Option<Whole>, default: usize) -> Result<usize> {
    let value = value.map_or(default as u64, |v| v.0);
    ensure!((1..=1_000_000).contains(&value), "{key}: {value} is not between 1 and 1000000");
    Ok(value as usize)
}

pub(crate) fn not_negative(key: &str, value: Option<Number>, default: f64) -> Result<f64> {
    let value = value.unwrap_or(Number(default));
    ensure!(value.0 >= 0.0, "{key}: {value} is negative");
    value.within_reason(key)
}

/// A limit may be as large as no number ever gets.
fn grad_norm(limit: Option<Number>) -> Result<f64> {
    let limit = limit.unwrap_or(Number(1.0));
    ensure!((0.0..=1e30).contains(&limit.0), "train.max_grad_norm: {limit} is {}", if limit.0 < 0.0 { "negative" } else { "no limit" });
    Ok(limit.0)
}

fn swapping_factor(value: Option<Number>) -> Result<f64> {
    let factor = value.map_or(0.1, |v| v.0);
    ensure!(factor > 0.0 && factor <= 1.0, "train.parameter_swapping_factor: {factor} is not a share, more than 0 and at most 1");
    Ok(factor)
}

fn check_noise_scheduler(name: Option<&str>, loss: &LossConfig) -> Result<()> {
    match name {
        None | Some("ddpm" | "ddim" | "euler" | "euler_a" | "dpmsolver") => Ok(()),
        Some("flowmatch") if loss.snr_key().is_some() => bail!(
            "train.{}: a flow-matching model has no noise schedule to take weights from, its timesteps' distribution does their work; and \
             train.noise_scheduler: flowmatch is for such models, which are not supported yet",
            loss.snr_key().unwrap_or_default()
        ),
        Some("flowmatch") => bail!("train.noise_scheduler: flowmatch is for flow-matching models, which are not supported yet"),
        Some(other) => bail!("train.noise_scheduler: {other} is unknown; it is ddpm"),
    }
}
