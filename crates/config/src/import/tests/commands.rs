//! Commands and scripts.

use super::*;

pub(super) const SCRIPT: &str = r#"#!/bin/bash
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
    assert_eq!((config.train.gradient_checkpointing, config.seed), (crate::Checkpointing::All(false), 42));
    noted(&notes, &["--output_name", "--seed is not given"]);
    let (config, _) =
        imported("a.sh", "train_network.py --train_data_dir d --resolution 768,512 --pretrained_model_name_or_path m --enable_bucket");
    let dataset = &config.datasets[0];
    assert_eq!(
        (dataset.resolution[0].width, dataset.resolution[0].height, dataset.min_bucket, dataset.max_bucket, dataset.bucket_step),
        (768, 512, Some(256), Some(1024), Some(64))
    );
}

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

/// LyCORIS gives convolutions the ranks of the rest where nothing is said of them, `networks.lora` gives them none.
#[test]
fn what_network_args_leave_out_is_as_in_the_module_that_reads_them() {
    let network = |flags: &str| {
        let (config, notes) = imported("a.sh", &format!("{TRAIN} --network_alpha 2 {flags}"));
        ((config.network.conv, config.network.conv_alpha), notes)
    };
    assert_eq!(network("--network_module networks.lora").0, (0, 0.0));
    assert_eq!(network("--network_module networks.lora --network_args conv_dim=8").0, (8, 1.0));
    assert_eq!(network("--network_module lycoris.kohya").0, (4, 2.0));
    assert_eq!(network("--network_module lycoris.kohya --network_args algo=locon conv_dim=8").0, (8, 2.0));
    assert_eq!(network("--network_module lycoris.kohya --network_args conv_dim=0").0, (0, 0.0));
    let (_, notes) = network("--network_module lycoris.kohya --network_args preset=full");
    noted(&notes, &["--network_args preset=full has no effect"]);
}

/// Lists are filled while a script runs, which an import does not do.
#[test]
fn a_list_of_powershell_in_a_command_is_named_with_its_line_and_what_to_do() {
    let flags = TRAIN.strip_prefix("train_network.py").unwrap();
    for (list, word) in [
        ("$ext_args = [System.Collections.ArrayList]::new()", "@ext_args"),
        ("$ext_args = [System.Collections.ArrayList]::new()", "$ext_args"),
        ("$ext_args = @('--seed=1')", "@ext_args"),
        ("$ext_args = @('--seed=1')", "$ext_args"),
        ("", "@ext_args"),
    ] {
        let script = format!("{list}\naccelerate launch train_network.py {flags} {word}\n");
        refused("a.ps1", &script, &["a.ps1:2:", word, "a list", "write the flags that it holds in its place"]);
    }
    refused("a.ps1", &format!("\naccelerate launch train_network.py {flags} stray\n"), &["a.ps1:2: `stray` belongs to no flag"]);
}

#[test]
fn what_can_not_be_done_is_refused_by_its_flag_all_at_once() {
    let wrong = |flags: &str, words: &[&str]| refused("a.sh", &format!("{TRAIN}{flags}"), words);
    wrong(
        "--color_aug --scale_weight_norms 1 --resume /state",
        &["3 settings", "--color_aug", "--scale_weight_norms (1)", "--resume", "--network_weights"],
    );
    wrong("--ip_noise_gamma 0.1 --ip_noise_gamma_random_strength", &["--ip_noise_gamma_random_strength", "not supported yet"]);
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
