//! ai-toolkit's job files, key by key, and the shapes of config that tutorials of it show: each key is honoured, or named with the
//! reason why it has no effect, or refused together with all others that can't be done.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use velatura_config::{Loaded, load, schema::schema};

/// Every key of a training process with the value that it has there if nobody says anything (where that is possible here).
const DEFAULTS: &str = include_str!("every_default.yaml");

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
            let inner = if shape["items"].is_object() { &shape["items"] } else { shape };
            collect(&if section.is_empty() { key.clone() } else { format!("{section}.{key}") }, inner, found);
        }
    }
    let mut found = Vec::new();
    collect("", &schema()["$defs"]["run"], &mut found);
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

/// A job is written for a GPU as a matter of course; whoever writes one into a file of velatura's own wants one.
#[test]
fn a_gpu_is_told_to_be_missing_in_the_same_words_in_every_shape() {
    let why = "this version has no GPU backend yet and trains on the CPU";
    for device in ["cuda", "cuda:0", "cuda:1", " CUDA:0 ", "gpu", "mps", "xpu", "rocm", "hip:0"] {
        let job = DEFAULTS.replace("device: cuda:0", &format!("device: '{device}'"));
        let Loaded { config, notices } = read(&job);
        assert_eq!(config.device, "auto");
        assert!(notices.iter().any(|n| n.contains(&format!("device: {device} has no effect here: {why}"))), "{notices:?}");
        let message = error(&format!("{MINIMAL}device: '{device}'\n"));
        assert!(message.contains(&format!("device: {} can't be used: {why}; write auto or cpu", device.trim())), "{message}");
    }
    assert!(error(&format!("{MINIMAL}device: toaster\n")).contains("device: toaster is unknown; write auto or cpu"));
    assert!(error(&DEFAULTS.replace("cuda:0", "toaster")).contains("device: toaster is unknown"));
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
