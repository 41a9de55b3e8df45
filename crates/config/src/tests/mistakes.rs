//! What is wrong with a file, and how it is told.

use super::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;

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
        refused("name: a").starts_with("2 keys of c.yaml can't be used as they are:\n  c.yaml: model is missing"),
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
        ("bucket_scheme: list, resolution: [256, 512], max_bucket: 300", ["max_bucket (300)", "datasets[0].resolution (512x512)"]),
        ("bucket_scheme: list, resolution: 768x1152, max_bucket: 1024", ["max_bucket (1024)", "datasets[0].resolution (768x1152)"]),
        ("bucket_scheme: list, resolution: 512, min_bucket: 768", ["min_bucket (768)", "datasets[0].resolution (512x512)"]),
    ] {
        assert_says(&refused(&MINIMAL.replace("- folder_path: /imgs", &format!("- {{folder_path: /imgs, {dataset}}}"))), &keys);
    }
    assert_says(
        &refused("name: a\nmodel: {path: m, prediction_type: epsilon, is_v_pred: true}\ndatasets: [{folder_path: x}]"),
        &["model.prediction_type", "model.is_v_pred"],
    );
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

#[test]
fn names_of_other_tools_and_of_other_case_are_told_as_the_key_of_the_same_section() {
    for (text, hint) in [
        (
            "train: {warmup_steps: 1}",
            "`train.warmup_steps`; `train.lr_warmup_steps` is meant, or it belongs under `train.optimizer_params`",
        ),
        ("train: {STEPS: 1}", "`train.STEPS`; `train.steps` is meant"),
        ("train: {grad_accum: 1}", "`train.gradient_accumulation` is meant"),
        ("train: {max_steps: 1}", "`train.steps` is meant"),
        ("train: {num_epochs: 1}", "`train.epochs` is meant"),
        ("sample: {steps: 1}", "`sample.sample_steps` is meant, or it belongs under `train`"),
        ("sample: {samples: [{steps: 1}]}", "`sample.samples[0].sample_steps` is meant"),
        ("sample: {negative_prompt: x}", "`sample.neg` is meant"),
        ("sample: {cfg: 1}", "`sample.guidance_scale` is meant"),
        ("sample: {Prompts: [x]}", "`sample.prompts` is meant"),
        ("network: {r: 1}", "`network.linear` is meant"),
        ("network: {lora_alpha: 1}", "`network.linear_alpha` is meant"),
        ("Network: {rank: 1}", "`network` is meant"),
    ] {
        assert_says(&refused_with(text), &[hint]);
    }
    assert_says(&refused(&MINIMAL.replace("/imgs", "/imgs\n    repeats: 2")), &["`datasets[0].num_repeats` is meant"]);
}

#[test]
fn sections_of_a_run_outside_of_a_jobs_process_are_told_where_they_belong() {
    let job = "job: extension\nconfig:\n  name: a\n  process:\n    - model: {name_or_path: m}\n      datasets: [{folder_path: x}]\n";
    assert_says(
        &refused(&format!("{job}train: {{steps: 1}}\n")),
        &["c.yaml:7:1: unknown key `train`; it belongs under `config.process[0]`"],
    );
    let inside = job.replace("  name: a\n", "  name: a\n  network: {linear: 4}\n");
    assert_says(&refused(&inside), &["c.yaml:4:3: unknown key `config.network`; it belongs under `config.process[0]`"]);
}

#[test]
fn a_family_of_models_that_is_not_supported_is_told_with_its_place() {
    for key in ["is_xl", "is_flux", "is_v3"] {
        let message = refused(&MINIMAL.replace("name_or_path: m", &format!("name_or_path: m, {key}: true")));
        assert_says(&message, &["c.yaml:2:26: ", "that family of models is not supported yet", "SD 1.x and 2.x are"]);
        assert!(!message.contains("remove the key"), "{message}");
    }
    for arch in ["sdxl", "flux", "sd1x", "[sd1]"] {
        let message = refused(&MINIMAL.replace("name_or_path: m", &format!("name_or_path: m, arch: {arch}")));
        assert_says(&message, &["c.yaml:2:26: ", "model.arch"]);
    }
    for (arch, family) in [("sd15", "sd1"), ("SD1", "sd1"), ("sd", "sd1"), ("sd2.1", "sd2")] {
        let config = read(&MINIMAL.replace("name_or_path: m", &format!("name_or_path: m, arch: {arch}"))).config;
        assert_eq!(config.model.arch.as_deref(), Some(family));
    }
}

#[test]
fn what_the_yaml_reader_says_is_said_for_users() {
    for (text, word) in [
        ("name: a\ntrain:\n  steps=4\n  lr: 1e-4\n", "`=`"),
        ("name: a\nsample:\n  prompts:\n    - [trigger] a cat\n", "in quotes"),
        ("name: a\ntrigger_word: *foo*\n", "in quotes"),
        ("name: \"C:\\Users\"\n", "single quotes"),
        ("a: &a [*a]\n", "within what it names"),
        (
            "a: &a [x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\nf: [*e, *e, *e, *e, *e, *e, *e, *e, *e, *e]\n",
            "aliases",
        ),
    ] {
        let error = format!("{:#}", crate::load(text.as_bytes(), "c.yaml", &[]).expect_err(text));
        assert!(error.starts_with("c.yaml:") && error.contains(word), "{text}: {error}");
    }
}
