//! Files and commands as people publish them: each is imported, or refused with what stands against it.

use super::super::{Imported, Source, import};
use anyhow::Result;

fn try_import(name: &str, content: &str) -> Result<Imported> {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join(name), content).unwrap();
    import(&[Source::File(dir.path().join(name))])
}

#[track_caller]
fn imported(name: &str, content: &str) -> crate::RunConfig {
    let imported = try_import(name, content).unwrap_or_else(|e| panic!("{e:#}"));
    crate::load(imported.yaml.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{}", imported.yaml)).config
}

#[track_caller]
fn refused(name: &str, content: &str, words: &[&str]) {
    let error = format!("{:#}", try_import(name, content).expect_err("it is accepted"));
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

const DATASET: &str = "[[datasets]]\nresolution = 512\n  [[datasets.subsets]]\n  image_dir = '/imgs'\n";

fn dataset(keys: &str) -> String {
    format!("{DATASET}  {keys}\n")
}

#[test]
fn keys_of_any_form_that_are_off_are_taken_and_those_that_are_on_explained() {
    for keys in ["custom_attributes = {}", "face_crop_aug_range = ''", "face_crop_aug_range = []"] {
        imported("d.toml", &dataset(keys));
    }
    refused("d.toml", &dataset("custom_attributes = { theme = 'cats' }"), &["d.toml:5", "custom_attributes", "theme", "of one's own"]);
    for range in ["[2.0, 4.0]", "'2.0,4.0'"] {
        refused(
            "d.toml",
            &dataset(&format!("face_crop_aug_range = {range}")),
            &["d.toml:5", "face_crop_aug_range", "4", "not supported yet"],
        );
    }
}

#[test]
fn a_quoted_truth_value_is_told_to_lose_its_quotes() {
    for (value, word) in [
        ("'true'", "write true without quotes"),
        ("'False'", "write false without quotes"),
        ("'yes'", "\"yes\" is not true or false"),
        ("1", "1 is not true or false"),
    ] {
        refused(
            "d.toml",
            &DATASET.replace("resolution = 512", &format!("resolution = 512\nenable_bucket = {value}")),
            &["d.toml:3", "enable_bucket", word],
        );
    }
}

#[test]
fn sizes_are_read_in_every_form() {
    for (written, width, height) in [
        ("512", 512, 512),
        ("'512'", 512, 512),
        ("'512,768'", 512, 768),
        ("'512, 768'", 512, 768),
        ("[512, 768]", 512, 768),
        ("['512', '768']", 512, 768),
        ("'512x768'", 512, 768),
        ("[640]", 640, 640),
    ] {
        let config = imported("d.toml", &DATASET.replace("resolution = 512", &format!("resolution = {written}")));
        let resolution = config.datasets[0].resolution[0];
        assert_eq!((resolution.width, resolution.height), (width, height), "{written}");
    }
    refused("d.toml", &DATASET.replace("512", "'512,'"), &["d.toml:2", "resolution", "a size such as 512"]);
}

#[test]
fn what_is_out_of_range_is_told_under_the_name_that_it_was_given() {
    let command = "train_network.py --train_data_dir d --resolution 512 --pretrained_model_name_or_path m --output_name a ";
    for (flags, words) in [
        ("--learning_rate 99", ["--learning_rate: train.lr: 99", "far beyond"]),
        ("--unet_lr 99", ["--unet_lr: train.unet_lr: 99", "far beyond"]),
        ("--network_dim 9999", ["--network_dim: network.linear", "4096"]),
        ("--network_args conv_dim=9999", ["--network_args conv_dim: network.conv", "4096"]),
        ("--train_batch_size 0", ["--train_batch_size: train.batch_size: 0", "between 1 and"]),
        ("--clip_skip 40", ["--clip_skip: model.clip_skip: 40", "between 1"]),
        ("--caption_dropout_rate 3", ["--caption_dropout_rate: datasets[0].caption_dropout_rate: 3", "share"]),
        ("--optimizer_type SGDX", ["--optimizer_type: in train.optimizer", "sgdx"]),
        ("--optimizer_args weigth_decay=1", ["--optimizer_args: in train.optimizer_params", "weight_decay"]),
        ("--lr_scheduler cosin", ["--lr_scheduler: in train.lr_scheduler", "cosin"]),
        ("--loss_type l3", ["--loss_type: train.loss_type: l3", "pseudo_huber"]),
        ("--network_module lycoris.kohya --network_args algo=loha", ["--network_args algo: network.type: loha", "not supported yet"]),
        ("--max_train_steps 0", ["--max_train_steps: train.steps: 0", "train.epochs"]),
    ] {
        refused("a.sh", &format!("{command}{flags}"), &words);
    }
    let second = format!(
        "{}\n[[datasets]]\nresolution = 4\n  [[datasets.subsets]]\n  image_dir = '/b'\n  caption_dropout_rate = 2\n",
        dataset("num_repeats = 0")
    );
    refused(
        "d.toml",
        &second,
        &[
            "d.toml:5: datasets[0].subsets[0].num_repeats: datasets[0].num_repeats: 0",
            "d.toml:8: datasets[1].resolution: datasets[1].resolution: 4",
            "d.toml:11: datasets[1].subsets[0].caption_dropout_rate: datasets[1].caption_dropout_rate: 2",
        ],
    );
}

/// Settings files, dataset files and commands in the ways of guides, notebooks and GUIs.
#[test]
fn published_configs_are_imported() {
    let notebook = "[model_arguments]\nv2 = false\nv_parameterization = false\npretrained_model_name_or_path = '/m.safetensors'\n\n[additional_network_arguments]\n\
        no_metadata = false\nunet_lr = 0.0001\ntext_encoder_lr = 5e-5\nnetwork_module = 'networks.lora'\nnetwork_dim = 32\nnetwork_alpha = 16\n\
        network_train_unet_only = false\nnetwork_train_text_encoder_only = false\n\n[optimizer_arguments]\noptimizer_type = 'AdamW8bit'\nlearning_rate = 0.0001\n\
        max_grad_norm = 1.0\nlr_scheduler = 'cosine_with_restarts'\nlr_scheduler_num_cycles = 3\nlr_warmup_steps = 50\n\n[dataset_arguments]\n\
        cache_latents = true\ndebug_dataset = false\n\n[training_arguments]\noutput_dir = '/out'\noutput_name = 'x'\nsave_precision = 'fp16'\n\
        save_every_n_epochs = 1\ntrain_batch_size = 2\nmax_token_length = 225\nmem_eff_attn = false\nxformers = true\nmax_train_epochs = 10\n\
        max_data_loader_n_workers = 8\npersistent_data_loader_workers = true\ngradient_checkpointing = false\ngradient_accumulation_steps = 1\n\
        mixed_precision = 'fp16'\nclip_skip = 2\nlogging_dir = '/logs'\nlog_prefix = 'x'\nlowram = true\nnoise_offset = 0.1\nseed = 42\n\n\
        [sample_prompt_arguments]\nsample_every_n_epochs = 1\nsample_sampler = 'ddim'\n\n[saving_arguments]\nsave_model_as = 'safetensors'\n\
        train_data_dir = '/d'\nresolution = '512'\n";
    let config = imported("config_file.toml", notebook);
    assert_eq!(
        (config.train.epochs, config.network.linear, config.train.text_encoder_lr, config.datasets[0].resolution[0].width),
        (10, 32, 5e-5, 512)
    );
    let files = [
        "[general]\nenable_bucket = true\nshuffle_caption = true\nkeep_tokens = 1\n\n[[datasets]]\nresolution = [512, 768]\nbatch_size = 2\nmin_bucket_reso = 320\nmax_bucket_reso = 960\n\n  [[datasets.subsets]]\n  image_dir = '/a'\n  class_tokens = 'sks girl'\n  num_repeats = 10\n\n  [[datasets.subsets]]\n  is_reg = true\n  image_dir = '/reg'\n  class_tokens = 'girl'\n  keep_tokens = 1\n",
        "[general]\nresolution = '512'\nbatch_size = 1\nflip_aug = false\ncolor_aug = false\nrandom_crop = false\ncaption_extension = '.txt'\nkeep_tokens_separator = '|||'\n[[datasets]]\n[[datasets.subsets]]\nimage_dir = '/a'\nalpha_mask = true\ncache_info = true\ncaption_prefix = 'p, '\ncaption_suffix = ', s'\ncaption_separator = ', '\nenable_wildcard = true\nsecondary_separator = ''\ntoken_warmup_min = 1\ntoken_warmup_step = 0\n",
        "[[datasets]]\nresolution = 768\nenable_bucket = true\nbucket_no_upscale = true\nbucket_reso_steps = 32\nnetwork_multiplier = 1.0\nvalidation_seed = 7\nvalidation_split = 0.1\nprior_loss_weight = 1.0\nresize_interpolation = 'lanczos'\n[[datasets.subsets]]\nimage_dir = '/a'\ncaption_dropout_rate = 0.05\ncaption_dropout_every_n_epochs = 0\ncaption_tag_dropout_rate = 0.1\nface_crop_aug_range = ''\ncustom_attributes = {}\n",
    ];
    for file in files {
        imported("dataset.toml", file);
    }
    let base = "accelerate launch --num_cpu_threads_per_process 1 train_network.py --pretrained_model_name_or_path=m.safetensors --train_data_dir=d --output_dir=o --output_name=x --resolution=512 ";
    for flags in [
        "--network_module=networks.lora --network_dim=128 --network_alpha=1 --learning_rate=1e-4 --max_train_epochs=10 --save_every_n_epochs=1 --mixed_precision=fp16 --xformers --cache_latents --gradient_checkpointing --prior_loss_weight=1.0",
        "--optimizer_type=Prodigy --optimizer_args decouple=True weight_decay=0.01 d_coef=1 use_bias_correction=True safeguard_warmup=True --learning_rate=1 --unet_lr=1 --text_encoder_lr=1 --lr_scheduler=cosine",
        "--optimizer_type=DAdaptAdam --optimizer_args decouple=True weight_decay=0.01 --learning_rate=1.0 --lr_scheduler=constant",
        "--optimizer_type=Lion --learning_rate=1e-5 --network_args conv_dim=16 conv_alpha=8 --network_module=lycoris.kohya",
        "--optimizer_type=AdaFactor --optimizer_args scale_parameter=False relative_step=False warmup_init=False --lr_scheduler=constant_with_warmup --lr_warmup_steps=100 --learning_rate=4e-4",
        "--masked_loss --alpha_mask --network_train_unet_only --cache_text_encoder_outputs --min_snr_gamma=5 --huber_schedule=snr --loss_type=smooth_l1 --huber_c=0.1",
        "--zero_terminal_snr --v_parameterization --scale_v_pred_loss_like_noise_pred --v2 --ip_noise_gamma=0.1 --multires_noise_iterations=6 --multires_noise_discount=0.3",
        "--optimizer_type=AdamWScheduleFree --optimizer_args warmup_steps=10 --lr_scheduler=constant --save_state --save_last_n_epochs=2 --save_every_n_epochs=2 --max_token_length=150",
        "--optimizer_type=PagedAdamW8bit --lr_scheduler=linear --lr_warmup_steps=0.05 --validation_split=0.1 --validate_every_n_steps=50 --log_with=tensorboard --logging_dir=logs",
    ] {
        imported("a.sh", &format!("{base}{flags}\n"));
    }
}

#[test]
fn other_families_of_models_are_refused_by_the_name_of_their_script() {
    let sdxl = "accelerate launch sdxl_train_network.py --pretrained_model_name_or_path=sd_xl_base_1.0.safetensors --train_data_dir=d --resolution=1024,1024 --network_dim=32 --no_half_vae --cache_text_encoder_outputs --network_train_unet_only";
    refused("sdxl.sh", sdxl, &["sdxl_train_network.py", "not supported yet"]);
    refused("flux.sh", &sdxl.replace("sdxl_train", "flux_train"), &["flux_train_network.py", "not supported yet"]);
}
