//! THE list of sd-scripts' settings (`train_network.py` and dataset files), and what each is here.

use Kind::{Any, Number, Sizes, Switch, Text, Texts, Whole};
use Meaning::{Is, Nothing, Own, Refused};

/// How a value is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// True if the flag is there.
    Switch,
    Text,
    Whole,
    Number,
    /// Any number of texts.
    Texts,
    /// `512`, `"512,768"` or `[512, 768]`.
    Sizes,
    /// Of any form: it is never read.
    Any,
}

/// What a setting is here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Meaning {
    /// The same under this name. Keys in `datasets.` belong to every dataset.
    Is(&'static str),
    /// Worked out together with others, in `kohya.rs` and `pictures.rs`.
    Own,
    /// It changes nothing about the result here; the user is told why.
    Nothing(&'static str),
    /// It would change the result and can't be done; the user is told what stands against it, unless it has the value that means off.
    Refused(&'static str, Off),
}

/// The value, beside false, 0, and nothing, that a setting has when it is off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Off {
    Empty,
    At(f64),
    Word(&'static str),
}

pub(super) struct Flag {
    pub name: &'static str,
    pub kind: Kind,
    pub meaning: Meaning,
}

const fn flag(name: &'static str, kind: Kind, meaning: Meaning) -> Flag {
    Flag { name, kind, meaning }
}

const fn refused(name: &'static str, kind: Kind, why: &'static str) -> Flag {
    flag(name, kind, Refused(why, Off::Empty))
}

const fn nothing(name: &'static str, kind: Kind, why: &'static str) -> Flag {
    flag(name, kind, Nothing(why))
}

const LATER: &str = "not supported yet";
const FLOW: &str = "it belongs to flow-matching models, which are not supported yet";
const STATE: &str = "sd-scripts' saved states can't be read; start from its LoRA with --network_weights";
const PLANNED: &str = "memory is planned, see the section memory";
const ATTENTION: &str = "attention has one implementation";
const ONE_DEVICE: &str = "there is one device";
const METRICS: &str = "metrics are written to metrics.jsonl in the run's folder";
const UPLOAD: &str = "nothing is uploaded";
const CHECKPOINTS: &str = "every checkpoint keeps what a resume needs";
const METADATA: &str = "velatura writes its own metadata";
const ADAPTERS: &str = "adapters are trained in f32";

/// Settings of the run.
pub(super) static RUN: &[Flag] = &[
    // Model.
    flag("pretrained_model_name_or_path", Text, Is("model.name_or_path")),
    flag("vae", Text, Is("model.vae_path")),
    flag("v2", Switch, Own),
    flag("v_parameterization", Switch, Own),
    flag("clip_skip", Whole, Is("model.clip_skip")),
    nothing("tokenizer_cache_dir", Text, "the tokenizer comes with the model or the program"),
    refused("clip_l", Text, FLOW),
    refused("t5xxl", Text, FLOW),
    refused("ae", Text, FLOW),
    // Output.
    flag("output_dir", Text, Is("training_folder")),
    flag("output_name", Text, Own),
    flag("save_model_as", Text, Own),
    flag("save_precision", Text, Own),
    flag("save_every_n_epochs", Whole, Own),
    flag("save_every_n_steps", Whole, Own),
    refused("save_n_epoch_ratio", Whole, "give --save_every_n_epochs"),
    flag("save_last_n_epochs", Whole, Own),
    flag("save_last_n_steps", Whole, Own),
    nothing("save_last_n_epochs_state", Whole, CHECKPOINTS),
    nothing("save_last_n_steps_state", Whole, CHECKPOINTS),
    nothing("save_state", Switch, CHECKPOINTS),
    nothing("save_state_on_train_end", Switch, CHECKPOINTS),
    nothing("save_state_to_huggingface", Switch, UPLOAD),
    nothing("huggingface_repo_id", Text, UPLOAD),
    nothing("huggingface_repo_type", Text, UPLOAD),
    nothing("huggingface_path_in_repo", Text, UPLOAD),
    nothing("huggingface_token", Text, UPLOAD),
    nothing("huggingface_repo_visibility", Text, UPLOAD),
    nothing("async_upload", Switch, UPLOAD),
    nothing("no_metadata", Switch, "metadata holds settings and names, no paths of this machine"),
    nothing("training_comment", Text, METADATA),
    nothing("metadata_title", Text, METADATA),
    nothing("metadata_author", Text, METADATA),
    nothing("metadata_description", Text, METADATA),
    nothing("metadata_license", Text, METADATA),
    nothing("metadata_tags", Text, METADATA),
    nothing("output_config", Switch, "the run keeps its resolved config"),
    // Resume.
    refused("resume", Text, STATE),
    refused("initial_epoch", Whole, STATE),
    refused("initial_step", Whole, STATE),
    nothing("skip_until_initial_step", Switch, "it belongs to --initial_step"),
    nothing("resume_from_huggingface", Switch, "it belongs to --resume"),
    // Loop.
    flag("train_batch_size", Whole, Own),
    flag("max_train_steps", Whole, Own),
    flag("max_train_epochs", Whole, Own),
    flag("gradient_accumulation_steps", Whole, Is("train.gradient_accumulation")),
    flag("gradient_checkpointing", Switch, Own),
    flag("seed", Whole, Own),
    flag("max_data_loader_n_workers", Whole, Is("dataloader.num_workers")),
    nothing("persistent_data_loader_workers", Switch, "workers live as long as the run"),
    flag("mixed_precision", Text, Own),
    flag("max_token_length", Whole, Own),
    // Optimizer.
    flag("optimizer_type", Text, Own),
    flag("use_8bit_adam", Switch, Own),
    flag("use_lion_optimizer", Switch, Own),
    flag("optimizer_args", Texts, Own),
    flag("learning_rate", Number, Own),
    flag("unet_lr", Number, Own),
    flag("text_encoder_lr", Texts, Own),
    flag("max_grad_norm", Number, Is("train.max_grad_norm")),
    flag("lr_scheduler", Text, Own),
    flag("lr_warmup_steps", Number, Own),
    flag("lr_scheduler_num_cycles", Number, Own),
    flag("lr_scheduler_power", Number, Own),
    flag("lr_decay_steps", Number, Own),
    flag("lr_scheduler_timescale", Number, Own),
    flag("lr_scheduler_min_lr_ratio", Number, Own),
    flag("lr_scheduler_args", Texts, Own),
    refused("lr_scheduler_type", Text, "schedules from other Python modules can't be run"),
    // Network.
    flag("network_module", Text, Own),
    flag("network_dim", Whole, Own),
    flag("network_alpha", Number, Own),
    flag("network_dropout", Number, Is("network.dropout")),
    flag("network_args", Texts, Own),
    flag("network_weights", Text, Is("network.pretrained_lora_path")),
    refused("dim_from_weights", Switch, "give the file's rank as --network_dim"),
    flag("network_train_unet_only", Switch, Own),
    flag("network_train_text_encoder_only", Switch, Own),
    refused("scale_weight_norms", Number, LATER),
    refused("base_weights", Texts, LATER),
    nothing("base_weights_multiplier", Texts, "it belongs to --base_weights"),
    // Memory and speed.
    nothing("fp8_base", Switch, "base weights are held as model.dtype says"),
    nothing("fp8_base_unet", Switch, "base weights are held as model.dtype says"),
    nothing("full_fp16", Switch, ADAPTERS),
    nothing("full_bf16", Switch, ADAPTERS),
    nothing("blocks_to_swap", Whole, PLANNED),
    nothing("cpu_offload_checkpointing", Switch, PLANNED),
    nothing("fused_backward_pass", Switch, PLANNED),
    flag("cache_text_encoder_outputs", Switch, Own),
    flag("cache_text_encoder_outputs_to_disk", Switch, Own),
    nothing("text_encoder_batch_size", Whole, PLANNED),
    flag("vae_batch_size", Whole, Is("dataloader.vae_batch_size")),
    nothing("skip_cache_check", Switch, "cached data is checked by its content, which costs little"),
    nothing("lowram", Switch, PLANNED),
    nothing("highvram", Switch, PLANNED),
    nothing("no_half_vae", Switch, "the VAE computes in a type that is safe for it"),
    nothing("disable_mmap_load_safetensors", Switch, "files are read in one way"),
    nothing("sdpa", Switch, ATTENTION),
    nothing("xformers", Switch, ATTENTION),
    nothing("mem_eff_attn", Switch, ATTENTION),
    nothing("torch_compile", Switch, "the computation is always a planned graph"),
    nothing("dynamo_backend", Text, "the computation is always a planned graph"),
    nothing("opt_channels_last", Switch, "the layout is always channels last"),
    nothing("ddp_timeout", Number, ONE_DEVICE),
    nothing("ddp_gradient_as_bucket_view", Switch, ONE_DEVICE),
    nothing("ddp_static_graph", Switch, ONE_DEVICE),
    nothing("deepspeed", Switch, ONE_DEVICE),
    nothing("zero_stage", Whole, ONE_DEVICE),
    // Loss and noise.
    flag("min_snr_gamma", Number, Is("train.min_snr_gamma")),
    flag("noise_offset", Number, Is("train.noise_offset")),
    refused("noise_offset_random_strength", Switch, LATER),
    nothing("noise_offset_type", Text, "sd-scripts doesn't read it"),
    flag("multires_noise_iterations", Whole, Is("train.multires_noise_iterations")),
    flag("multires_noise_discount", Number, Is("train.multires_noise_discount")),
    flag("ip_noise_gamma", Number, Is("train.ip_noise_gamma")),
    refused("ip_noise_gamma_random_strength", Switch, LATER),
    flag("adaptive_noise_scale", Number, Is("train.adaptive_noise_scale")),
    flag("zero_terminal_snr", Switch, Is("train.zero_terminal_snr")),
    flag("scale_v_pred_loss_like_noise_pred", Switch, Is("train.scale_v_pred_loss_like_noise_pred")),
    refused("v_pred_like_loss", Number, LATER),
    flag("debiased_estimation_loss", Switch, Is("train.debiased_estimation_loss")),
    flag("loss_type", Text, Is("train.loss_type")),
    flag("huber_schedule", Text, Is("train.huber_schedule")),
    flag("huber_c", Number, Is("train.huber_c")),
    flag("huber_scale", Number, Is("train.huber_scale")),
    flag("min_timestep", Whole, Is("train.min_timestep")),
    flag("max_timestep", Whole, Own),
    flag("masked_loss", Switch, Own),
    refused("weighted_captions", Switch, LATER),
    flag("timestep_sampling", Text, Is("train.timestep_type")),
    flag("sigmoid_scale", Number, Is("train.logit_std")),
    refused("discrete_flow_shift", Number, FLOW),
    refused("model_prediction_type", Text, FLOW),
    refused("guidance_scale", Number, FLOW),
    refused("weighting_scheme", Text, FLOW),
    flag("logit_mean", Number, Is("train.logit_mean")),
    flag("logit_std", Number, Is("train.logit_std")),
    refused("mode_scale", Number, FLOW),
    refused("apply_t5_attn_mask", Switch, FLOW),
    refused("t5xxl_max_token_length", Whole, FLOW),
    // Samples and logs.
    flag("sample_every_n_steps", Whole, Own),
    flag("sample_every_n_epochs", Whole, Own),
    flag("sample_at_first", Switch, Own),
    flag("sample_prompts", Text, Own),
    flag("sample_sampler", Text, Own),
    nothing("logging_dir", Text, METRICS),
    flag("log_with", Text, Is("logging.log_with")),
    nothing("log_prefix", Text, METRICS),
    nothing("log_tracker_name", Text, METRICS),
    nothing("log_tracker_config", Text, METRICS),
    nothing("log_config", Switch, METRICS),
    nothing("wandb_run_name", Text, METRICS),
    nothing("wandb_api_key", Text, METRICS),
    nothing("console_log_level", Text, "errors always say all that is known"),
    nothing("console_log_file", Text, METRICS),
    nothing("console_log_simple", Switch, "errors always say all that is known"),
    // Validation.
    flag("validate_every_n_steps", Whole, Is("train.validate_every")),
    nothing("validate_every_n_epochs", Whole, "validation is counted in steps: --validate_every_n_steps"),
    nothing("max_validation_steps", Whole, "every picture that is set aside is measured"),
    // What GUIs write into their files and sd-scripts doesn't read.
    nothing("epoch", Whole, "sd-scripts doesn't read it; --max_train_epochs is what counts"),
    // Other files.
    flag("config_file", Text, Own),
    flag("dataset_config", Text, Own),
    // Where the pictures are.
    flag("train_data_dir", Text, Own),
    flag("reg_data_dir", Text, Own),
    refused("in_json", Text, "give the list as datasets[].folder_path instead"),
    refused("dataset_class", Text, "datasets from other Python modules can't be run"),
    refused("debug_dataset", Switch, "velatura plan shows what becomes of each picture"),
];

/// Settings of pictures: flags that count for all of them, or keys of a dataset file.
pub(super) static PICTURES: &[Flag] = &[
    flag("resolution", Sizes, Own),
    flag("enable_bucket", Switch, Own),
    flag("min_bucket_reso", Whole, Own),
    flag("max_bucket_reso", Whole, Own),
    flag("bucket_reso_steps", Whole, Own),
    flag("bucket_no_upscale", Switch, Own),
    nothing("resize_interpolation", Text, "pictures are resampled with Lanczos"),
    flag("caption_extension", Text, Own),
    flag("caption_extention", Text, Own),
    flag("shuffle_caption", Switch, Is("datasets.shuffle_tokens")),
    flag("keep_tokens", Whole, Is("datasets.keep_tokens")),
    flag("keep_tokens_separator", Text, Is("datasets.keep_tokens_separator")),
    refused("secondary_separator", Text, LATER),
    flag("enable_wildcard", Switch, Is("datasets.enable_wildcard")),
    flag("caption_separator", Text, Is("datasets.caption_separator")),
    flag("caption_prefix", Text, Is("datasets.caption_prefix")),
    flag("caption_suffix", Text, Is("datasets.caption_suffix")),
    flag("caption_dropout_rate", Number, Is("datasets.caption_dropout_rate")),
    refused("caption_dropout_every_n_epochs", Whole, "give --caption_dropout_rate"),
    flag("caption_tag_dropout_rate", Number, Is("datasets.token_dropout_rate")),
    flag("token_warmup_min", Whole, Refused(LATER, Off::At(1.0))),
    refused("token_warmup_step", Number, LATER),
    refused("color_aug", Switch, LATER),
    flag("flip_aug", Switch, Is("datasets.flip_x")),
    refused("face_crop_aug_range", Any, LATER),
    flag("random_crop", Switch, Is("datasets.random_crop")),
    flag("alpha_mask", Switch, Own),
    flag("cache_latents", Switch, Own),
    flag("cache_latents_to_disk", Switch, Own),
    nothing("cache_info", Switch, "sizes are read from the files' headers"),
    flag("conditioning_data_dir", Text, Own),
    flag("dataset_repeats", Whole, Own),
    flag("prior_loss_weight", Number, Own),
    flag("validation_split", Number, Is("datasets.validation")),
    nothing("validation_seed", Whole, "the pictures that are set aside are chosen by their content"),
];

/// Keys that only dataset files have.
pub(super) static FILE: &[Flag] = &[
    flag("batch_size", Whole, Own),
    flag("network_multiplier", Number, Refused(LATER, Off::At(1.0))),
    flag("image_dir", Text, Is("datasets.folder_path")),
    flag("num_repeats", Whole, Is("datasets.num_repeats")),
    flag("class_tokens", Text, Is("datasets.default_caption")),
    flag("is_reg", Switch, Own),
    refused("metadata_file", Text, "give the list itself as image_dir"),
    refused("custom_attributes", Any, "what is in it, only training scripts of one's own read; remove it"),
];

/// The word that `--network_args`' keys have here.
pub(super) static NETWORK_ARGS: &[Flag] = &[
    flag("conv_dim", Whole, Own),
    flag("conv_alpha", Number, Own),
    flag("algo", Text, Own),
    flag("dropout", Number, Is("network.dropout")),
    flag("rank_dropout", Number, Is("network.network_kwargs.rank_dropout")),
    flag("module_dropout", Number, Is("network.network_kwargs.module_dropout")),
    flag("loraplus_lr_ratio", Number, Is("train.loraplus_lr_ratio")),
    refused("loraplus_unet_lr_ratio", Number, "give loraplus_lr_ratio"),
    refused("loraplus_text_encoder_lr_ratio", Number, "give loraplus_lr_ratio"),
    refused("block_dims", Text, LATER),
    refused("block_alphas", Text, LATER),
    refused("conv_block_dims", Text, LATER),
    refused("conv_block_alphas", Text, LATER),
    refused("down_lr_weight", Text, "give train.param_groups"),
    refused("mid_lr_weight", Text, "give train.param_groups"),
    refused("up_lr_weight", Text, "give train.param_groups"),
    refused("block_lr_zero_threshold", Number, "give train.param_groups"),
    flag("preset", Text, Refused(LATER, Off::Word("full"))),
    refused("use_tucker", Switch, LATER),
    refused("use_scalar", Switch, LATER),
    refused("train_norm", Switch, LATER),
    refused("dora_wd", Switch, LATER),
];
