//! ai-toolkit's job files, key by key, and the shapes of config that tutorials of it show: each key is honoured, or named with the
//! reason why it has no effect, or refused together with all others that can't be done.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use velatura_config::{Loaded, load, schema::schema};

/// Every key of a training process with the value that it has there if nobody says anything (where that is possible here).
const DEFAULTS: &str = r#"
job: extension
config:
  name: my_lora
  process:
    - type: diffusion_trainer
      training_folder: "output/[name]"
      device: cuda:0
      trigger_word: p3r5on
      performance_log_every: 100
      log_dir: logs
      training_seed: 42
      sqlite_db_path: ./aitk_db.db
      torch_profiler: false
      first_sample: null
      guidance: null
      embedding: null
      decorator: null
      adapter: null
      slider: null
      network:
        {type: lora, linear: 4, linear_alpha: 1.0, conv: null, conv_alpha: null, dropout: null, network_kwargs: {}, lorm_config: null,
         transformer_only: true, lokr_full_rank: true, lokr_factor: -1, old_lokr_format: false, split_multistage_loras: true,
         layer_offloading: false, pretrained_lora_path: null, all_layers: false}
      save: {save_every: 1000, dtype: float16, max_step_saves_to_keep: 5, save_format: safetensors, push_to_hub: false, hf_repo_id: null, hf_private: false}
      logging: {log_every: 100, verbose: false, use_wandb: false, use_ui_logger: false, project_name: ai-toolkit, run_name: null}
      datasets:
        - {folder_path: /imgs, type: image, batch_size: null, default_caption: null, trigger_word: null, random_triggers: [],
           random_triggers_max: 1, caption_ext: .txt, random_scale: false, random_crop: false, resolution: [512, 768], scale: 1.0, buckets: true,
           bucket_tolerance: 64, is_reg: false, prior_reg: false, network_weight: 1.0, token_dropout_rate: 0, shuffle_tokens: false,
           caption_dropout_rate: 0, keep_tokens: 0, flip_x: false, flip_y: false, augments: [], augmentations: null, replacements: [],
           control_path: null, control_path_1: null, control_path_2: null, control_path_3: null, control_from_same_folder: false,
           full_size_control_images: true, inpaint_path: null, alpha_mask: false, mask_path: null, unconditional_path: null,
           invert_mask: false, mask_min_value: 0, num_repeats: 1, cache_latents: true, cache_latents_to_disk: true,
           cache_tensors_to_disk: false, cache_clip_vision_to_disk: false, cache_text_embeddings: false,
           load_image_when_caching_latents: true, standardize_images: false, loss_multiplier: 1.0, num_workers: 2, prefetch_factor: 2,
           cache_latents_num_workers: 6, square_crop: false, replay_transforms: true, num_frames: 1, shrink_video_to_frames: true, fps: 24,
           auto_frame_count: false, controls: [], fast_image_size: false, do_i2v: false, do_audio: false}
      train:
        {steps: 1000, batch_size: 1, gradient_accumulation: 1, gradient_accumulation_steps: 1, single_item_batching: false, dtype: fp32,
         gradient_checkpointing: true, max_grad_norm: 1.0, start_step: null, disable_sampling: false, skip_first_sample: false,
         force_first_sample: false, merge_network_on_save: false, merge_network_on_save_strength: 1.0, switch_boundary_every: 1,
         max_loss: null, max_loss_debug: false, lr: 1.0e-6, unet_lr: 1.0e-6, text_encoder_lr: 1.0e-6, refiner_lr: 1.0e-6,
         embedding_lr: 1.0e-6, adapter_lr: 1.0e-6, optimizer: adamw, optimizer_params: {}, lr_scheduler: constant, lr_scheduler_params: {},
         do_paramiter_swapping: false, paramiter_swapping_factor: 0.1,
         ema_config: {use_ema: false, ema_decay: 0.999, use_feedback: false, param_multiplier: 1.0}, train_unet: true,
         train_text_encoder: false, train_refiner: true, train_turbo: false, unload_text_encoder: false, cache_text_embeddings: false,
         bypass_guidance_embedding: false, xformers: false, sdp: false, attention_backend: native, noise_scheduler: ddpm,
         num_train_timesteps: 1000, min_denoising_steps: 0, max_denoising_steps: 999, timestep_type: sigmoid, content_or_style: balanced,
         content_or_style_reg: balanced, next_sample_timesteps: 8, linear_timesteps: false, linear_timesteps2: false, loss_type: mse,
         loss_target: noise, min_snr_gamma: null, snr_gamma: null, learnable_snr_gos: false, reg_weight: 1.0, inverted_mask_prior: false,
         inverted_mask_prior_multiplier: 0.5, diff_output_preservation: false, diff_output_preservation_multiplier: 1.0,
         diff_output_preservation_class: "", blank_prompt_preservation: false, blank_prompt_preservation_multiplier: 1.0,
         do_prior_divergence: false, do_fft_loss: false, t0_loss_target: false, pred_scaler: 1.0, correct_pred_norm: false,
         correct_pred_norm_multiplier: 1.0, target_norm_std: null, do_guidance_loss: false, guidance_loss_target: 3.0,
         do_guidance_loss_cfg_zero: false, guidance_loss_schedule: sigma, unconditional_prompt: "", do_differential_guidance: false,
         differential_guidance_scale: 3.0, diffusion_feature_extractor_path: null, diffusion_feature_extractor_weight: 1.0, do_cfg: false,
         do_random_cfg: false, cfg_scale: 1.0, max_cfg_scale: 1.0, cfg_rescale: null, audio_loss_multiplier: 1.0, noise_offset: 0.0,
         dynamic_noise_offset: false, noise_multiplier: 1.0, target_noise_multiplier: 1.0, random_noise_multiplier: 0.0,
         random_noise_shift: 0.0, do_signal_correction_noise: false, signal_correction_noise_scale: 1.0, do_batch_noise_correction: false,
         batch_noise_correction_scale: 0.1, do_signal_amplification: false, signal_amplification_strength: 0.5, img_multiplier: 1.0,
         latent_multiplier: 1.0, noisy_latent_multiplier: 1.0, match_noise_norm: false, optimal_noise_pairing_samples: 1,
         force_consistent_noise: false, blended_blur_noise: false, standardize_images: false, standardize_latents: false, weight_jitter: 0.0,
         negative_prompt: null, prompt_dropout_prob: 0.0, prompt_saturation_chance: 0.0, short_and_long_captions: false,
         short_and_long_captions_encoder_split: false, validation_config: null}
      model:
        {name_or_path: runwayml/stable-diffusion-v1-5, arch: sd1, is_v2: false, is_xl: false, is_flux: false, is_v3: false, is_lumina2: false,
         dtype: float16, vae_path: null, vae_device: null, vae_dtype: null, te_device: null, te_dtype: null, refiner_name_or_path: null,
         lora_path: null, assistant_lora_path: null, inference_lora_path: null, unconditional_lora_path: null, use_text_encoder_1: true,
         use_text_encoder_2: true, text_encoder_bits: 16, unet_path: null, quantize: false, quantize_te: false, qtype: qfloat8,
         qtype_te: qfloat8, low_vram: false, attn_masking: false, ignore_if_contains: null, only_if_contains: null,
         split_model_over_gpus: false, split_model_other_module_param_count_scale: 0.3, te_name_or_path: null, extras_name_or_path: null,
         layer_offloading: false, layer_offloading_transformer_percent: 1.0, layer_offloading_text_encoder_percent: 1.0,
         accuracy_recovery_adapter: null, compile: false, block_compile: false, compile_mode: default, compile_fullgraph: false,
         compile_dynamic: true, model_kwargs: {}, model_paths: {}}
      sample:
        {sampler: ddpm, sample_every: 100, sample_start_step: 0, width: 512, height: 512, neg: false, seed: 0, walk_seed: false,
         guidance_scale: 7, sample_steps: 20, network_multiplier: 1, guidance_rescale: 0.0, format: jpg, adapter_conditioning_scale: 1.0,
         refiner_start_at: 0.5, extra_values: [], num_frames: 1, fps: 16, prompts: ["[trigger] on a hill --n blurry --w 512 --h 768 --seed 3 --cfg 4 --steps 9"],
         samples: [{prompt: a, width: 512, height: 512, neg: "", seed: 1, guidance_scale: 7, sample_steps: 20, fps: 16, num_frames: 1,
                    ctrl_img: null, ctrl_idx: 0, ctrl_img_1: null, ctrl_img_2: null, ctrl_img_3: null, network_multiplier: 1.0, do_cfg_norm: false}]}
meta: {name: "[name]", version: "1.0"}
"#;

fn read(text: &str) -> Loaded {
    load(text.as_bytes(), "job.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{}", text.get(..600).unwrap_or(text)))
}

fn error(text: &str) -> String {
    format!("{:#}", load(text.as_bytes(), "job.yaml", &[]).expect_err(text))
}

const MINIMAL: &str = "name: a\nmodel: {name_or_path: m}\ndatasets:\n  - folder_path: /imgs\n";

#[test]
fn a_job_that_spells_out_every_default_is_taken_as_it_is() {
    let Loaded { config, notices } = read(DEFAULTS);
    assert_eq!((config.name.as_str(), config.seed, config.train.lr), ("my_lora", 42, 1e-6));
    assert_eq!(config.run_folder(), std::path::Path::new("output/my_lora/my_lora"));
    assert_eq!((config.network.linear, config.network.linear_alpha, config.network.conv), (4, 1.0, 0));
    assert_eq!(config.datasets[0].resolution, [512, 768]);
    let first = &config.sample.samples[0];
    assert_eq!((first.prompt.as_str(), first.neg.as_str(), first.height, first.seed), ("p3r5on on a hill", "blurry", 768, 3));
    assert_eq!((first.guidance_scale, first.sample_steps, config.sample.samples.len()), (4.0, 9, 2));
    for key in
        ["device: cuda:0", "meta", "performance_log_every", "train.xformers", "model.low_vram", "datasets[0].num_workers", "sample.format"]
    {
        assert!(notices.iter().any(|n| n.contains(key)), "no notice about {key}: {notices:#?}");
    }
    // The frozen copy says the same without a word about any of it.
    let again = read(&config.to_yaml().unwrap());
    assert_eq!(again.config, config);
    assert!(again.notices.is_empty(), "{:?}", again.notices);
}

/// `(section, key)` of everything that is taken only while it is off.
fn later() -> Vec<(String, String)> {
    fn collect(section: &str, shape: &Value, found: &mut Vec<(String, String)>) {
        for (key, shape) in shape["properties"].as_object().into_iter().flatten() {
            if shape["description"].as_str().is_some_and(|text| text.starts_with("Not supported yet")) {
                found.push((section.to_string(), key.clone()));
            }
            let inner = if shape["type"] == "array" { &shape["items"] } else { shape };
            collect(&if section.is_empty() { key.clone() } else { format!("{section}.{key}") }, inner, found);
        }
    }
    let mut found = Vec::new();
    collect("", &schema(), &mut found);
    found
}

#[test]
fn every_key_that_can_not_be_done_is_refused_by_its_path_when_it_is_on() {
    let keys = later();
    assert!(!keys.is_empty());
    for (section, key) in &keys {
        let mut config: Value = serde_json::json!({"name": "a", "model": {"name_or_path": "m"}, "datasets": [{"folder_path": "/imgs"}]});
        let mut at = &mut config;
        for part in section.split('.').filter(|part| !part.is_empty()) {
            let listed = ["datasets", "samples", "param_groups"].contains(&part);
            if at.get(part).is_none() {
                at[part] = if listed { serde_json::json!([{}]) } else { serde_json::json!({}) };
            }
            at = if listed { &mut at[part][0] } else { &mut at[part] };
        }
        // Not the neutral value of any key.
        at[key] = serde_json::json!(0.123);
        let message = error(&config.to_string());
        assert!(message.contains(key.as_str()) && message.contains("not supported yet"), "{section}.{key}: {message}");
    }
}

#[test]
fn all_keys_of_a_job_that_can_not_be_done_are_told_at_once() {
    let job = DEFAULTS
        .replace("flip_y: false", "flip_y: true")
        .replace("do_fft_loss: false", "do_fft_loss: true")
        .replace("is_flux: false", "is_flux: true")
        .replace("push_to_hub: false", "push_to_hub: true")
        .replace("full_if_contains", "");
    let message = error(&job);
    for key in ["4 keys", "datasets[0].flip_y", "train.do_fft_loss", "model.is_flux", "save.push_to_hub"] {
        assert!(message.contains(key), "{key} is not in: {message}");
    }
}

#[test]
fn both_spellings_of_accumulation_are_one_key() {
    let with = |new: u64, old: u64| {
        let text = DEFAULTS.replace(
            "gradient_accumulation: 1, gradient_accumulation_steps: 1",
            &format!("gradient_accumulation: {new}, gradient_accumulation_steps: {old}"),
        );
        load(text.as_bytes(), "job.yaml", &[]).map(|loaded| loaded.config.train.gradient_accumulation)
    };
    assert_eq!((with(4, 1).unwrap(), with(1, 4).unwrap(), with(4, 4).unwrap()), (4, 4, 4));
    let message = format!("{:#}", with(2, 4).unwrap_err());
    assert!(message.contains("gradient_accumulation (2)") && message.contains("gradient_accumulation_steps (4)"), "{message}");
}

#[test]
fn a_job_of_several_processes_or_of_another_kind_is_refused_in_words() {
    let twice = DEFAULTS.replace("meta:", "    - {type: sd_trainer}\nmeta:");
    assert!(error(&twice).contains("config.process has 2 entries"), "{}", error(&twice));
    assert!(error("job: extension\nconfig:\n  name: a\n  process: []\n").contains("config.process has 0 entries"));
    assert!(error("job: generate\nconfig:\n  name: a\n  process: [{}]\n").contains("generate"));
    assert!(error(&DEFAULTS.replace("diffusion_trainer", "concept_slider")).contains("concept_slider"));
    assert!(error(&DEFAULTS.replace("noise_scheduler: ddpm", "noise_scheduler: flowmatch")).contains("train.noise_scheduler"));
    let misplaced = DEFAULTS.replace("  name: my_lora\n", "  name: my_lora\n  trigger_word: x\n");
    assert!(error(&misplaced).contains("trigger_word"), "{}", error(&misplaced));
}

/// What tutorials in the older shape show.
#[test]
fn configs_of_tutorials_load_or_are_answered_in_words() {
    let loads = |extra: &str| read(&format!("{MINIMAL}{extra}\n"));
    let model = MINIMAL.replace("{name_or_path: m}", "{name_or_path: m, low_vram: true, use_8bit_optimizer: true}");
    let shown = "training:\n  batch_size: 2\n  gradient_accumulation_steps: 4\n  mixed_precision: \"bf16\"\n\ndataloader:\n  num_workers: 6\n  \
                 prefetch_factor: 2\n  cache_latents: true\n";
    let config = read(&format!("{model}{shown}")).config;
    assert_eq!((config.train.optimizer.as_str(), config.train.gradient_accumulation, config.dataloader.num_workers), ("adamw8bit", 4, 6));
    // The flat dictionaries that are shown in Python, under `training`.
    let before = r#"{"batch_size": 2, "gradient_checkpointing": False, "mixed_precision": "no", "num_workers": 1, "optimizer": "AdamW", "lr": 1e-4, "gradient_accumulation": 1}"#;
    let config = loads(&format!("training: {before}")).config;
    assert_eq!((config.train.dtype, config.dataloader.num_workers, config.train.lr), (base::DType::F32, 1, 1e-4));
    let after = r#"{"batch_size": 8, "gradient_checkpointing": True, "mixed_precision": "fp16", "num_workers": 8, "optimizer": "Prodigy", "lr": 1.0, "gradient_accumulation": 1, "use_8bit_optimizer": True, "enable_xformers": True}"#;
    let loaded = loads(&format!("training: {after}"));
    assert_eq!((loaded.config.train.optimizer.as_str(), loaded.config.dataloader.num_workers), ("prodigy8bit", 8));
    for key in ["train.mixed_precision: fp16", "train.num_workers", "train.use_8bit_optimizer", "train.enable_xformers"] {
        assert!(loaded.notices.iter().any(|n| n.contains(key)), "no notice about {key}: {:#?}", loaded.notices);
    }
    for (optimizer, params) in [
        ("adam8bit", "betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0"),
        ("prodigy8bit", "betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0, decouple: true"),
        ("Prodigy", "weight_decay: 0.01, use_bias_correction: true, safeguard_warmup: true"),
        ("automagic", "min_lr: 1e-7, max_lr: 1e-3, lr_bump: 1e-6"),
        ("AdamW8bit", "weight_decay: 0.01, betas: [0.9, 0.999]"),
    ] {
        loads(&format!("train: {{optimizer: {optimizer}, optimizer_params: {{{params}}}}}"));
    }
    loads("train: {optimizer: adafactor, do_paramiter_swapping: true, paramiter_swapping_factor: 0.1}");
    loads("train: {lr_scheduler: CosineAnnealingLR, lr_scheduler_params: {T_max: 1000, eta_min: 1e-6}}");
    loads("train: {lr_scheduler: OneCycleLR, lr_scheduler_params: {pct_start: 0.1, anneal_strategy: cos}}");
    loads("dataloader: {num_workers: 8, pin_memory: true, persistent_workers: true, shuffle: true}");
    let pair = error(&format!("{MINIMAL}train: {{optimizer: automagic, optimizer_params: {{eps: [1e-30, 1e-3]}}}}\n"));
    assert!(pair.contains("train.optimizer_params") && pair.contains("eps") && pair.contains("a number"), "{pair}");
    // The same keys where they don't belong.
    let message = error(&format!("{MINIMAL}batch_size: 2\n"));
    assert!(message.contains("`batch_size`") && message.contains("under `train`"), "{message}");
    let message = error(&format!("{MINIMAL}train: {{num_workers: 1}}\ndataloader: {{num_workers: 2}}\n"));
    assert!(message.contains("train.num_workers: 1") && message.contains("dataloader.num_workers: 2"), "{message}");
    assert!(error("model:\n  low_vram: true\n").contains("is missing"));
}
