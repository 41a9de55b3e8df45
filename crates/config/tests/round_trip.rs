//! Random configs: what is resolved and written reads back to the identical value, and random text never panics.
#![allow(clippy::unwrap_used)]

use base::Rng;
use serde_json::{Map, Value, json};
use velatura_config::load;

/// Draws some of a section's keys, each with one of its values.
fn section(rng: &mut Rng, keys: &[(&str, Vec<Value>)]) -> Value {
    let mut map = Map::new();
    for (key, values) in keys {
        if rng.below(3) == 0 {
            map.insert(key.to_string(), values[rng.below(values.len() as u64) as usize].clone());
        }
    }
    Value::Object(map)
}

fn flags() -> Vec<Value> {
    vec![json!(true), json!(false)]
}

/// Texts that YAML might take for something else, and letters that it might lose.
fn texts() -> Vec<Value> {
    [
        "a",
        "NO",
        "null",
        "~",
        "1.10",
        "0777",
        "1e3",
        "- a",
        "a: b",
        "# c",
        "'q\"",
        " x ",
        "猫",
        "é\u{301}",
        "&a",
        "*a",
        "!t",
        "%",
        "@",
        "|",
        ">",
        "{}",
        "[]",
        "a\\b",
        "true",
    ]
    .into_iter()
    .map(Value::from)
    .collect()
}

fn random(rng: &mut Rng) -> Value {
    let network = section(
        rng,
        &[
            ("type", vec![json!("lora"), json!("locon")]),
            ("linear", vec![json!(1), json!(16), json!(1e2)]),
            ("linear_alpha", vec![json!(1), json!(0.3), json!(1e-3)]),
            ("conv", vec![json!(0), json!(8)]),
            ("dropout", vec![json!(0), json!(0.1)]),
            ("only_if_contains", vec![json!("attn"), json!(["a", "b"])]),
            ("ignore_if_contains", vec![json!([])]),
        ],
    );
    let mut dataset = section(
        rng,
        &[
            ("resolution", vec![json!(512), json!([256, 512]), json!([64])]),
            ("caption_ext", vec![json!("txt"), json!([".caption", "txt"])]),
            ("num_repeats", vec![json!(1), json!(3)]),
            ("flip_x", flags()),
            ("shuffle_tokens", flags()),
            ("caption_dropout_rate", vec![json!(0), json!(0.05), json!(1)]),
            ("keep_tokens", vec![json!(0), json!(2)]),
            ("caption_prefix", texts()),
            ("default_caption", texts()),
            ("trigger_word", texts()),
            ("replacements", vec![json!(["a|b", "c|d|e"])]),
            ("cache_latents", flags()),
            ("bucket_scheme", vec![json!("list"), json!("ratio")]),
            ("min_bucket", vec![json!(256)]),
            ("alpha_mask", flags()),
            ("invert_mask", flags()),
            ("mask_min_value", vec![json!(0), json!(0.25)]),
            ("normalize_mask", flags()),
            ("background", vec![json!("black"), json!("#12abEF")]),
            ("bad_images", vec![json!("stop")]),
            ("missing_captions", vec![json!("skip")]),
            ("kohya_folders", flags()),
        ],
    );
    dataset["folder_path"] = texts()[rng.below(25) as usize].clone();
    let train = section(
        rng,
        &[
            ("steps", vec![json!(0), json!(7), json!(1e3)]),
            ("epochs", vec![json!(0), json!(2)]),
            ("batch_size", vec![json!(1), json!(4)]),
            ("gradient_accumulation", vec![json!(1), json!(8)]),
            ("lr", vec![json!(1e-4), json!(1), json!(3.3333333333333333e-7)]),
            ("text_encoder_lr", vec![json!(5e-5)]),
            (
                "optimizer",
                vec![json!("adamw"), json!("Prodigy"), json!("adafactor"), json!("adamw8bit"), json!("automagic3"), json!("muon")],
            ),
            ("optimizer_params", vec![json!({"weight_decay": 0.01}), json!({"relative_step": true})]),
            ("lr_scheduler", vec![json!("cosine"), json!("rex"), json!("cosine_with_restarts"), json!("wsd")]),
            ("lr_warmup_steps", vec![json!(0), json!(0.1), json!(5)]),
            ("train_text_encoder", flags()),
            ("cache_text_embeddings", flags()),
            ("dtype", vec![json!("fp32"), json!("bf16"), json!("fp16")]),
            ("grad_scaler", vec![json!({"init_scale": 1e3, "growth_interval": 7})]),
            ("gradient_checkpointing", vec![json!(true), json!(["up*"])]),
            ("min_snr_gamma", vec![json!(5)]),
            ("max_token_length", vec![json!(0), json!(150)]),
            ("ema_config", vec![json!({"use_ema": true, "ema_decay": 0.9})]),
            ("param_groups", vec![json!([{"contains": "a", "lr": 1e-5}, {"contains": ["b"], "lr_scale": 0.1, "weight_decay": 0}])]),
            ("min_timestep", vec![json!(100)]),
            ("max_timestep", vec![json!(50), json!(900)]),
        ],
    );
    let save = section(
        rng,
        &[
            ("save_every", vec![json!(0), json!(10)]),
            ("save_every_epochs", vec![json!(0), json!(2)]),
            ("dtype", vec![json!("fp32"), json!("float16")]),
            ("layout", vec![json!("diffusers")]),
        ],
    );
    let sample = section(
        rng,
        &[
            ("sample_every", vec![json!(0), json!(5)]),
            ("sample_every_epochs", vec![json!(1)]),
            ("neg", texts()),
            ("seed", vec![json!(u64::MAX)]),
            ("walk_seed", flags()),
            ("prompts", vec![json!(["a --w 64 --h 128", "b: [trigger]"])]),
            ("samples", vec![json!([{"prompt": "- x", "seed": 3}, {"prompt": "null"}])]),
        ],
    );
    let memory = section(rng, &[("budget", vec![json!("1.5GiB"), json!(1e9)])]);
    let mut config =
        section(rng, &[("seed", vec![json!(0), json!(u64::MAX)]), ("trigger_word", texts()), ("cache_dir", vec![json!("~/c")])]);
    for (key, value) in
        [("network", network), ("datasets", json!([dataset])), ("train", train), ("save", save), ("sample", sample), ("memory", memory)]
    {
        config[key] = value;
    }
    config["name"] = json!("run");
    config["model"] = json!({"name_or_path": "m"});
    config
}

#[test]
fn a_resolved_config_reads_back_to_the_identical_value() {
    let (seed, count) = (11, 400);
    let mut rng = Rng::new(seed, "round trips", &[]);
    let mut loaded = 0;
    for round in 0..count {
        let text = random(&mut rng).to_string();
        // Draws that contradict themselves are refused, which other tests look at.
        let Ok(first) = load(text.as_bytes(), "drawn", &[]) else { continue };
        loaded += 1;
        let yaml = first.config.to_yaml().unwrap();
        let again = load(yaml.as_bytes(), "frozen", &[]).unwrap_or_else(|e| panic!("seed {seed}, round {round}: {e:#}\n{text}\n{yaml}"));
        assert_eq!(again.config, first.config, "seed {seed}, round {round}\n{text}\n{yaml}");
        assert_eq!(again.config.to_yaml().unwrap(), yaml, "seed {seed}, round {round}");
    }
    assert!(loaded * 5 > count, "only {loaded} of {count} draws are configs");
}

#[test]
fn text_of_yaml_s_own_signs_is_an_error_never_a_panic() {
    let pieces = [
        "name: ",
        "a",
        "\n",
        "  ",
        "- ",
        ": ",
        "{",
        "}",
        "[",
        "]",
        ", ",
        "&a ",
        "*a",
        "!!str ",
        "|",
        ">",
        "'",
        "\"",
        "#",
        "%",
        "---\n",
        "...\n",
        "?",
        "\t",
        "train:",
        "datasets:",
        "\u{FEFF}",
        "\r",
        "\\x",
        "1e400",
        "-0",
        "~",
        "<<: ",
        "猫",
    ];
    let mut rng = Rng::new(12, "signs", &[]);
    for _ in 0..1000 {
        let text: String = (0..rng.below(30)).map(|_| pieces[rng.below(pieces.len() as u64) as usize]).collect();
        let _ = load(text.as_bytes(), "drawn", &[]);
    }
}
