//! Files that are read: settings of GUIs, dataset files, prompts.

use super::commands::SCRIPT;
use super::*;

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

/// sd-scripts takes `--dataset_repeats` for subsets of a file that name no number; names of folders always name one.
#[test]
fn repeats_of_a_flag_count_only_where_nothing_nearer_says_a_number() {
    let dataset = "[[datasets]]\nresolution = 512\n[[datasets.subsets]]\nimage_dir = \"/a\"\nnum_repeats = 10\n[[datasets.subsets]]\n\
                   image_dir = \"/b\"\n";
    let script = "train_network.py --pretrained_model_name_or_path m --dataset_config d.toml --dataset_repeats 3";
    let result = try_import(&[("a.sh", script), ("d.toml", dataset)], 1).unwrap();
    let config = crate::load(result.yaml.as_bytes(), "c.yaml", &[]).unwrap().config;
    assert_eq!(config.datasets.iter().map(|dataset| dataset.num_repeats).collect::<Vec<_>>(), [10, 3]);
    let (config, notes) = imported("a.sh", &format!("{TRAIN} --dataset_repeats 3"));
    assert_eq!(config.datasets[0].num_repeats, 1);
    noted(&notes, &["--dataset_repeats has no effect"]);
}

#[test]
fn a_set_for_regularisation_is_passed_on_to_the_config() {
    let script = format!("{TRAIN} --reg_data_dir /reg --prior_loss_weight 0.5");
    let made = try_import(&[("a.sh", &script)], 1).unwrap();
    assert!(made.yaml.contains("is_reg: true") && made.yaml.contains("reg_weight: 0.5"), "{}", made.yaml);
    let (config, notes) = imported("a.sh", &format!("{script} --validation_split 0.2"));
    let [learned, class] = config.datasets.as_slice() else { panic!("{:?}", config.datasets) };
    assert_eq!((learned.reg_ratio, learned.validation, class.reg_ratio, class.validation), (0.0, 0.2, 1.0, 0.0));
    noted(&notes, &["reg_ratio: 1", "half of --max_train_steps"]);
    for flags in ["--max_train_epochs 3", "--max_train_epochs 3 --max_train_steps 9"] {
        let (_, notes) = imported("a.sh", &format!("{script} {flags}"));
        noted(&notes, &["an epoch here shows every picture to learn as often"]);
        assert!(!notes.iter().any(|note| note.contains("half of --max_train_steps")), "{notes:?}");
    }
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
