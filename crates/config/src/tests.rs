//! Whole configs, read and refused.

use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const MINIMAL: &str = "name: a\nmodel: {name_or_path: m}\ndatasets:\n  - folder_path: /imgs\n";

fn read(text: &str) -> Loaded {
    load(text.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{text}"))
}

fn with(extra: &str) -> RunConfig {
    read(&format!("{MINIMAL}{extra}\n")).config
}

fn refused(text: &str) -> String {
    format!("{:#}", load(text.as_bytes(), "c.yaml", &[]).expect_err(text))
}

fn refused_with(extra: &str) -> String {
    refused(&format!("{MINIMAL}{extra}\n"))
}

#[test]
fn quantized_weights_have_the_names_of_ai_toolkit() {
    let kept = |model: &str| {
        let loaded = read(&MINIMAL.replace("{name_or_path: m}", &format!("{{name_or_path: m, {model}}}")));
        let config = loaded.config.to_json().unwrap();
        let keys = ["quantize", "qtype", "quantize_te", "qtype_te"].map(|key| config["model"][key].to_string().replace('"', ""));
        (keys.join(" "), loaded.notices.join("; "))
    };
    assert_eq!(kept("quantize: true, qtype: int8"), ("true qint8 true qint8".into(), String::new()));
    assert_eq!(kept("quantize: true, qtype: nf4, quantize_te: false"), ("true nf4 false nf4".into(), String::new()));
    assert_eq!(kept("quantize: true, qtype: qint8, qtype_te: NF4"), ("true qint8 true nf4".into(), String::new()));
    assert_eq!(kept("quantize_te: true, qtype_te: nf4").0, "false qint8 true nf4");
    // A type that is not used is not looked at.
    assert_eq!(kept("quantize: false, qtype: qfloat8"), ("false qint8 false qint8".into(), String::new()));
    let (keys, notices) = kept("quantize: true");
    assert_eq!(keys, "true qint8 true qint8");
    assert_says(&notices, &["model.qtype is not given", "qint8"]);
    let (keys, notices) = kept("quantize: true, qtype: qint4");
    assert_eq!(keys, "true nf4 true nf4");
    assert_says(&notices, &["model.qtype: qint4 is kept as nf4"]);
    for (name, part) in [("qfloat8", "nearer"), ("float8", "nearer"), ("qint2", "8 bits"), ("uint3|a/b", "accuracy-recovery")] {
        let text = MINIMAL.replace("{name_or_path: m}", &format!("{{name_or_path: m, quantize: true, qtype: \"{name}\"}}"));
        assert_says(&refused(&text), &["model.qtype", name, "qint8", "nf4", part]);
    }
}

fn set(key: &str, value: &str) -> Result<RunConfig> {
    load(MINIMAL.as_bytes(), "c.yaml", &[(key.to_string(), value.to_string())]).map(|l| l.config)
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

#[test]
fn an_unknown_key_is_named_with_file_line_column_and_the_nearest_key() {
    assert_says(&refused_with("train: {lrr: 1}"), &["c.yaml:5:9", "`train.lrr`", "nearest key is `train.lr`"]);
    assert_says(&refused_with("network:\n  linaer: 4"), &["c.yaml:6:3", "`network.linaer`", "nearest key is `network.linear`"]);
    assert_says(
        &refused(&MINIMAL.replace("folder_path", "folder_pth")),
        &["c.yaml:4:5", "`datasets[0].folder_pth`", "`datasets[0].folder_path`"],
    );
    assert_says(&refused_with("zzzzzzzz: 1"), &["the keys here are name"]);
}

#[test]
fn a_misplaced_key_is_told_where_it_belongs() {
    assert_says(&refused_with("lr: 1"), &["c.yaml:5:1", "`lr`", "under `train`"]);
    assert_says(&refused_with("network: {save_every: 1}"), &["`network.save_every`", "under `save`"]);
}

/// A document with `key` in a section, which may be one of a list.
fn with_key(section: &str, key: &str) -> Value {
    let mut config = json!({"name": "a", "model": {"name_or_path": "m"}, "datasets": [{"folder_path": "/imgs"}]});
    let mut at = &mut config;
    for part in section.split('.').filter(|part| !part.is_empty()) {
        let listed = ["datasets", "samples", "param_groups"].contains(&part);
        if at.get(part).is_none() {
            at[part] = if listed { json!([{}]) } else { json!({}) };
        }
        at = if listed { &mut at[part][0] } else { &mut at[part] };
    }
    at[key] = json!(1);
    config
}

/// Every key that there is, in every section that lacks it: the hint names a section in which it is, and does something if it can.
#[test]
fn any_key_under_a_wrong_heading_is_told_where_it_belongs() {
    let sections: BTreeSet<&str> = error::KNOWN.iter().map(|known| known.section.as_str()).collect();
    let keys: BTreeSet<&str> = error::KNOWN.iter().map(|known| known.name.as_str()).collect();
    let mut checked = 0;
    for section in &sections {
        for key in &keys {
            let homes: Vec<&error::Known> = error::KNOWN.iter().filter(|known| known.name == *key).collect();
            // A flat file is told from a job by these.
            if homes.iter().any(|home| home.section == *section) || ["job", "config"].contains(key) {
                continue;
            }
            let message = refused(&with_key(section, key).to_string());
            let best =
                if homes.iter().any(|home| home.has_effect) { homes.into_iter().filter(|home| home.has_effect).collect() } else { homes };
            let hints: Vec<String> = best
                .iter()
                .map(|home| if home.section.is_empty() { "at the top level".into() } else { format!("under `{}`", home.section) })
                .collect();
            // An alias that an optimizer knows is no mistake of this kind.
            assert!(
                hints.iter().all(|hint| message.contains(hint)) || !message.contains("unknown"),
                "{section}.{key}: none of {hints:?} in: {message}"
            );
            checked += 1;
        }
    }
    assert!(checked > 3000, "{checked}");
    for (text, hint) in [
        ("train: {seed: 1}", "`train.seed`; it belongs at the top level"),
        ("train: {seed: 1}", "beside `model` and `train`, under `sample` or under `sample.samples`"),
        ("train: {init_scale: 8}", "`train.init_scale`; it belongs under `train.grad_scaler`"),
        ("train: {eps: 1e-8}", "under `train.optimizer_params`"),
        ("train: {betas: [0.9, 0.99]}", "under `train.optimizer_params`"),
        ("train: {weight_decay: 0.1}", "under `train.optimizer_params`"),
        ("train: {trigger: sks}", "the nearest key is `trigger_word`"),
        ("train: {cache_dir: x}", "at the top level"),
        ("train: {optimizer_params: {lr: 1e-4}}", "`lr` belongs under `train`"),
        ("seeds: 1", "the nearest key is `seed`"),
        ("network_dim: 8", "sd-scripts' name of `network.linear`"),
        ("train: {max_train_steps: 8}", "sd-scripts' name of `train.steps`"),
    ] {
        assert_says(&refused_with(text), &[hint]);
    }
    let job = "job: extension\nconfig:\n  name: a\n  process:\n    - model: {name_or_path: m}\n      train: {seed: 1}\n";
    assert_says(&refused(job), &["c.yaml:6:15", "`train.seed`", "at the top level, beside `model` and `train`"]);
}

#[test]
fn duplicate_keys_and_two_spellings_of_one_key_are_refused() {
    assert_says(&refused_with("train:\n  lr: 1\n  lr: 2"), &["c.yaml:7:3", "`train.lr`", "twice"]);
    assert_says(
        &refused_with("train:\n  lr: 1\n  steps: 3\n  learning_rate: 2"),
        &["c.yaml:8:3", "duplicate", "`train.lr` (line 6)", "`train.learning_rate`"],
    );
    assert_says(&refused_with("network: {rank: 4, dim: 8}"), &["c.yaml:5:20", "`network.rank` (line 5)", "`network.dim`"]);
    assert_says(&refused_with("training: {}\ntrain: {steps: 1}"), &["c.yaml:6:1", "`training` (line 5)", "`train`"]);
    let twice = MINIMAL.replace("- folder_path: /imgs", "- folder_path: /imgs\n    image_dir: /x");
    assert_says(&refused(&twice), &["c.yaml:5:5", "`datasets[0].folder_path` (line 4)", "`datasets[0].image_dir`"]);
}

#[test]
fn everything_that_is_out_of_range_is_told_at_once_each_with_its_place() {
    let text = MINIMAL.replace("/imgs", "/imgs\n    resolution: 4\n    caption_dropout_rate: 2\n    bad_images: never")
        + "network:\n  rank: 9999\n  dropout: 1\ntrain:\n  steps: 1e12\n  lr: 50\n  batch_size: 0\n  loss_type: l3\n  optimizer_params: {betas: [0.9, 1], eps: 1e-8, weight_decay: -1}\n  \
           grad_scaler: {growth_interval: 0, backoff_factor: 1}\nsave:\n  layout: x\nsample:\n  width: 100\n  sample_steps: 0\n  prompts: [a, 'b --w wide']\n\
           memory: {budget: lots}\ndevice: tpu\n";
    let message = refused(&text);
    for (place, part) in [
        ("c.yaml:5:5: datasets[0].resolution", "between 8 and 16384"),
        ("c.yaml:6:5: datasets[0].caption_dropout_rate", "between 0 and 1"),
        ("c.yaml:7:5: datasets[0].bad_images", "skip or stop"),
        ("c.yaml:9:3: network.linear", "9999"),
        ("c.yaml:10:3: network.dropout", "not including"),
        ("c.yaml:12:3: train.steps", "at most 1000000000"),
        ("c.yaml:13:3: train.lr", "50"),
        ("c.yaml:14:3: train.batch_size", "between 1 and"),
        ("c.yaml:15:3: train.loss_type", "pseudo_huber"),
        ("c.yaml:16:22: in train.optimizer_params", "betas"),
        ("c.yaml:16:50: in train.optimizer_params", "weight_decay"),
        ("c.yaml:17:17: train.grad_scaler.growth_interval", "growth_factor"),
        ("c.yaml:17:37: train.grad_scaler.backoff_factor", "never leave"),
        ("c.yaml:19:3: save.layout", "diffusers"),
        ("c.yaml:21:3: sample.width", "multiple of 8"),
        ("c.yaml:22:3: sample.sample_steps", "between 1 and 1000"),
        ("c.yaml:23:16: sample.prompts[1]", "not a number"),
        ("c.yaml:24:10: memory.budget", "lots"),
        ("c.yaml:25:1: device", "auto or cpu"),
    ] {
        assert_says(&message, &[place, part]);
    }
    assert_says(&message, &["19 keys of c.yaml can't be used as they are"]);
    // One alone has its place too; what a section lacks is told at the section; what --set says is told as that.
    assert!(refused_with("train:\n  steps: 0").starts_with("c.yaml:6:3: train.steps: 0 leaves"));
    assert!(refused_with("train:\n  lr_warmup_steps: -3").starts_with("c.yaml:6:3: in train.lr_scheduler"));
    assert!(refused(&MINIMAL.replace("name_or_path: m", "")).starts_with("c.yaml:2:1: model.name_or_path is missing"));
    assert!(
        refused("name: a").starts_with("2 keys of c.yaml can't be used as they are: c.yaml: model is missing"),
        "{}",
        refused("name: a")
    );
    let overridden = format!("{:#}", set("train.learning_rate", "99").unwrap_err());
    assert!(overridden.starts_with("--set train.learning_rate=99: train.lr: 99"), "{overridden}");
    let overridden = format!("{:#}", set("datasets.0.num_repeats", "0").unwrap_err());
    assert!(overridden.starts_with("--set datasets.0.num_repeats=0: datasets[0].num_repeats: 0"), "{overridden}");
    let job = "job: extension\nconfig:\n  name: a\n  process:\n    - model: {name_or_path: m}\n      datasets: [{folder_path: x}]\n      train: {lr: 50}\n";
    assert!(refused(job).starts_with("c.yaml:7:15: train.lr: 50"), "{}", refused(job));
}

#[test]
fn an_endless_value_makes_no_endless_error() {
    let long = "x".repeat(100_000);
    for text in [
        format!("train: {{optimizer: {long}}}"),
        format!("train: {{steps: {long}}}"),
        format!("{long}: 1"),
        format!("sample: {{prompts: ['{long} --w wide']}}"),
        format!("device: {long}"),
    ] {
        let message = refused_with(&text);
        assert!(message.len() < 1500 && message.starts_with("c.yaml:5:"), "{} bytes: {}", message.len(), &message[..200]);
    }
}

#[test]
fn a_weight_decay_that_would_turn_weights_around_is_refused() {
    for text in ["optimizer_params: {weight_decay: 1e6}", "optimizer: lion, optimizer_params: {weight_decay: 11}"] {
        assert_says(&refused_with(&format!("train: {{{text}}}")), &["weight_decay", "from 0 to 10"]);
    }
    assert_says(
        &refused_with("train: {param_groups: [{contains: a, weight_decay: 1e6}]}"),
        &["train.param_groups[0].weight_decay", "from 0 to 10"],
    );
    with("train: {optimizer_params: {weight_decay: 10}, param_groups: [{contains: a, weight_decay: 0}]}");
}

#[test]
fn a_type_of_quantized_weights_that_nobody_switches_on_is_noticed() {
    let notices = |model: &str| read(&MINIMAL.replace("{name_or_path: m}", &format!("{{name_or_path: m, {model}}}"))).notices;
    assert_eq!(notices("qtype: nf4"), ["model.qtype: nf4 has no effect without model.quantize: true"]);
    assert_eq!(notices("qtype_te: qint8"), ["model.qtype_te: qint8 has no effect without model.quantize_te: true"]);
    for files_of_ai_toolkit in ["quantize: false, qtype: qfloat8, qtype_te: qfloat8", "quantize: false, quantize_te: false, qtype_te: nf4"]
    {
        assert!(notices(files_of_ai_toolkit).is_empty());
    }
}

#[test]
fn a_tab_as_indent_and_broken_syntax_have_line_and_column() {
    assert_says(&refused_with("train:\n\tsteps: 3"), &["c.yaml:6:1", "tab"]);
    assert_says(&refused_with("train: {steps: 5"), &["c.yaml:5:8", "`{`", "never closed", "`}`"]);
    assert_says(&refused_with("train:\n  optimizer_params: {betas: [0.9, 0.99}"), &["c.yaml:6:", "`[`", "`]`"]);
    assert_says(&refused_with("sample:\n  prompts: [a, b\nsave: {every: 1}"), &["c.yaml:", "`[`"]);
    assert_says(&refused_with("train: {steps: 5}}"), &["c.yaml:5:", "nothing has opened"]);
    assert_says(&refused_with("train: {optimizer: 'adamw}"), &["c.yaml:5:", "quote is never closed"]);
    assert_says(&refused("hello"), &["c.yaml:1:1"]);
    assert_says(&refused(""), &["empty"]);
}

#[test]
fn ill_typed_values_are_refused_and_the_key_is_named() {
    for (text, key) in [
        ("train:\n  steps: three", "`train.steps`"),
        ("train:\n  steps: 1.5", "`train.steps`"),
        ("train: {steps: -1}", "`train.steps`"),
        ("train:\n  steps: \"5\"", "`train.steps`"),
        ("train:\n  lr: .nan", "`train.lr`"),
        ("train:\n  train_unet: off", "`train.train_unet`"),
        ("train:\n  train_unet: \"False\"", "`train.train_unet`"),
        ("train:\n  train_unet: 1", "`train.train_unet`"),
        ("save: {save_every: -1}", "`save.save_every`"),
        ("train: [1]", "`train`"),
    ] {
        assert_says(&refused_with(text), &["c.yaml:", key]);
    }
}

#[test]
fn numbers_are_read_in_every_usual_spelling() {
    let config = with("train: {lr: 1e-4, steps: 1e3, max_grad_norm: 1}\nsave: {every: 0}\nsample: {every: 0}");
    assert_eq!((config.train.lr, config.train.steps, config.train.max_grad_norm), (1e-4, 1000, 1.0));
    assert_eq!((config.save.save_every, config.sample.sample_every), (0, 0));
}

#[test]
fn names_and_texts_keep_their_letters() {
    for name in ["NO", "1.10", "0777", "1e3", "true", "style.v1.2", "Grün 猫"] {
        let text = MINIMAL.replace("name: a", &format!("name: {name}")) + &format!("trigger_word: {name}\n");
        let config = read(&text).config;
        assert_eq!((config.name.as_str(), config.trigger_word.as_deref()), (name, Some(name)));
        assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    }
}

#[test]
fn names_that_no_file_can_have_are_refused() {
    for name in ["a/b", "con", "CON.txt", "com1", "x.", "'..'", "\"a\\tb\"", "a?b", "' '", &"é".repeat(101)] {
        assert_says(&refused(&MINIMAL.replace("name: a", &format!("name: {name}"))), &["name"]);
    }
    read(&MINIMAL.replace("name: a", &format!("name: {}", "é".repeat(100))));
}

#[test]
fn byte_order_mark_and_windows_line_ends_are_fine_and_other_encodings_are_refused_in_words() {
    let text = format!("\u{FEFF}{MINIMAL}").replace('\n', "\r\n");
    assert_eq!(load(text.as_bytes(), "c.yaml", &[]).unwrap().config.name, "a");
    let mut cyrillic = MINIMAL.as_bytes().to_vec();
    cyrillic.extend(b"trigger_word: \xEA\xEE\xF2\n");
    assert_says(&format!("{:#}", load(&cyrillic, "c.yaml", &[]).unwrap_err()), &["c.yaml:5", "save the file as UTF-8"]);
    assert_says(&format!("{:#}", load(b"\xFF\xFEn\0", "c.yaml", &[]).unwrap_err()), &["UTF-16"]);
}

#[test]
fn paths_are_trimmed_and_home_is_expanded() {
    let home = std::env::var("HOME").unwrap();
    assert_eq!(with("output: ' /data/x '").training_folder, Path::new("/data/x"));
    assert_eq!(with("output: ~/x").training_folder, Path::new(&home).join("x"));
    assert_eq!(with("output: $HOME/x").training_folder, Path::new(&home).join("x"));
    assert_eq!(with("output: rel/x").training_folder, Path::new("rel/x"));
    assert_eq!(with("output: rel/x").run_folder(), Path::new("rel/x/a"));
}

#[test]
fn conflicts_name_both_keys() {
    for (text, keys) in [
        ("train: {cache_text_embeddings: true, train_text_encoder: true}", ["train.cache_text_embeddings", "train.train_text_encoder"]),
        ("train: {steps: 5, epochs: 2}", ["train.steps", "train.epochs"]),
        (
            "train: {gradient_accumulation: 2, gradient_accumulation_steps: 4}",
            ["train.gradient_accumulation`", "train.gradient_accumulation_steps`"],
        ),
        ("train: {train_unet: false}", ["train.train_unet", "train.train_text_encoder"]),
        ("train: {min_timestep: 9, max_timestep: 8}", ["train.min_timestep", "train.max_timestep"]),
        ("train: {min_snr_gamma: 5, debiased_estimation: true}", ["train.min_snr_gamma", "train.debiased_estimation_loss"]),
        ("train: {timestep_type: sigmoid, content_or_style: style}", ["train.timestep_type: sigmoid", "train.content_or_style"]),
        ("train: {linear_timesteps: true, linear_timesteps2: true}", ["train.linear_timesteps", "train.linear_timesteps2"]),
        ("train: {min_denoising_steps: 5, max_timestep: 800}", ["train.min_denoising_steps", "train.min_timestep"]),
        ("train: {noise_scheduler: flowmatch, min_snr_gamma: 5}", ["train.min_snr_gamma", "flow-matching"]),
        ("train: {diff_output_preservation: true}", ["train.diff_output_preservation", "diff_output_preservation_class"]),
        ("train: {diff_output_preservation: true, diff_output_preservation_class: dog}", ["diff_output_preservation", "trigger_word"]),
        ("logging: {tensorboard: false, log_with: tensorboard}", ["logging.log_with", "logging.tensorboard"]),
        ("train: {lr_warmup_steps: 5, lr_scheduler_params: {warmup_steps: 5}}", ["lr_warmup_steps", "lr_scheduler_params.warmup_steps"]),
        ("train: {lr_warmup_steps: 5}", ["train.lr_scheduler", "constant_with_warmup"]),
        ("train: {optimizer: adamw_schedulefree, ema_config: {use_ema: true}}", ["train.ema_config.use_ema", "adamw_schedulefree"]),
        ("train: {train_text_encoder: true, text_encoder_lr: 0}", ["train.train_text_encoder", "train.text_encoder_lr"]),
        ("network: {only_if_contains: [a], network_kwargs: {only_if_contains: [b]}}", ["network.only_if", "network_kwargs.only_if"]),
        ("network: {conv_alpha: 4}", ["network.conv_alpha", "network.conv "]),
    ] {
        assert_says(&refused_with(text), &keys);
    }
    for (dataset, keys) in [
        ("cache_text_embeddings: true, shuffle_tokens: true", ["datasets[0].cache_text_embeddings", "datasets[0].shuffle_tokens"]),
        ("cache_text_embeddings: true, token_dropout_rate: 0.1", ["cache_text_embeddings", "token_dropout_rate"]),
        ("cache_latents: false, cache_latents_to_disk: true", ["cache_latents:", "cache_latents_to_disk"]),
        ("min_bucket: 512, max_bucket: 256", ["min_bucket", "max_bucket"]),
    ] {
        assert_says(&refused(&MINIMAL.replace("- folder_path: /imgs", &format!("- {{folder_path: /imgs, {dataset}}}"))), &keys);
    }
    assert_says(
        &refused("name: a\nmodel: {path: m, prediction_type: epsilon, is_v_pred: true}\ndatasets: [{folder_path: x}]"),
        &["model.prediction_type", "model.is_v_pred"],
    );
}

#[test]
fn the_encoding_of_captions_goes_by_its_usual_names() {
    let dataset = |name: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{folder_path: /imgs, caption_encoding: {name}}}\n");
    for (name, kept) in [("auto", None), ("''", None), ("GBK", Some("gbk")), ("cp936", Some("gbk")), ("sjis", Some("shift_jis"))] {
        let config = read(&dataset(name)).config;
        assert_eq!(config.datasets[0].caption.caption_encoding.as_deref(), kept, "{name}");
        assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    }
    assert_says(&refused(&dataset("klingon")), &["c.yaml:4:26: datasets[0].caption_encoding", "klingon", "windows-1251"]);
}

#[test]
fn captions_have_their_keys_under_both_their_names() {
    let dataset = |keys: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{image_dir: /imgs, {keys}}}\n");
    let keys = "caption_extension: [.caption, txt], shuffle_caption: true, keep_tokens_separator: '|||', caption_tag_dropout_rate: 0.1, \
                replacements: ['cat|dog', 'a|b|c'], random_triggers: [x], missing_captions: skip, kohya_folders: false, flip_aug: true";
    let config = read(&dataset(keys)).config;
    let captions = &config.datasets[0].caption;
    assert_eq!((captions.caption_ext.as_slice(), captions.shuffle_tokens), (["caption".to_string(), "txt".to_string()].as_slice(), true));
    assert_eq!((captions.token_dropout_rate, captions.missing_captions, captions.kohya_folders), (0.1, MissingCaptions::Skip, Some(false)));
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    for (keys, parts) in [
        ("replacements: [cat]", ["replacements", "from|to"]),
        ("replacements: ['|x']", ["replacements", "nothing in front"]),
        ("missing_captions: none", ["missing_captions", "fill, skip or stop"]),
        ("caption_ext: []", ["caption_ext", "empty"]),
        ("caption_separator: ' '", ["caption_separator", "nothing"]),
        ("shuffle_tokens: true, shuffle_caption: false", ["duplicate", "shuffle"]),
    ] {
        assert_says(&refused(&dataset(keys)), &parts);
    }
    for random in ["enable_wildcard: true", "replacements: ['a|b|c']", "random_triggers: [x]"] {
        assert!(!read(&dataset(random)).config.train.cache_text_embeddings, "{random}");
        assert_says(&refused(&dataset(&format!("cache_text_embeddings: true, {random}"))), &["cache_text_embeddings", &random[..10]]);
    }
    assert!(read(&dataset("replacements: ['a|b']")).config.train.cache_text_embeddings);
}

#[test]
fn the_background_of_transparent_pictures_is_a_colour() {
    let dataset = |keys: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{folder_path: /imgs, {keys}}}\n");
    assert_eq!(read(&dataset("background: black")).config.datasets[0].background, [0; 3]);
    assert_eq!(read(&dataset("background: '#0aff10'")).config.datasets[0].background, [10, 255, 16]);
    assert_says(&refused(&dataset("background: '#12'")), &["datasets[0].background", "#12"]);
}

#[test]
fn a_resolution_is_a_side_or_two_or_a_list_of_either() {
    let dataset = |keys: &str| format!("name: a\nmodel: {{path: m}}\ndatasets:\n  - {{folder_path: /imgs, {keys}}}\n");
    let config =
        read(&dataset("resolution: [512, 768x1152, '1024×768'], enable_bucket: true, bucket_no_upscale: true, bucket_scheme: list")).config;
    let sides = |width, height| Resolution { width, height };
    assert_eq!(config.datasets[0].resolution, [sides(512, 512), sides(768, 1152), sides(1024, 768)]);
    assert!(config.datasets[0].bucket_no_upscale && config.datasets[0].buckets);
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    for (keys, part) in
        [("resolution: 768x", "768x1152"), ("resolution: [512, 512x512]", "twice"), ("resolution: 768x4", "between 8 and 16384")]
    {
        assert_says(&refused(&dataset(keys)), &["resolution", part]);
    }
    let notices = read(&dataset("bucket_no_upscale: true")).notices;
    assert!(notices[0].contains("bucket_no_upscale") && notices[0].contains("ratio"), "{notices:?}");
}

#[test]
fn text_embeddings_are_cached_by_themselves_unless_something_stands_against_it() {
    let shuffled = MINIMAL.replace("/imgs", "/imgs\n    shuffle_tokens: true");
    let dropped = MINIMAL.replace("/imgs", "/imgs\n    caption_dropout_rate: 0.1");
    assert!(read(MINIMAL).config.train.cache_text_embeddings && read(&dropped).config.train.cache_text_embeddings);
    assert!(!read(&shuffled).config.train.cache_text_embeddings);
    assert!(!with("train: {train_text_encoder: true}").train.cache_text_embeddings);
    assert!(!with("train: {cache_text_embeddings: false}").train.cache_text_embeddings);
}

#[test]
fn what_is_not_supported_yet_says_so_and_lists_what_is() {
    assert_says(&refused_with("train: {optimizer: adamm}"), &["train.optimizer", "did you mean adam?", "prodigy"]);
    assert_says(&refused_with("train: {lr_scheduler: liner}"), &["train.lr_scheduler", "did you mean linear?", "rex"]);
    assert_says(&refused_with("network: {type: lokr}"), &["not supported yet", "lora and locon"]);
    assert_says(&refused_with("train: {snr_gamma: 5}"), &["train.snr_gamma", "min_snr_gamma"]);
    assert_says(&refused_with("train: {loss_type: wavelet}"), &["train.loss_type", "wavelet", "pseudo_huber"]);
    assert_says(&refused_with("train: {ema_config: {use_feedback: true}}"), &["train.ema_config.use_feedback", "not supported yet"]);
    with("train: {loss_type: mse, snr_gamma: null, do_cfg: false, img_multiplier: 1, ema_config: {use_ema: false}}");
}

#[test]
fn losses_noise_and_timesteps_have_the_names_and_defaults_of_their_peers() {
    let train = |keys: &str| with(&format!("train: {{{keys}}}")).train;
    for (name, kind) in [("l2", LossType::Mse), ("MAE", LossType::Mae), ("huber", LossType::Huber), ("smooth_l1", LossType::SmoothL1)] {
        let loss = train(&format!("loss_type: {name}")).loss;
        assert_eq!((loss.loss_type, loss.huber_schedule, loss.huber_c), (kind, HuberSchedule::Snr, 0.1));
    }
    let pseudo = train("loss_type: pseudo_huber").loss;
    assert_eq!((pseudo.huber_schedule, pseudo.huber_c), (HuberSchedule::Constant, 0.01));
    assert_eq!(train("prior_loss_weight: 0.5").loss.reg_weight, 0.5);
    assert_eq!(train("input_perturbation: 0.1").noise.ip_noise_gamma, 0.1);
    assert_eq!(train("noise_offset: 0.05, adaptive_noise_scale: -0.01").noise.adaptive_noise_scale, -0.01);
    assert!(train("scale_v_pred_loss_like_noise_pred: true").loss.scale_v_pred_loss_like_noise_pred);
    assert_eq!(train("multires_noise_iterations: 6").noise.multires_noise_discount, 0.3);
    assert_eq!(train("timestep_sampling: sigmoid, sigmoid_scale: 0.7").noise.logit_std, 0.7);
    assert_eq!(train("content_or_style: style").noise.content_or_style_reg, ContentOrStyle::Style);
    for (keys, parts) in [
        ("loss_type: wavelet", ["train.loss_type", "smooth_l1"]),
        ("huber_c: 0", ["train.huber_c", "more than 0"]),
        ("loss_type: huber, huber_c: 2", ["train.huber_c", "constant"]),
        ("timestep_type: flux_shift", ["train.timestep_type", "flow-matching"]),
        ("timestep_type: weighted", ["train.timestep_type", "linear_timesteps"]),
        ("multires_noise_iterations: 50", ["train.multires_noise_iterations", "20"]),
        ("logit_std: 0", ["train.logit_std", "min_timestep"]),
        ("adaptive_noise_scale: 0.01", ["train.adaptive_noise_scale", "train.noise_offset"]),
        ("content_or_style: both", ["train.content_or_style", "balanced"]),
    ] {
        assert_says(&refused_with(&format!("train: {{{keys}}}")), &parts);
    }
    assert_says(&refused_with("logging: {log_with: paper}"), &["logging.log_with", "tensorboard"]);
    assert!(with("logging: {log_with: tensorboard}").logging.tensorboard && !with("logging: {log_with: wandb}").logging.tensorboard);
}

#[test]
fn fp16_has_pytorchs_scale_of_the_loss_and_other_types_have_none() {
    let scaler = |train: &str| with(&format!("train: {{{train}}}")).train.loss_scaling();
    let default = scaler("dtype: float16").unwrap();
    assert_eq!((default.init_scale, default.growth_factor, default.backoff_factor), (65536.0, 2.0, 0.5));
    assert_eq!((default.growth_interval, default.min_scale), (2000, 1.0));
    let other = scaler("dtype: fp16, grad_scaler: {init_scale: 1024, growth_interval: 100, enabled: true}").unwrap();
    assert_eq!((other.init_scale, other.growth_interval, other.growth_factor), (1024.0, 100, 2.0));
    let loaded = read(&format!("{MINIMAL}train: {{dtype: bf16, grad_scaler: {{init_scale: 8}}}}\n"));
    assert_eq!(loaded.config.train.loss_scaling(), None);
    assert!(loaded.notices.iter().any(|n| n.contains("train.grad_scaler has no effect")), "{:?}", loaded.notices);
    for (keys, parts) in [
        ("init_scale: 0", ["train.grad_scaler.init_scale", "0"]),
        ("growth_factor: 0.5", ["train.grad_scaler.growth_factor", "0.5"]),
        ("backoff_factor: 1", ["train.grad_scaler.backoff_factor", "never leave"]),
        ("growth_interval: 0", ["train.grad_scaler.growth_interval", "growth_factor: 1"]),
        ("init_scale: 2, min_scale: 4", ["train.grad_scaler.min_scale", "init_scale: 2"]),
    ] {
        assert_says(&refused_with(&format!("train: {{dtype: fp16, grad_scaler: {{{keys}}}}}")), &parts);
    }
}

#[test]
fn tf32_is_taken_and_explained() {
    for key in ["allow_tf32", "tf32"] {
        let loaded = read(&format!("{MINIMAL}train: {{{key}: true, dtype: fp32}}\n"));
        assert_eq!(loaded.config.train.dtype, base::DType::F32);
        assert!(loaded.notices.iter().any(|n| n.contains(key) && n.contains("TF32")), "{:?}", loaded.notices);
    }
}

#[test]
fn timesteps_are_counted_as_each_peer_counts_them() {
    let range = |keys: &str| {
        let noise = with(&format!("train: {{{keys}}}")).train.noise;
        (noise.min_timestep, noise.max_timestep)
    };
    assert_eq!(range(""), (0, 999));
    assert_eq!(range("min_timestep: 200, max_timestep: 1000"), (200, 999));
    assert_eq!(range("min_denoising_steps: 0, max_denoising_steps: 999"), (0, 999));
    // ai-toolkit's index 0 is the noisiest timestep.
    assert_eq!(range("min_denoising_steps: 0, max_denoising_steps: 499"), (500, 999));
    assert_eq!(range("min_denoising_steps: 800"), (0, 199));
    let loaded = read(&format!("{MINIMAL}train: {{max_denoising_steps: 499}}\n"));
    assert!(loaded.notices.iter().any(|n| n.contains("timesteps 500 to 999")), "{:?}", loaded.notices);
}

#[test]
fn regularisation_pictures_get_no_trigger_word_of_the_run() {
    let text = "name: a\nmodel: {path: m}\ntrigger_word: sks\ndatasets:\n  - {folder_path: x}\n  - {folder_path: y, is_reg: true, loss_multiplier: 0.5}\n";
    let config = read(text).config;
    let triggers: Vec<Option<&str>> = config.datasets.iter().map(|d| d.caption.trigger_word.as_deref()).collect();
    assert_eq!(triggers, [Some("sks"), None]);
    assert_eq!((config.datasets[1].is_reg, config.datasets[1].loss_multiplier, config.datasets[0].loss_multiplier), (true, 0.5, 1.0));
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
}

#[test]
fn all_keys_that_are_not_supported_are_told_at_once() {
    let message = refused_with("train: {do_fft_loss: true, do_cfg: true}\nsample: {network_multiplier: 2}\nslider: {x: 1}");
    assert_says(
        &message,
        &[
            "4 keys",
            "c.yaml:7:1: slider",
            "c.yaml:5:9: train.do_fft_loss: true is not supported yet",
            "train.do_cfg: true",
            "sample.network_multiplier: 2",
        ],
    );
}

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
fn absurd_numbers_are_refused_with_their_key() {
    for (text, key) in [
        ("train: {steps: 1e15}", "train.steps"),
        ("train: {epochs: 1e12}", "train.epochs"),
        ("train: {batch_size: 1e9}", "train.batch_size"),
        ("train: {lr: 1e9}", "train.lr"),
        ("network: {rank: 1e6}", "network.linear"),
        ("dataloader: {num_workers: 1e6}", "dataloader.num_workers"),
        ("dataloader: {prefetch_factor: 0}", "dataloader.prefetch_factor"),
        ("sample: {width: 1e9}", "width"),
        ("train: {noise_offset: 1e300}", "train.noise_offset: 1e300"),
        ("train: {huber_c: 1e300, huber_schedule: constant}", "train.huber_c: 1e300"),
        ("train: {loraplus_lr_ratio: 1e20}", "train.loraplus_lr_ratio: 1e20"),
        ("train: {noise_offset: 0.1, adaptive_noise_scale: -1e20}", "train.adaptive_noise_scale: -1e20"),
        ("train: {max_grad_norm: 1e300}", "train.max_grad_norm: 1e300"),
        ("network: {alpha: 1e20}", "network.linear_alpha: 1e20"),
    ] {
        assert_says(&refused_with(text), &[key]);
    }
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

#[test]
fn sizes_in_the_memory_budget() {
    for (text, bytes) in [("8GB", 8_000_000_000), ("8 GiB", 8 << 30), ("1e3", 1000), ("0", 0), ("1.5k", 1500)] {
        assert_eq!(with(&format!("memory: {{budget: {text}}}")).memory.budget, bytes, "{text}");
    }
    assert_says(&refused_with("memory: {budget: lots}"), &["memory.budget", "lots"]);
}

#[test]
fn optimizers_are_named_as_users_write_them_and_come_with_their_own_rate_and_settings() {
    let config = with("train: {optimizer: Prodigy, optimizer_params: {d_coef: 2, betas: [0.9, 0.99]}}");
    assert_eq!((config.train.optimizer.as_str(), config.train.lr), ("prodigy", 1.0));
    assert_eq!((&config.train.optimizer_params["d_coef"], &config.train.optimizer_params["slice_p"]), (&2.0.into(), &1.into()));
    let config = with("train: {optimizer: AdamW8bit, lr: 5e-5}");
    assert_eq!((config.train.optimizer.as_str(), config.train.lr), ("adamw8bit", 5e-5));
    assert_eq!(with("train: {lr_scheduler: wsd, lr_scheduler_params: {decay_steps: 0.3}}").train.lr_scheduler, "warmup_stable_decay");
    for (text, words) in [
        ("optimizer_params: {betass: [0.9, 0.99]}", ["train.optimizer_params", "did you mean betas?"]),
        ("optimizer_params: {betas: [0.9, 1]}", ["train.optimizer_params", "betas"]),
        ("optimizer_params: {eps: .nan}", ["train.optimizer_params.eps", "finite"]),
        ("optimizer_params: {eps: }", ["train.optimizer_params.eps", "no value"]),
        ("optimizer: adafactor, optimizer_params: {warmup_init: true}", ["train.optimizer_params", "relative_step"]),
        ("lr_scheduler: cosine, lr_scheduler_params: {num_warmup_steps: 3}, lr_warmup_steps: 3", ["lr_warmup_steps", "num_warmup_steps"]),
        ("lr_scheduler: cosine, lr_scheduler_params: {min_lr: 1}", ["train.lr_scheduler", "above the learning rate"]),
        ("on_optimizer_change: maybe", ["train.on_optimizer_change", "stop or fresh"]),
        ("parameter_swapping_factor: 0", ["train.parameter_swapping_factor", "share"]),
        ("ema_config: {ema_decay: 1}", ["train.ema_config.ema_decay", "not including"]),
        ("param_groups: [{lr: 1e-4}]", ["train.param_groups[0].contains", "missing"]),
        ("param_groups: [{contains: a}, {contains: b, lr: 1, lr_scale: 2}]", ["train.param_groups[1].lr", "keep one"]),
        ("param_groups: [{contains: a, lrr: 1}]", ["nearest key", "`train.param_groups[0].lr`"]),
    ] {
        assert_says(&refused_with(&format!("train: {{{text}}}")), &words);
    }
}

#[test]
fn rates_that_mean_something_else_to_an_optimizer_are_noticed() {
    let notices = |text: &str| read(&format!("{MINIMAL}train: {{{text}}}\n")).notices;
    for (text, word) in [
        ("optimizer: prodigy, lr: 1e-4", "factor"),
        ("optimizer: dadaptlion, lr: 1e-4", "factor"),
        ("optimizer: automagic, lr: 0.1", "usually given"),
        ("lr_scheduler: cosine, lr_scheduler_params: {T_max: 100}", "as long as the run"),
    ] {
        assert!(notices(text).iter().any(|n| n.contains(word)), "{text}: {:?}", notices(text));
    }
    for text in ["optimizer: prodigy", "optimizer: prodigy, lr: 0.5", "optimizer: adamw, lr: 1e-4", "lr: 0.0, unet_lr: 1e-4"] {
        assert!(notices(text).is_empty(), "{text}: {:?}", notices(text));
    }
}

/// Hostile input ends in an error, never in a panic or without end.
#[test]
fn mangled_files_are_errors_not_panics() {
    let whole = format!("{MINIMAL}train: {{steps: 10, optimizer_params: {{betas: [0.9, 0.99]}}}}\nsample: {{prompts: ['a --w 64', b]}}\n");
    let mut rng = base::Rng::new(1, "mangle", &[]);
    for _ in 0..400 {
        let mut bytes = whole.clone().into_bytes();
        for _ in 0..=rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            match rng.below(3) {
                0 => bytes[at] = b"{}[]:-\n\t#&*!|>'\"%@`,\0\xFF 09"[rng.below(25) as usize],
                1 if bytes.len() > 1 => drop(bytes.remove(at)),
                _ => bytes.truncate(at.max(1)),
            }
        }
        let _ = load(&bytes, "c.yaml", &[]);
    }
    let bomb = format!("a: &a [x,x,x,x,x,x,x,x]\n{}", (0..30).map(|i| format!("b{i}: &b{i} [*a,*a,*a,*a]\n")).collect::<String>());
    assert!(load(bomb.as_bytes(), "c.yaml", &[]).is_err());
}
