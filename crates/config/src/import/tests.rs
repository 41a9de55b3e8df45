//! Whole imports: files and commands as people have them.

use super::flags::{FILE, Flag, Kind, Meaning, NETWORK_ARGS, PICTURES, RUN};
use super::*;
use crate::RunConfig;
use serde_json::Value;
use tempfile::TempDir;

/// Writes files into a folder and imports the first `sources` of them.
#[track_caller]
fn try_import(files: &[(&str, &str)], sources: usize) -> Result<Imported> {
    let dir = tempfile::tempdir().unwrap();
    import_in(&dir, files, sources)
}

fn import_in(dir: &TempDir, files: &[(&str, &str)], sources: usize) -> Result<Imported> {
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let sources: Vec<Source> = files[..sources].iter().map(|(name, _)| Source::File(dir.path().join(name))).collect();
    import(&sources)
}

#[track_caller]
fn imported(name: &str, content: &str) -> (RunConfig, Vec<String>) {
    let imported = try_import(&[(name, content)], 1).unwrap_or_else(|e| panic!("{e:#}"));
    let loaded = crate::load(imported.yaml.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{}", imported.yaml));
    (loaded.config, imported.notes)
}

#[track_caller]
fn refused(name: &str, content: &str, words: &[&str]) {
    let error = format!("{:#}", try_import(&[(name, content)], 1).expect_err("it is accepted"));
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[track_caller]
fn noted(notes: &[String], words: &[&str]) {
    for word in words {
        assert!(notes.iter().any(|note| note.contains(word)), "no note about {word}: {notes:#?}");
    }
}

const SCRIPT: &str = r#"#!/bin/bash
# my first LoRA
export MODEL="/models/sd v1-5.safetensors"
NAME=cat
accelerate launch --num_cpu_threads_per_process=2 --mixed_precision fp16 "./train_network.py" \
  --pretrained_model_name_or_path="$MODEL" \
  --train_data_dir=/data/train --output_dir=/out --output_name "my ${NAME}" \
  --resolution=512,512 --train_batch_size=2 --max_train_epochs 10 \
  --learning_rate=1e-4 --unet_lr=1e-4 --text_encoder_lr=5e-5 \
  --network_module=networks.lora --network_dim=32 --network_alpha=16 \
  --network_args "conv_dim=8" "conv_alpha=4" \
  --optimizer_type=AdamW8bit --optimizer_args weight_decay=0.1 betas=0.9,0.95 \
  --lr_scheduler=cosine_with_restarts --lr_scheduler_num_cycles=3 --lr_warmup_steps=100 \
  --mixed_precision=bf16 --save_precision=fp16 --save_every_n_epochs=2 --save_last_n_epochs=5 --seed=1234 --clip_skip=2 \
  --min_snr_gamma=5 --noise_offset=0.05 --max_grad_norm=0.5 \
  --enable_bucket --min_bucket_reso=320 --max_bucket_reso=960 --bucket_reso_steps=32 \
  --caption_extension=.txt --shuffle_caption --keep_tokens=1 --caption_dropout_rate=0.05 --caption_tag_dropout_rate=0.1 --flip_aug \
  --gradient_checkpointing --gradient_accumulation_steps=2 --max_token_length=225 \
  --xformers --cache_latents --persistent_data_loader_workers --max_data_loader_n_workers=4 --network_weights=/old.safetensors \
  2>&1 | tee log.txt
"#;

#[test]
fn a_training_script_becomes_a_config_that_says_the_same() {
    let (config, notes) = imported("train.sh", SCRIPT);
    assert_eq!((config.name.as_str(), config.training_folder.as_path(), config.seed), ("my cat", Path::new("/out"), 1234));
    assert_eq!((config.model.name_or_path.as_str(), config.model.clip_skip), ("/models/sd v1-5.safetensors", 2));
    let network = &config.network;
    assert_eq!((network.r#type, network.linear, network.linear_alpha), (crate::NetworkType::Locon, 32, 16.0));
    assert_eq!((network.conv, network.conv_alpha), (8, 4.0));
    assert_eq!(network.pretrained_lora_path.as_deref(), Some(Path::new("/old.safetensors")));
    let train = &config.train;
    assert_eq!((train.epochs, train.steps, train.batch_size, train.gradient_accumulation), (10, 0, 2, 2));
    assert_eq!((train.lr, train.unet_lr, train.text_encoder_lr), (1e-4, 1e-4, 5e-5));
    assert!(train.train_unet && train.train_text_encoder);
    assert_eq!((train.optimizer.as_str(), &train.optimizer_params["weight_decay"]), ("adamw8bit", &0.1.into()));
    assert_eq!(train.optimizer_params["betas"], serde_json::json!([0.9, 0.95]));
    assert_eq!((train.lr_scheduler.as_str(), &train.lr_scheduler_params["num_cycles"]), ("cosine_with_restarts", &3.0.into()));
    assert_eq!(train.lr_scheduler_params["warmup_steps"].as_f64(), Some(100.0));
    assert_eq!((train.dtype, config.save.dtype), (base::DType::BF16, base::DType::F16));
    assert_eq!(
        (train.loss.min_snr_gamma, train.noise.noise_offset, train.max_grad_norm, train.max_token_length),
        (5.0, 0.05, 0.5, Some(225))
    );
    assert_eq!((config.save.save_every, config.save.save_every_epochs, config.save.max_step_saves_to_keep), (0, 2, 3));
    let dataset = &config.datasets[0];
    assert_eq!((dataset.folder_path.as_path(), dataset.resolution[0].width), (Path::new("/data/train"), 512));
    assert_eq!((dataset.min_bucket, dataset.max_bucket, dataset.bucket_step), (Some(320), Some(960), Some(32)));
    assert!(dataset.buckets && dataset.flip_x && dataset.bucket_scheme == crate::BucketScheme::List);
    let caption = &dataset.caption;
    assert_eq!((caption.caption_ext.as_slice(), caption.kohya_folders), (["txt".to_string()].as_slice(), Some(true)));
    assert_eq!((caption.shuffle_tokens, caption.keep_tokens), (true, 1));
    assert_eq!((caption.caption_dropout_rate, caption.token_dropout_rate), (0.05, 0.1));
    assert_eq!(config.dataloader.num_workers, 4);
    noted(&notes, &["--xformers", "--persistent_data_loader_workers"]);
}

#[test]
fn the_same_command_for_windows_and_as_words_gives_the_same_config() {
    let flags = "--pretrained_model_name_or_path=D:\\sd\\model.safetensors --train_data_dir D:\\pics --resolution 512 --network_dim 8";
    let windows = flags.replace(" --", " ^\r\n  --");
    let batch = format!(
        "@echo off\r\nset PY=venv\\Scripts\\python.exe\r\n%PY% -m accelerate launch sd-scripts\\train_network.py ^\r\n  {windows}\r\npause\r\n"
    );
    let (config, _) = imported("run.bat", &batch);
    let power = flags.replace(" --", " `\n  --");
    assert_eq!(imported("run.ps1", &format!("accelerate launch train_network.py {power}\n")).0, config);
    assert_eq!(imported("line.txt", flags).0, config);
    let line = import(&[Source::Line(format!("accelerate launch train_network.py {flags}"))]).unwrap();
    assert_eq!(crate::load(line.yaml.as_bytes(), "c.yaml", &[]).unwrap().config, config);
    let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
    let from_words = import(&[Source::Words(words(&format!("accelerate launch train_network.py {flags}")))]).unwrap();
    assert_eq!(crate::load(from_words.yaml.as_bytes(), "c.yaml", &[]).unwrap().config, config);
    assert_eq!((config.model.name_or_path.as_str(), config.network.linear), ("D:\\sd\\model.safetensors", 8));
}

#[test]
fn what_is_not_said_is_as_in_sd_scripts() {
    let (config, notes) = imported("a.sh", "train_network.py --train_data_dir d --resolution 512 --pretrained_model_name_or_path m");
    assert_eq!((config.name.as_str(), config.network.linear, config.network.linear_alpha), ("last", 4, 1.0));
    assert_eq!((config.train.steps, config.train.lr, config.train.optimizer.as_str()), (1600, 2e-6, "adamw"));
    assert_eq!((config.train.dtype, config.save.dtype, config.save.save_every), (base::DType::F32, base::DType::F32, 0));
    assert!(config.train.train_text_encoder && !config.datasets[0].buckets);
    assert_eq!(config.datasets[0].caption.caption_ext, ["caption"]);
    assert_eq!(config.train.max_token_length, Some(75));
    noted(&notes, &["--output_name"]);
    let (config, _) =
        imported("a.sh", "train_network.py --train_data_dir d --resolution 768,512 --pretrained_model_name_or_path m --enable_bucket");
    let dataset = &config.datasets[0];
    assert_eq!(
        (dataset.resolution[0].width, dataset.resolution[0].height, dataset.min_bucket, dataset.max_bucket, dataset.bucket_step),
        (768, 512, Some(256), Some(1024), Some(64))
    );
}

const TRAIN: &str =
    "train_network.py --train_data_dir d --resolution 512 --pretrained_model_name_or_path m --output_name a --network_dim 4 ";

#[test]
fn flags_that_mean_something_together_are_read_together() {
    let with = |flags: &str| imported("a.sh", &format!("{TRAIN}{flags}"));
    assert!(!with("--network_train_unet_only").0.train.train_text_encoder);
    assert!(!with("--network_train_text_encoder_only").0.train.train_unet);
    let (config, notes) = with("--text_encoder_lr 0 --learning_rate 1e-4");
    assert!(!config.train.train_text_encoder);
    noted(&notes, &["--text_encoder_lr 0"]);
    let model = with("--v2 --v_parameterization").0.model;
    assert_eq!((model.arch.as_deref(), model.prediction_type), (Some("sd2"), Some(crate::Prediction::VPrediction)));
    assert_eq!(with("--v2").0.model.prediction_type, Some(crate::Prediction::Epsilon));
    let (config, notes) = with("--use_8bit_adam");
    assert_eq!(config.train.optimizer, "adamw8bit");
    noted(&notes, &["--use_8bit_adam is read as"]);
    let (config, notes) = with("--optimizer_type AdaFactor --learning_rate 1e-3 --lr_scheduler adafactor:1e-3");
    assert_eq!((config.train.optimizer.as_str(), &config.train.optimizer_params["relative_step"]), ("adafactor", &true.into()));
    noted(&notes, &["--learning_rate has no effect"]);
    let fixed = with("--optimizer_type adafactor --learning_rate 1e-3 --optimizer_args relative_step=False scale_parameter=False").0;
    assert_eq!((fixed.train.lr, &fixed.train.optimizer_params["scale_parameter"]), (1e-3, &false.into()));
    assert_eq!(with("--optimizer_type Prodigy --learning_rate 1 --optimizer_args d_coef=2").0.train.lr, 1.0);
    assert_eq!(with("--max_train_epochs 3 --max_train_steps 9").0.train.epochs, 3);
    assert_eq!((with("--min_timestep 100 --max_timestep 1000").0.train.noise.max_timestep), 999);
    assert_eq!(with("--save_every_n_steps 100 --save_last_n_steps 250").0.save.max_step_saves_to_keep, 3);
    assert_eq!(with("--network_module lycoris.kohya --network_args algo=locon conv_dim=4").0.network.conv, 4);
    let velocity = with("--v2 --v_parameterization --scale_v_pred_loss_like_noise_pred --noise_offset 0.05 --adaptive_noise_scale -0.01");
    assert!(velocity.0.train.loss.scale_v_pred_loss_like_noise_pred);
    assert_eq!(velocity.0.train.noise.adaptive_noise_scale, -0.01);
    assert_eq!(with("--mixed_precision fp16").0.train.dtype, base::DType::F16);
    let buckets = with("--enable_bucket --bucket_no_upscale --loss_type l2 --prior_loss_weight 1").0.datasets.remove(0);
    assert_eq!((buckets.bucket_scheme, buckets.bucket_no_upscale), (crate::BucketScheme::List, true));
}

#[test]
fn what_can_not_be_done_is_refused_by_its_flag_all_at_once() {
    let wrong = |flags: &str, words: &[&str]| refused("a.sh", &format!("{TRAIN}{flags}"), words);
    wrong(
        "--color_aug --scale_weight_norms 1 --resume /state",
        &["3 settings", "--color_aug", "--scale_weight_norms (1)", "--resume", "--network_weights"],
    );
    wrong("--netwrk_dim 4", &["--netwrk_dim is unknown", "network_dim"]);
    wrong("--network_args con_dim=4", &["--network_args con_dim", "conv_dim"]);
    wrong("--network_args conv_dim", &["conv_dim", "key=value"]);
    wrong("--network_module networks.oft", &["--network_module networks.oft"]);
    wrong("--network_module lycoris.kohya --network_args algo=loha", &["network.type", "loha"]);
    wrong("--optimizer_type SGDX", &["train.optimizer", "sgdx"]);
    wrong("--optimizer_args weigth_decay=1", &["train.optimizer_params", "weight_decay"]);
    wrong("--use_8bit_adam --optimizer_type Lion", &["--use_8bit_adam", "--optimizer_type Lion"]);
    wrong("--save_every_n_steps 3 --save_every_n_epochs 1", &["--save_every_n_steps", "--save_every_n_epochs"]);
    wrong("--text_encoder_lr 1e-4 1e-5", &["--text_encoder_lr", "one number"]);
    wrong("--seed", &["--seed lacks its value"]);
    wrong("--xformers=True", &["--xformers takes no value"]);
    wrong("--xformers True", &["`True` belongs to no flag"]);
    wrong("--seed 1 --seed 2", &["--seed (1)", "--seed (2)", "contradict"]);
    wrong("--seed one", &["--seed", "whole number"]);
    wrong("--output_dir $OUT", &[":1:", "$OUT"]);
    wrong("--prompt 'x", &["never closed"]);
    wrong("--dataset_config nowhere.toml", &["--dataset_config", "nowhere.toml"]);
    refused("a.sh", "python sdxl_train_network.py --seed 1", &["sdxl_train_network.py", "not supported yet"]);
    refused("a.sh", "python train_db.py --seed 1", &["train_db.py", "only LoRA"]);
    refused("a.sh", &format!("{TRAIN}\n{TRAIN}"), &["line 1", "line 2"]);
    refused("a.sh", "echo hello", &["neither settings as TOML nor a call"]);
    refused("a.sh", "train_network.py --pretrained_model_name_or_path m --resolution 512", &["no pictures", "dataset.toml"]);
    refused("a.sh", "train_network.py --pretrained_model_name_or_path m --train_data_dir d", &["resolution is not given"]);
    refused("a.yaml", "job: extension", &["ai-toolkit", "as they are"]);
    refused("a.json", "{}", &["JSON"]);
    refused("a.toml", "", &["empty"]);
}

/// What the GUIs of sd-scripts write.
const SETTINGS: &str = r#"
bucket_no_upscale = true
bucket_reso_steps = 64
cache_latents = true
caption_extension = ".txt"
clip_skip = 1
dynamo_backend = "no"
enable_bucket = true
epoch = 1
huber_c = 0.1
huber_schedule = "snr"
loss_type = "l2"
lr_scheduler = "cosine"
lr_scheduler_args = []
lr_scheduler_num_cycles = 1
lr_scheduler_power = 1
lr_warmup_steps = 10
max_bucket_reso = 2048
max_data_loader_n_workers = 0
max_grad_norm = 1
max_timestep = 1000
max_token_length = 75
max_train_steps = 1600
min_bucket_reso = 256
mixed_precision = "bf16"
multires_noise_discount = 0.3
network_args = []
network_module = "networks.lora"
noise_offset = 0.05
adaptive_noise_scale = 0.01
noise_offset_type = "Original"
optimizer_args = [ "weight_decay=0.01" ]
optimizer_type = "AdamW8bit"
prior_loss_weight = 1
sample_prompts = "prompt.txt"
sample_sampler = "euler_a"
sample_every_n_steps = 50
save_model_as = "safetensors"
text_encoder_lr = [ 0.0001, 0.0001,]
train_batch_size = 1
wandb_run_name = "last"
xformers = true

[paths]
output_dir = "/out"
output_name = "gui"
pretrained_model_name_or_path = "/m.safetensors"
train_data_dir = "/data"
resolution = "512,512"
learning_rate = 0.0001
"#;

#[test]
fn a_settings_file_of_a_gui_is_read_with_its_sections_and_prompts() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = "# two\na cat --n blurry --w 512 --h 768 --d 7 --l 6 --s 25\n\na dog\n";
    let result = import_in(&dir, &[("config.toml", SETTINGS), ("prompt.txt", prompts)], 1).unwrap();
    let config = crate::load(result.yaml.as_bytes(), "c.yaml", &[]).unwrap().config;
    assert_eq!((config.name.as_str(), config.train.steps, config.train.text_encoder_lr), ("gui", 1600, 1e-4));
    assert_eq!((config.datasets[0].bucket_scheme, config.datasets[0].bucket_no_upscale), (crate::BucketScheme::List, true));
    assert_eq!((config.train.noise.noise_offset, config.train.noise.adaptive_noise_scale), (0.05, 0.01));
    let samples = &config.sample.samples;
    assert_eq!((samples.len(), samples[0].height, samples[0].neg.as_str(), samples[0].sample_steps), (2, 768, "blurry", 25));
    assert_eq!((samples[1].prompt.as_str(), samples[1].sample_steps, config.sample.sample_every), ("a dog", 30, 50));
    assert!(config.train.skip_first_sample);
    noted(&result.notes, &["xformers", "euler_a", "wandb_run_name", "epoch"]);
    for note in &result.notes {
        assert!(result.yaml.contains(&format!("# {note}")), "{note}");
    }
    // Without the file of prompts the rest still is worth having.
    noted(&imported("config.toml", SETTINGS).1, &["prompt.txt"]);
}

const DATASET: &str = r#"
[general]
shuffle_caption = true
caption_extension = ".txt"

[[datasets]]
resolution = [512, 512]
batch_size = 4
enable_bucket = true

  [[datasets.subsets]]
  image_dir = "/imgs/a"
  num_repeats = 10
  class_tokens = "sks dog"
  keep_tokens = 1

  [[datasets.subsets]]
  image_dir = "/imgs/b"
  shuffle_caption = false
  caption_extension = ".caption"
  flip_aug = true

[[datasets]]
resolution = 768
batch_size = 4
  [[datasets.subsets]]
  image_dir = "/imgs/c"
"#;

#[test]
fn a_dataset_file_gives_a_dataset_for_each_subset_with_what_stands_above_it() {
    let (config, notes) = imported("dataset.toml", DATASET);
    let [a, b, c] = config.datasets.as_slice() else { panic!("{:?}", config.datasets) };
    assert_eq!((a.folder_path.as_path(), a.num_repeats, a.resolution[0].width, a.buckets), (Path::new("/imgs/a"), 10, 512, true));
    assert_eq!((a.caption.default_caption.as_deref(), a.caption.keep_tokens, a.caption.shuffle_tokens), (Some("sks dog"), 1, true));
    assert_eq!((b.caption.shuffle_tokens, b.flip_x, b.caption.caption_ext.as_slice()), (false, true, ["caption".to_string()].as_slice()));
    assert_eq!((c.resolution[0].width, c.buckets, c.caption.shuffle_tokens, c.recursive), (768, false, true, false));
    assert_eq!((config.train.batch_size, config.datasets[0].caption.kohya_folders), (4, Some(false)));
    noted(&notes, &["fill in model.name_or_path", "config init"]);
    refused("d.toml", &DATASET.replacen("batch_size = 4", "batch_size = 2", 1), &["datasets[1]", "batch_size", "2"]);
    refused("d.toml", &DATASET.replace("num_repeats", "num_repeat"), &["datasets[0].subsets[0].num_repeat", "num_repeats"]);
    refused("d.toml", &DATASET.replace("flip_aug = true", "color_aug = true"), &["datasets[0].subsets[1].color_aug"]);
    refused("d.toml", &DATASET.replace("image_dir = \"/imgs/c\"", ""), &["datasets[1].subsets[0]", "image_dir is missing"]);
    refused("d.toml", &DATASET.replace("flip_aug = true", "flip_aug = \"True\""), &["flip_aug", "true or false"]);
    refused(
        "d.toml",
        &DATASET.replace("keep_tokens = 1", "keep_tokens = 1.5"),
        &["d.toml:", "datasets[0].subsets[0].keep_tokens", "whole number"],
    );
    let line = |key: &str| DATASET.lines().position(|line| line.trim().starts_with(key)).unwrap() + 1;
    let place = format!("d.toml:{}: datasets[0].subsets[1].flip_aug: \"True\" is a text, not true or false", line("flip_aug"));
    refused("d.toml", &DATASET.replace("flip_aug = true", "flip_aug = \"True\""), &[&place]);
    refused(
        "a.toml",
        "seed = 1\n[network]\nnetwork_dim = \"x\"\nlearning_rate = true\n",
        &["a.toml:3: network_dim: \"x\" is not a whole number", "a.toml:4: learning_rate"],
    );
    refused("a.toml", "seed = 1\nnetwork_din = 4\n", &["a.toml:2: network_din is unknown; the nearest is network_dim"]);
    refused("d.toml", "[general]\nx = ", &["d.toml:2:5"]);
    refused("d.toml", "[[datasets]]\nresolution = 512\n", &["datasets[0]", "subsets"]);
}

#[test]
fn settings_dataset_file_and_command_line_are_taken_together() {
    let settings =
        "pretrained_model_name_or_path = \"m\"\nnetwork_dim = 8\nseed = 1\ndataset_config = \"dataset.toml\"\noutput_name = \"x\"\n";
    let script = "accelerate launch train_network.py --config_file=settings --seed=2\n";
    let files = [("a.sh", script), ("settings.toml", settings), ("dataset.toml", DATASET)];
    let result = try_import(&files, 1).unwrap();
    let config = crate::load(result.yaml.as_bytes(), "c.yaml", &[]).unwrap().config;
    assert_eq!((config.seed, config.network.linear, config.datasets.len(), config.train.batch_size), (2, 8, 3, 4));
    let apart = settings.replace("dataset_config = \"dataset.toml\"\n", "");
    let result = try_import(&[("settings.toml", apart.as_str()), ("dataset.toml", DATASET)], 2).unwrap();
    assert_eq!(crate::load(result.yaml.as_bytes(), "c.yaml", &[]).unwrap().config.datasets, config.datasets);
    let twice = [("a.toml", "seed = 1"), ("b.toml", "seed = 2")];
    let error = format!("{:#}", try_import(&twice, 2).unwrap_err());
    assert!(error.contains("seed (1)") && error.contains("seed (2)"), "{error}");
}

#[test]
fn a_set_for_regularisation_is_passed_on_to_the_config() {
    let script = format!("{TRAIN} --reg_data_dir /reg --prior_loss_weight 0.5");
    let made = try_import(&[("a.sh", &script)], 1).unwrap();
    assert!(made.yaml.contains("is_reg: true") && made.yaml.contains("reg_weight: 0.5"), "{}", made.yaml);
    let (config, notes) = imported("a.sh", &format!("{script} --validation_split 0.2"));
    let [learned, class] = config.datasets.as_slice() else { panic!("{:?}", config.datasets) };
    assert_eq!((learned.reg_ratio, learned.validation, class.reg_ratio, class.validation), (0.0, 0.2, 1.0, 0.0));
    noted(&notes, &["reg_ratio: 1"]);
}

#[test]
fn masks_are_imported_as_what_sd_scripts_makes_of_them() {
    let (config, _) = imported("a.sh", &format!("{TRAIN} --alpha_mask"));
    assert!(config.datasets[0].mask.alpha_mask && !config.datasets[0].mask.normalize_mask);
    noted(&imported("a.sh", &format!("{TRAIN} --masked_loss")).1, &["--masked_loss has no effect without alpha_mask"]);
    let (config, _) = imported("a.sh", &format!("{TRAIN} --masked_loss --conditioning_data_dir /masks"));
    assert_eq!(config.datasets[0].mask.mask_path.as_deref(), Some(Path::new("/masks")));
    let dataset = "[[datasets]]\nresolution = 512\n[[datasets.subsets]]\nimage_dir = \"/a\"\nconditioning_data_dir = \"/masks\"\n\
                   alpha_mask = true\n[[datasets.subsets]]\nimage_dir = \"/b\"\n";
    let with = |flags: &str| {
        let script = format!("train_network.py --pretrained_model_name_or_path m --dataset_config d.toml {flags}");
        let result = try_import(&[("a.sh", &script), ("d.toml", dataset)], 1).unwrap();
        (crate::load(result.yaml.as_bytes(), "c.yaml", &[]).unwrap().config.datasets, result.notes)
    };
    let (datasets, notes) = with("--masked_loss");
    assert_eq!((datasets[0].mask.mask_path.as_deref(), datasets[0].mask.alpha_mask), (Some(Path::new("/masks")), false));
    assert!(!datasets[0].mask.normalize_mask && !datasets[1].mask.is_on());
    noted(&notes, &["alpha_mask has no effect beside"]);
    let (datasets, _) = with("");
    assert!(datasets[0].mask.alpha_mask && datasets[0].mask.mask_path.is_none());
    let alone = dataset.replace("alpha_mask = true\n", "");
    assert_eq!(imported("d.toml", &alone).0.datasets[0].mask.mask_path.as_deref(), Some(Path::new("/masks")));
}

/// Samples are looked at, not trained on: what can't be used of one is told and left out.
#[test]
fn parts_of_sample_prompts_that_are_not_known_are_listed_and_the_rest_is_imported() {
    let dir = tempfile::tempdir().unwrap();
    let lines = "a cat --g 3 --n blurry --w 512\na dog --w 513 --s 25 --x --d many\n";
    let result = import_in(&dir, &[("config.toml", SETTINGS), ("prompt.txt", lines)], 1).unwrap();
    let samples = crate::load(result.yaml.as_bytes(), "c.yaml", &[]).unwrap().config.sample.samples;
    assert_eq!((samples[0].prompt.as_str(), samples[0].neg.as_str(), samples[0].width), ("a cat", "blurry", 512));
    assert_eq!((samples[1].prompt.as_str(), samples[1].width, samples[1].sample_steps, samples[1].seed), ("a dog", 512, 25, 0));
    noted(&result.notes, &["`--g 3`", "`--w 513`", "`--x`", "`--d many`"]);

    let list = r#"[{"prompt": "a cat", "width": 513, "seed": -1, "scale": 6, "controlnet": "x"}]"#;
    let settings = SETTINGS.replace("prompt.txt", "prompt.json");
    let result = import_in(&dir, &[("config.toml", settings.as_str()), ("prompt.json", list)], 1).unwrap();
    let samples = crate::load(result.yaml.as_bytes(), "c.yaml", &[]).unwrap().config.sample.samples;
    assert_eq!((samples[0].prompt.as_str(), samples[0].width, samples[0].guidance_scale), ("a cat", 512, 6.0));
    noted(&result.notes, &["`width` (513)", "`seed` (-1)", "controlnet"]);
}

fn all() -> impl Iterator<Item = &'static Flag> {
    [RUN, PICTURES, FILE, NETWORK_ARGS].into_iter().flatten()
}

#[test]
fn no_flag_is_listed_twice_and_every_name_that_one_has_here_exists() {
    let schema = &*crate::schema::WHOLE;
    let properties = &schema["properties"];
    let mut seen = std::collections::BTreeSet::new();
    for flag in [RUN, PICTURES, FILE].into_iter().flatten() {
        assert!(seen.insert(flag.name), "{} is listed twice", flag.name);
    }
    for flag in all() {
        let Meaning::Is(key) = flag.meaning else { continue };
        let mut at = properties;
        for part in key.split('.') {
            at = if at[part]["items"].is_object() { &at[part]["items"]["properties"] } else { &at[part] };
            at = if at["properties"].is_object() { &at["properties"] } else { at };
        }
        assert!(at.is_object(), "{}: the config has no {key}", flag.name);
    }
}

/// So that a flag that was refused or passed over for want of a key is not forgotten when the key comes.
#[test]
fn a_flag_that_has_no_key_here_has_none_of_its_name() {
    let schema = &*crate::schema::WHOLE;
    let known = |section: &Value, name: &str| {
        let key = &section[name];
        key.is_object() && key["deprecated"] != true
    };
    for flag in all() {
        let (Meaning::Refused(..) | Meaning::Nothing(_)) = flag.meaning else { continue };
        let properties = &schema["properties"];
        for section in
            [&properties["train"]["properties"], &properties["datasets"]["items"]["properties"], &properties["network"]["properties"]]
        {
            assert!(!known(section, flag.name), "{} is a key of the config now: let import/flags.rs say Is(\"…\")", flag.name);
        }
    }
}

/// Every option of the list can be given, alone, in both forms, without a panic, and is either taken or refused by its name.
#[test]
fn every_flag_of_the_list_is_read_from_files_and_command_lines() {
    for flag in [RUN, PICTURES].into_iter().flatten() {
        let (word, toml) = match flag.kind {
            Kind::Switch => ("", "true"),
            Kind::Text | Kind::Any => (" x", "\"x\""),
            Kind::Whole => (" 3", "3"),
            Kind::Number => (" 0.5", "0.5"),
            Kind::Texts => (" a=1 b=2", "[\"a=1\", \"b=2\"]"),
            Kind::Sizes => (" 512,768", "\"512,768\""),
        };
        let base = "pretrained_model_name_or_path = \"m\"\ntrain_data_dir = \"d\"\nresolution = 512\noutput_name = \"a\"\n";
        let base: String = base.lines().filter(|line| !line.starts_with(flag.name)).map(|line| format!("{line}\n")).collect();
        let files = [
            ("a.sh", format!("train_network.py {}--{}{word}", flags_of(&base), flag.name)),
            ("a.toml", format!("{base}{} = {toml}\n", flag.name)),
        ];
        for (name, content) in &files {
            match try_import(&[(name, content)], 1) {
                Ok(_) => {}
                // What the config itself refuses is named as the config names it.
                Err(error) => {
                    let error = format!("{error:#}");
                    let native = error.contains("the imported config") || error.contains("not supported yet");
                    assert!(error.contains(flag.name) || native, "{content}: {error}");
                }
            }
        }
    }
}

/// `a = "b"` lines as flags.
fn flags_of(toml: &str) -> String {
    toml.lines().map(|line| format!("--{} ", line.replace(" = ", "=").replace('"', ""))).collect()
}

#[test]
fn mangled_sources_are_errors_not_panics() {
    let mut rng = base::Rng::new(5, "mangled imports", &[]);
    let dir = tempfile::tempdir().unwrap();
    for round in 0..200 {
        let (name, content) = [("a.sh", SCRIPT), ("a.toml", SETTINGS), ("a.toml", DATASET), ("a.txt", SETTINGS)][rng.below(4) as usize];
        let mut bytes = content.as_bytes().to_vec();
        for _ in 0..=rng.below(4) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = b"'\"\\$%[]={}\n\t#.-,\0\xFF09"[rng.below(20) as usize],
                1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let path = dir.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(imported) = import(&[Source::File(path)]) {
            crate::load(imported.yaml.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("round {round}: {e:#}\n{}", imported.yaml));
        }
    }
}
