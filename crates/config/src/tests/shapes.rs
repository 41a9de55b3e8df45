//! The shapes that a config comes in, and what becomes of it.

use super::*;

#[test]
fn the_older_shape_of_configs_is_taken_as_it_is() {
    let text = format!(
        "{MINIMAL}training:\n  batch_size: 2\n  gradient_accumulation_steps: 4\n  mixed_precision: \"bf16\"\n  enable_xformers: true\n\
         dataloader:\n  num_workers: 6\n  prefetch_factor: 3\n  cache_latents: true\n  pin_memory: true\n"
    )
    .replace("name_or_path: m", "name_or_path: m, low_vram: true, enable_xformers: true");
    let Loaded { config, notices } = read(&text);
    assert_eq!((config.train.batch_size, config.train.gradient_accumulation, config.train.dtype), (2, 4, base::DType::BF16));
    assert_eq!((config.dataloader.num_workers, config.dataloader.prefetch_factor), (6, 3));
    assert!(config.datasets[0].cache_latents && config.datasets[0].cache_latents_to_disk);
    for key in ["train.mixed_precision", "train.enable_xformers", "model.enable_xformers", "model.low_vram", "dataloader.pin_memory"] {
        assert!(notices.iter().any(|n| n.contains(key)), "no notice about {key}: {notices:#?}");
    }
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    let uncached = read(&text.replace("cache_latents: true", "cache_latents: false")).config;
    assert!(!uncached.datasets[0].cache_latents && !uncached.datasets[0].cache_latents_to_disk);
    assert_eq!(with("training: {mixed_precision: fp16}").train.dtype, base::DType::F16);
    assert_eq!(with("training: {mixed_precision: \"no\"}").train.dtype, base::DType::F32);
}

#[test]
fn a_retired_key_beside_the_new_one_is_a_conflict_only_where_they_disagree() {
    with("train: {mixed_precision: bf16, dtype: bf16}");
    assert_says(&refused_with("train: {mixed_precision: bf16, dtype: fp32}"), &["train.mixed_precision", "train.dtype"]);
    let both = "train: {use_8bit_optimizer: true, optimizer: adafactor}";
    assert_says(&refused_with(both), &["train.use_8bit_optimizer", "train.optimizer: adafactor"]);
    let model = MINIMAL.replace("name_or_path: m", "name_or_path: m, use_8bit_optimizer: true");
    assert_says(&refused(&format!("{model}train: {{optimizer: adafactor}}\n")), &["model.use_8bit_optimizer", "train.optimizer"]);
    assert_says(&refused_with("train: {steps: 1}\ntraining: {steps: 2}"), &["duplicate", "train"]);
}

#[test]
fn the_resolved_config_reads_back_to_the_identical_value() {
    let config = with(
        "trigger_word: 'null'\ncache_dir: /c\nseed: 18446744073709551615\nmemory: {budget: 1.5GiB}\nlogging: {log_every: 0}\n\
         network: {type: locon, rank: 8, alpha: 4, dropout: 0.1, ignore_if_contains: [attn2]}\n\
         train: {epochs: 3, lr: 3.3e-5, unet_lr: 1e-3, lr_scheduler: cosine, lr_warmup_steps: 0.1, gradient_checkpointing: [down, 'mid*'],\n\
           optimizer_params: {betas: [0.9, 0.99], eps: 1e-6}, min_snr_gamma: 5, loss_type: smooth_l1, huber_c: 0.3,\n\
           multires_noise_iterations: 7, ip_noise_gamma: 0.1, zero_terminal_snr: true, timestep_type: logit_normal, logit_mean: -0.5,\n\
           linear_timesteps2: true, reg_weight: 0.7, max_denoising_steps: 800, loraplus_lr_ratio: 16,\n\
           do_paramiter_swapping: true, paramiter_swapping_factor: 0.2, ema_config: {use_ema: true, ema_decay: 0.99, warmup: false},\n\
           param_groups: [{contains: attn2, lr: 1e-5}, {contains: [up_blocks, x], lr_scale: 0.5, weight_decay: 0}], dtype: float32, max_token_length: 150}\n\
         save: {dtype: bf16, layout: diffusers, keep: 2}\n\
         sample: {walk_seed: true, seed: 7, neg: 'no: \"x\"', prompts: ['a [trigger] --w 256 --s 5', 'b']}",
    );
    let again = read(&config.to_yaml().unwrap());
    assert_eq!(again.config, config);
    assert!(again.notices.is_empty(), "{:?}", again.notices);
    assert_eq!(config.to_json().unwrap()["memory"]["budget"], 1_610_612_736);
    assert_eq!(read(&read(MINIMAL).config.to_yaml().unwrap()).config, read(MINIMAL).config);
}

#[test]
fn sample_prompts_carry_flags_seeds_and_the_trigger_word() {
    let config = with(
        "trigger_word: sks\nsample: {seed: 10, walk_seed: true, guidance_scale: 4, prompts: ['a [trigger] cat --n ugly -- dog --w 256 --h 128 --l 2.5 --s 9', 'b --d 99', 'c'],\n\
         samples: [{prompt: d, neg: false, sample_steps: 3}]}",
    );
    let samples = &config.sample.samples;
    let first = &samples[0];
    assert_eq!((first.prompt.as_str(), first.neg.as_str(), first.width, first.height), ("a sks cat", "ugly -- dog", 256, 128));
    assert_eq!((first.guidance_scale, first.sample_steps, first.seed), (2.5, 9, 10));
    assert_eq!(samples.iter().map(|s| s.seed).collect::<Vec<_>>(), [10, 99, 12, 13]);
    assert_eq!((samples[3].sample_steps, samples[3].guidance_scale), (3, 4.0));
    assert_says(&refused_with("sample: {prompts: ['a --w wide']}"), &["--w wide", "not a number"]);
    assert_says(&refused_with("sample: {prompts: ['a --w 100']}"), &["width", "multiple of 8"]);
    assert_says(&refused_with("sample: {prompts: ['a --zz 100']}"), &["--zz"]);
}

#[test]
fn overrides_are_read_like_the_file_and_may_address_a_dataset() {
    assert_eq!(set("train.lr", "1e-3").unwrap().train.lr, 1e-3);
    assert_eq!(set("train.learning_rate", "1e-3").unwrap().train.lr, 1e-3);
    assert_eq!(set("name", "1.10").unwrap().name, "1.10");
    assert_eq!(set("datasets.0.resolution", "[256, 512]").unwrap().datasets[0].resolution, [256, 512]);
    assert_eq!(set("datasets.0.resolution", "256").unwrap().datasets[0].folder_path, Path::new("/imgs"));
    assert_eq!(set("train.optimizer_params.weight_decay", "0.5").unwrap().train.optimizer_params["weight_decay"], 0.5);
    assert_eq!(set("sample.prompts", "[a, 'b, c']").unwrap().sample.samples.len(), 2);
    for (key, value, part) in [
        ("train.lrr", "1", "nearest key is `train.lr`"),
        ("train.steps", "x", "whole number"),
        ("datasets.1.resolution", "256", "1 dataset,"),
        ("train.lr", "", "missing"),
        ("train..lr", "1", "not a key"),
        ("a b", "1", "not a key"),
    ] {
        assert_says(&format!("{:#}", set(key, value).unwrap_err()), &["--set", key, part]);
    }
    assert_eq!(parse_override("a.b= c=d ").unwrap(), ("a.b".to_string(), "c=d".to_string()));
    assert!(parse_override("a.b").is_err());
}

#[test]
fn an_ai_toolkit_job_file_is_taken_as_it_is() {
    let job = "---\njob: extension\nconfig:\n  name: my_lora\n  process:\n    - type: 'sd_trainer'\n      training_folder: output\n      device: cuda:0\n      \
               trigger_word: p3r5on\n      performance_log_every: 100\n      network: {type: lora, linear: 16, linear_alpha: 16}\n      \
               save: {dtype: float16, save_every: 250, max_step_saves_to_keep: 4, push_to_hub: false}\n      \
               datasets:\n        - {folder_path: /imgs, caption_ext: txt, caption_dropout_rate: 0.05, shuffle_tokens: false, cache_latents_to_disk: true, resolution: [512, 768]}\n      \
               train: {batch_size: 1, steps: 2000, gradient_accumulation_steps: 4, train_unet: true, train_text_encoder: false, gradient_checkpointing: true,\n              \
                 noise_scheduler: ddpm, optimizer: adamw, lr: 1.0e-4, ema_config: {use_ema: false, ema_decay: 0.99}, dtype: bf16, xformers: true}\n      \
               model: {name_or_path: runwayml/stable-diffusion-v1-5, quantize: true, low_vram: false, is_flux: false}\n      \
               sample: {sampler: ddpm, sample_every: 250, width: 512, height: 512, prompts: ['[trigger] a'], neg: '', seed: 42, walk_seed: true, guidance_scale: 4, sample_steps: 20}\n\
               meta: {name: '[name]', version: '1.0'}\n";
    let Loaded { config, notices } = read(job);
    assert_eq!((config.name.as_str(), config.device.as_str(), config.train.steps), ("my_lora", "auto", 2000));
    assert_eq!(config.datasets[0].resolution, [512, 768]);
    assert_eq!(config.train.gradient_accumulation, 4);
    assert_eq!(config.sample.samples[0].prompt, "p3r5on a");
    for key in ["device: cuda:0", "meta", "performance_log_every", "train.xformers", "model.qtype", "sample.sampler"] {
        assert!(notices.iter().any(|n| n.contains(key)), "no notice about {key}: {notices:#?}");
    }
    assert_says(&refused(&job.replace("lr: 1.0e-4", "lrx: 1")), &["`train.lrx`", "train.lr`"]);
    assert_says(&refused(&job.replace("job: extension", "job: generate")), &["generate"]);
    assert_says(&refused(&job.replace("'sd_trainer'", "concept_slider")), &["concept_slider"]);
}
