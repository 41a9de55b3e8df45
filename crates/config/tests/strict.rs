//! Public failures of config files (CFG cases): each is read as its writer meant it, or refused in words.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use velatura_config::{Loaded, RunConfig, load};

const MINIMAL: &str = "name: a\nmodel: {name_or_path: m}\ndatasets:\n  - folder_path: /imgs\n";

#[track_caller]
fn read(text: &str) -> Loaded {
    load(text.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{text}"))
}

#[track_caller]
fn with(extra: &str) -> RunConfig {
    read(&format!("{MINIMAL}{extra}\n")).config
}

#[track_caller]
fn refused(bytes: impl AsRef<[u8]>, words: &[&str]) {
    let message = format!("{:#}", load(bytes.as_ref(), "c.yaml", &[]).expect_err("it is accepted"));
    for word in words {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[track_caller]
fn refused_with(extra: &str, words: &[&str]) {
    refused(format!("{MINIMAL}{extra}\n"), words);
}

fn dataset(keys: &str) -> String {
    MINIMAL.replace("folder_path: /imgs", &format!("folder_path: /imgs\n    {keys}"))
}

/// CFG-03.
#[test]
fn booleans_come_from_true_and_false_only_never_from_text_or_other_words() {
    for word in ["\"False\"", "\"true\"", "'no'", "off", "On", "No", "yes", "y", "0", "1", "FALSEY"] {
        for (key, text) in [
            ("datasets[0].shuffle_tokens", dataset(&format!("shuffle_tokens: {word}"))),
            ("datasets[0].cache_latents", dataset(&format!("cache_latents: {word}"))),
            ("datasets[0].flip_x", dataset(&format!("flip_aug: {word}"))),
            ("train.train_unet", format!("{MINIMAL}train: {{train_unet: {word}}}\n")),
        ] {
            let last = key.rsplit('.').next().unwrap();
            let shown = if last == "flip_x" { "flip_aug" } else { last };
            refused(&text, &["c.yaml:", shown, "true or false"]);
        }
    }
    for (word, value) in [("true", true), ("True", true), ("TRUE", true), ("false", false), ("False", false)] {
        assert_eq!(read(&dataset(&format!("shuffle_tokens: {word}"))).config.datasets[0].caption.shuffle_tokens, value, "{word}");
    }
}

/// CFG-03.
#[test]
fn names_and_other_texts_keep_their_letters() {
    for name in ["NO", "no", "1.10", "0777", "1e3", "true", "0x1F", "1_000", "2024-01-02", ".5", "+1", "猫", "off"] {
        // A name that begins with a dot would hide the folder.
        let run = if name == ".5" { "a" } else { name };
        let config = read(&format!("{}trigger_word: {name}\n", MINIMAL.replace("name: a", &format!("name: {run}")))).config;
        assert_eq!((config.name.as_str(), config.trigger_word.as_deref()), (run, Some(name)));
    }
}

/// CFG-04.
#[test]
fn duplicate_keys_and_tabs_are_refused_with_line_column_and_name() {
    refused_with("train:\n  lr: 1e-4\n  steps: 5\n  lr: 1e-5", &["c.yaml:8:3", "train.lr", "twice"]);
    refused_with("name: b", &["c.yaml:5:1", "`name`", "twice"]);
    refused_with("train:\n  lr: 1e-4\n  learning_rate: 1e-5", &["c.yaml:7:3", "`train.lr`", "`train.learning_rate`", "twice"]);
    refused_with("train: {steps: 1}\ntraining: {steps: 2}", &["c.yaml:6:1", "`train`", "`training`", "twice"]);
    refused(dataset("num_repeats: 2\n    num_repeats: 3"), &["c.yaml:6:5", "num_repeats", "twice"]);
    refused_with("train:\n\tlr: 1e-4", &["c.yaml:6:1", "tab", "spaces"]);
    refused_with("train:\n  lr: 1e-4\n  \tsteps: 3", &["c.yaml:7:3", "tab", "spaces"]);
}

/// CFG-05.
#[test]
fn a_retired_8_bit_flag_is_translated_and_a_conflict_with_the_new_name_names_both() {
    let Loaded { config, notices } = read(&format!("{MINIMAL}train: {{use_8bit_optimizer: true}}\n"));
    assert_eq!(config.train.optimizer, "adamw8bit");
    assert!(notices.iter().any(|n| n.contains("train.use_8bit_optimizer") && n.contains("adamw8bit")), "{notices:?}");
    assert_eq!(with("train: {use_8bit_optimizer: true, optimizer: Lion}").train.optimizer, "lion8bit");
    assert_eq!(with("train: {use_8bit_optimizer: true, optimizer: adamw8bit}").train.optimizer, "adamw8bit");
    assert_eq!(with("train: {use_8bit_optimizer: false, optimizer: adafactor}").train.optimizer, "adafactor");
    refused_with("train: {use_8bit_optimizer: true, optimizer: came}", &["train.use_8bit_optimizer", "train.optimizer: came"]);
}

/// CFG-06.
#[test]
fn zero_steps_mean_epochs_where_there_are_some_and_are_refused_where_there_are_none() {
    let config = with("train: {steps: 0, epochs: 12}");
    assert_eq!((config.train.steps, config.train.epochs), (0, 12));
    refused_with("train: {steps: 0}", &["train.steps: 0", "train.epochs"]);
    refused_with("train: {steps: 0, epochs: 0}", &["train.steps: 0", "train.epochs"]);
    refused_with("train: {steps: 7, epochs: 12}", &["train.steps (7)", "train.epochs (12)"]);
}

/// CFG-07.
#[test]
fn paths_are_trimmed_and_home_is_expanded_in_every_key_that_holds_one() {
    let home = std::env::var("HOME").unwrap();
    for (written, path) in [
        ("\" /data/x\"", "/data/x".to_string()),
        ("'/data/x  '", "/data/x".to_string()),
        ("~/x", format!("{home}/x")),
        ("\"~\"", home.clone()),
        ("$HOME/x", format!("{home}/x")),
        ("${HOME}/x", format!("{home}/x")),
        ("rel/x", "rel/x".to_string()),
        ("/data/~x/HOME$", "/data/~x/HOME$".to_string()),
    ] {
        let text = format!(
            "name: a\noutput: {written}\ncache_dir: {written}\nmodel:\n  path: {written}\n  vae_path: {written}\n\
             network:\n  pretrained_lora_path: {written}\ndatasets:\n  - path: {written}\n"
        );
        let config = read(&text).config;
        let expected = Path::new(&path);
        assert_eq!(config.training_folder, expected);
        assert_eq!(config.cache_dir, expected);
        assert_eq!((config.model.name_or_path.as_str(), config.model.vae_path.as_deref()), (path.as_str(), Some(path.as_str())));
        assert_eq!(config.network.pretrained_lora_path.as_deref(), Some(expected));
        assert_eq!(config.datasets[0].folder_path, expected);
    }
    refused_with("output: '  '", &["training_folder is empty"]);
}

/// CFG-08.
#[test]
fn other_encodings_are_refused_with_the_line_and_what_to_do() {
    let text = MINIMAL.replace("/imgs", "/картинки");
    // Windows-1251: the letters а…я are 0xE0….
    let cp1251: Vec<u8> = text.chars().map(|c| if c.is_ascii() { c as u8 } else { (c as u32 - 0x430 + 0xE0) as u8 }).collect();
    refused(cp1251, &["c.yaml:4", "save the file as UTF-8"]);
    refused(b"name: a\ntrigger_word: \xC3\xA8\xB5\n", &["c.yaml:2", "save the file as UTF-8"]);
    for big in [false, true] {
        let pair = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        let bare: Vec<u8> = text.encode_utf16().flat_map(pair).collect();
        let marked: Vec<u8> = [pair(0xFEFF).as_slice(), &bare].concat();
        refused(&marked, &["c.yaml:1", "UTF-16", "save the file as UTF-8"]);
        refused(&bare, &["c.yaml:1", "UTF-16", "save the file as UTF-8"]);
    }
    refused(b"name: a\nmodel: \0\n", &["c.yaml:2", "zero byte"]);
    let windows = format!("\u{FEFF}{}", text.replace('\n', "\r\n"));
    assert_eq!(read(&windows).config, read(&text).config);
    assert_eq!(read(&text).config.datasets[0].folder_path, Path::new("/картинки"));
}

/// CFG-09.
#[test]
fn zero_switches_every_interval_off_and_a_negative_one_is_refused_with_the_reason() {
    let config = with(
        "train: {max_grad_norm: 0, min_snr_gamma: 0, noise_offset: 0, lr_warmup_steps: 0, max_token_length: 0}\n\
         save: {save_every: 0}\nsample: {sample_every: 0}\nlogging: {log_every: 0}\ndataloader: {num_workers: 0}\nmemory: {budget: 0}",
    );
    assert_eq!((config.save.save_every, config.sample.sample_every, config.logging.log_every), (0, 0, 0));
    assert_eq!((config.train.max_grad_norm, config.train.max_token_length), (0.0, None));
    for (section, key) in [
        ("save", "save_every"),
        ("save", "every"),
        ("save", "max_step_saves_to_keep"),
        ("sample", "sample_every"),
        ("logging", "log_every"),
        ("train", "steps"),
        ("train", "epochs"),
        ("train", "batch_size"),
        ("dataloader", "num_workers"),
    ] {
        refused_with(&format!("{section}: {{{key}: -1}}"), &["c.yaml:5", &format!("{section}.{key}"), "-1 is negative", "0 or more"]);
    }
    refused_with("save: {max_step_saves_to_keep: 0}", &["save.max_step_saves_to_keep", "at least 1"]);
    refused_with("train: {max_grad_norm: -1}", &["train.max_grad_norm", "negative"]);
}

/// CFG-10.
#[test]
fn adafactor_with_relative_step_needs_no_rate_and_refuses_one() {
    let relative = "optimizer: adafactor, optimizer_params: {relative_step: true, warmup_init: true, scale_parameter: true}";
    let config = with(&format!("train: {{{relative}}}"));
    assert_eq!(config.train.optimizer_params["relative_step"], true);
    assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    for rate in ["lr: 1e-4", "unet_lr: 1e-3", "text_encoder_lr: 1e-5"] {
        let key = rate.split(':').next().unwrap();
        refused_with(
            &format!("train: {{{relative}, {rate}}}"),
            &[&format!("train.{key}"), "train.optimizer_params.relative_step", "remove one"],
        );
    }
    let group = format!("train: {{{relative}, param_groups: [{{contains: attn, lr: 1e-5}}]}}");
    refused_with(&group, &["train.param_groups[0].lr", "relative_step"]);
    with(&group.replace("lr: 1e-5", "lr_scale: 0.5"));
    assert_eq!(with("train: {optimizer: adafactor, lr: 1e-4, optimizer_params: {relative_step: false}}").train.lr, 1e-4);
}

/// OS-02 and OS-03, as far as a config decides it: any text may be a prompt or a folder.
#[test]
fn long_prompts_and_odd_folder_names_are_texts_like_any_other() {
    let prompt = "一只戴着草帽的猫".repeat(40);
    assert_eq!(with(&format!("sample: {{prompts: ['{prompt}']}}")).sample.samples[0].prompt, prompt);
    for folder in ["/d/CROP", "/d/10_sks dog", "/d/1.5_x", "/d/a#b", "/d/50%"] {
        assert_eq!(read(&MINIMAL.replace("/imgs", folder)).config.datasets[0].folder_path, Path::new(folder));
    }
    refused(MINIMAL.replace("name: a", &format!("name: {}", "长".repeat(80))), &["name", "240 bytes"]);
}

#[test]
fn quoted_numbers_are_refused_in_the_settings_of_optimizers_and_schedules_too() {
    refused_with("train: {optimizer_params: {eps: '1e-8'}}", &["train.optimizer_params", "eps", "\"1e-8\"", "without quotes"]);
    refused_with("train: {optimizer_params: {betas: ['0.9', 0.99]}}", &["train.optimizer_params", "betas", "without quotes"]);
    refused_with(
        "train: {lr_scheduler: cosine_with_restarts, lr_scheduler_params: {num_cycles: '3'}}",
        &["train.lr_scheduler_params", "num_cycles", "without quotes"],
    );
    refused_with("train: {optimizer: prodigy, optimizer_params: {decouple: 'true'}}", &["train.optimizer_params", "decouple"]);
}

#[test]
fn what_looks_like_a_flag_of_a_prompt_is_one_or_is_refused() {
    for line in
        ["a --heigth 64", "a --height=64", "a --h=64", "a --aspect-ratio 3", "a --no-humans", "a --q 3", "a --w 64 --foo_bar", "--x a"]
    {
        refused_with(&format!("sample: {{prompts: ['{line}']}}"), &["sample.prompts[0]", "--n, --w, --h, --d, --l and --s"]);
    }
    let prompt = |line: &str| read(&format!("{MINIMAL}sample: {{prompts: ['{line}']}}\n")).config.sample.samples.remove(0);
    let read = prompt("a --height 64 --n b -- c");
    assert_eq!((read.prompt.as_str(), read.neg.as_str(), read.height), ("a", "b -- c", 64));
    assert_eq!(prompt("a well--known cat - 5 --- d").prompt, "a well--known cat - 5 --- d");
}

#[test]
fn a_placeholder_is_no_trigger_word() {
    for word in ["[name]", "[trigger]", "a [trigger]"] {
        refused_with(&format!("trigger_word: '{word}'"), &["trigger_word: ", "write the word itself"]);
        let text = format!("name: a\nmodel: {{name_or_path: m}}\ndatasets:\n  - {{folder_path: /imgs, trigger_word: '{word}'}}\n");
        let error = format!("{:#}", load(text.as_bytes(), "c.yaml", &[]).unwrap_err());
        assert!(error.contains("datasets[0].trigger_word"), "{error}");
    }
    assert_eq!(read(&format!("{MINIMAL}trigger_word: '[v]'\n")).config.trigger_word.as_deref(), Some("[v]"));
}
