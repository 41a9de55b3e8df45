//! Whole job files with every key that ai-toolkit's web interface writes, at the values it gives them for Stable Diffusion 1.5.
#![allow(clippy::unwrap_used)]

use velatura_config::{Loaded, load};

const JOB: &str = r#"job: extension
config:
  name: my_first_lora_v1
  process:
    - type: diffusion_trainer
      training_folder: output
      sqlite_db_path: ./aitk_db.db
      device: cuda
      trigger_word: null
      performance_log_every: 10
      network:
        {type: lora, linear: 32, linear_alpha: 32, conv: 16, conv_alpha: 16, lokr_full_rank: true, lokr_factor: -1,
         network_kwargs: {ignore_if_contains: []}}
      save: {dtype: bf16, save_every: 250, max_step_saves_to_keep: 4, save_format: diffusers, push_to_hub: false}
      datasets:
        - {folder_path: /datasets/cat, control_path: null, mask_path: null, mask_min_value: 0.1, default_caption: "", caption_ext: txt,
           caption_dropout_rate: 0.05, cache_latents_to_disk: false, is_reg: false, network_weight: 1, resolution: [512, 768, 1024],
           controls: [], shrink_video_to_frames: true, num_frames: 1, do_i2v: true, flip_x: false, flip_y: false, num_repeats: 1}
      train:
        {batch_size: 1, bypass_guidance_embedding: false, steps: 3000, gradient_accumulation: 1, train_unet: true,
         train_text_encoder: false, gradient_checkpointing: true, noise_scheduler: ddpm, optimizer: adamw8bit, timestep_type: sigmoid,
         content_or_style: balanced, optimizer_params: {weight_decay: 1.0e-4}, unload_text_encoder: false, cache_text_embeddings: false,
         lr: 1.0e-4, ema_config: {use_ema: false, ema_decay: 0.99}, skip_first_sample: false, force_first_sample: false,
         disable_sampling: false, dtype: bf16, diff_output_preservation: false, diff_output_preservation_multiplier: 1,
         diff_output_preservation_class: person, switch_boundary_every: 1, loss_type: mse}
      logging: {log_every: 1, use_ui_logger: true}
      model:
        {name_or_path: sd-legacy/stable-diffusion-v1-5, quantize: false, qtype: qfloat8, quantize_te: false, qtype_te: qfloat8, arch: sd15,
         low_vram: false, model_kwargs: {}, layer_offloading: false, layer_offloading_text_encoder_percent: 1,
         layer_offloading_transformer_percent: 1}
      sample:
        {sampler: ddpm, sample_every: 250, width: 512, height: 512,
         samples: [{prompt: "woman with red hair"}, {prompt: "a cat", width: 768, seed: 7, network_multiplier: 1}], neg: "", seed: 42,
         walk_seed: true, guidance_scale: 6, sample_steps: 25, num_frames: 1, fps: 1}
meta: {name: "[name]", version: "1.0"}
"#;

#[track_caller]
fn read(job: &str) -> Loaded {
    load(job.as_bytes(), "job.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}"))
}

#[track_caller]
fn noted(job: &str, words: &[&str]) -> Loaded {
    let loaded = read(job);
    for word in words {
        assert!(loaded.notices.iter().any(|notice| notice.contains(word)), "no notice about {word}: {:#?}", loaded.notices);
    }
    loaded
}

#[test]
fn a_job_of_the_web_interface_loads_and_says_what_has_no_effect() {
    let words = ["save.save_format: diffusers", "datasets[0].do_i2v", "device: cuda", "logging.use_ui_logger", "sqlite_db_path"];
    let config = noted(JOB, &words).config;
    assert_eq!((config.network.linear, config.network.conv, config.train.steps), (32, 16, 3000));
    assert_eq!(config.save.layout, velatura_config::Layout::Kohya);
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
}

/// Other choices of the interface's forms.
#[test]
fn jobs_with_other_choices_of_the_web_interface_load() {
    noted(&JOB.replace("save_format: diffusers", "save_format: safetensors"), &["datasets[0].do_i2v"]);
    for (from, to) in [
        ("do_i2v: true", "do_i2v: false, do_audio: false, fps: 24, auto_frame_count: false"),
        ("trigger_word: null", "trigger_word: p3r5on"),
        ("trigger_word: null", "trigger_word: ''"),
        ("type: diffusion_trainer", "type: ui_trainer"),
        ("unload_text_encoder: false, cache_text_embeddings: false", "unload_text_encoder: false, cache_text_embeddings: true"),
        ("caption_dropout_rate: 0.05", "caption_dropout_rate: 0"),
        ("is_reg: false", "is_reg: true"),
        ("flip_x: false", "flip_x: true"),
        ("mask_path: null", "mask_path: /masks"),
        ("use_ema: false", "use_ema: true"),
        ("optimizer: adamw8bit", "optimizer: adafactor"),
        ("optimizer: adamw8bit", "optimizer: prodigy"),
        ("optimizer: adamw8bit", "optimizer: automagic"),
        ("loss_type: mse", "loss_type: mae"),
        ("timestep_type: sigmoid", "timestep_type: linear"),
        ("dtype: bf16, diff", "dtype: fp16, diff"),
        ("dtype: bf16, save", "dtype: fp32, save"),
        ("disable_sampling: false", "disable_sampling: true"),
        ("use_ui_logger: true", "use_ui_logger: true, use_wandb: false"),
        ("walk_seed: true", "walk_seed: true, prompts: []"),
    ] {
        let job = JOB.replacen(from, to, 1);
        assert_ne!(job, JOB, "{from}");
        load(job.as_bytes(), "job.yaml", &[]).unwrap_or_else(|e| panic!("{to}: {e:#}"));
    }
}

#[test]
fn what_would_change_the_result_stays_refused() {
    for (from, to, word) in [
        ("push_to_hub: false", "push_to_hub: true", "save.push_to_hub"),
        ("flip_y: false", "flip_y: true", "datasets[0].flip_y"),
        ("save_format: diffusers", "save_format: ckpt", "save.save_format: ckpt"),
        ("controls: []", "controls: [depth]", "datasets[0].controls"),
        ("network_weight: 1,", "network_weight: 0.5,", "datasets[0].network_weight"),
        ("loss_type: mse", "loss_type: wavelet", "train.loss_type"),
        ("type: lora", "type: lokr", "network.type"),
    ] {
        let job = JOB.replacen(from, to, 1);
        assert_ne!(job, JOB, "{from}");
        let error = format!("{:#}", load(job.as_bytes(), "job.yaml", &[]).expect_err(to));
        assert!(error.contains(word), "{word} is not in: {error}");
    }
}
