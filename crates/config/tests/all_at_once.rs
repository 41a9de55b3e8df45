//! A file is mended in one go: every error is told, with its place, and none that is only another's consequence.
#![allow(clippy::unwrap_used)]

use velatura_config::load;

fn errors(text: &str, overrides: &[(&str, &str)]) -> String {
    let overrides: Vec<(String, String)> = overrides.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    format!("{:#}", load(text.as_bytes(), "c.yaml", &overrides).expect_err(text))
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}

const WRONG: &str = "\
name: a
trigger: sks
model: {name_or_path: m, low_vram: 7}
datasets:
  - folder_path: /imgs
    caption_extention: txt
    num_repeats: -1
    flip_x: maybe
  - 5
train:
  steps: -5
  lr: fast
  lrr: 1
  batch_size: 0
  optimizer_params: {weight_decay: -1}
  optimizer: 3
  batch_size: 2
save: {save_evry: 5, layout: x}
sample: [1]
device: tpu
";

#[test]
fn unknown_keys_types_ranges_and_repetitions_are_told_together_each_with_its_place() {
    let message = errors(WRONG, &[("train.dtype", "[1]"), ("train.stepz", "1"), ("a b", "1"), ("logging.log_every", "")]);
    assert_says(
        &message,
        &[
            "20 keys of c.yaml can't be used as they are:\n",
            "c.yaml:2:1: unknown key `trigger`; `trigger_word` is meant",
            "c.yaml:3:26: `model.low_vram`: expected true or false, found the number 7",
            "c.yaml:6:5: unknown key `datasets[0].caption_extention`; the nearest key is `datasets[0].caption_extension`",
            "c.yaml:7:5: `datasets[0].num_repeats`: -1 is negative",
            "c.yaml:8:5: `datasets[0].flip_x`: expected true or false, found the text \"maybe\"",
            "c.yaml:9:5: `datasets[1]`: expected keys with values, found the number 5",
            "c.yaml:11:3: `train.steps`: -5 is negative",
            "c.yaml:12:3: `train.lr`: expected a number, found the text \"fast\"",
            "c.yaml:13:3: unknown key `train.lrr`",
            "c.yaml:14:3: train.batch_size: 0",
            "c.yaml:16:3: in train.optimizer",
            "c.yaml:17:3: the key `train.batch_size` (line 14) is given twice",
            "c.yaml:18:8: unknown key `save.save_evry`; the nearest key is `save.save_every`",
            "c.yaml:18:22: save.layout: x",
            "c.yaml:19:1: `sample`: expected keys with values, found a list",
            "c.yaml:20:1: device: tpu",
            "--set train.dtype=[1]: `train.dtype`: expected a text, found a list",
            "--set train.stepz=1: unknown key `train.stepz`; the nearest key is `train.steps`",
            "--set a b=1: `a b` is not a key",
            "--set logging.log_every=: the value is missing",
        ],
    );
}

#[test]
fn each_error_is_a_line_and_none_holds_the_end_of_one() {
    let text = WRONG.replace("tpu", "\"t\\npu\"") + "\"a\\nb\": 1\n";
    let message = errors(&text, &[("a b", "1")]);
    let mut lines = message.lines();
    assert_eq!(lines.next(), Some("18 keys of c.yaml can't be used as they are:"), "{message}");
    let lines: Vec<&str> = lines.collect();
    assert!(
        lines.len() == 18 && lines.iter().all(|line| line.starts_with("  c.yaml:") || line.starts_with("  --set a b=1: ")),
        "{message}"
    );
}

#[test]
fn a_job_file_is_told_all_of_it_too() {
    let job = "job: extension\nconfg: {}\nconfig:\n  nam: a\n  name: [x]\n  process:\n    - model: {name_or_path: m, is_xl: 3}\n      datasets: [{folder_path: x, resolutoin: 3}]\n      train: {lr: x, steps: 1e12}\n";
    assert_says(
        &errors(job, &[]),
        &[
            "c.yaml:2:1: unknown key `confg`",
            "c.yaml:4:3: unknown key `config.nam`",
            "c.yaml:5:3: `config.name`: expected a text, found a list",
            "c.yaml:7:32: model.is_xl: 3",
            "c.yaml:8:35: unknown key `datasets[0].resolutoin`",
            "c.yaml:9:15: `train.lr`",
            "c.yaml:9:22: train.steps",
        ],
    );
}

#[test]
fn what_follows_from_another_error_is_not_told() {
    for text in [
        "name: a\nmodel: {name_or_pth: m}\ndatasets: [{folder_path: x}]\n",
        "name: a\nmodel: 5\ndatasets: [{folder_path: x}]\n",
        "name: a\nmodel: {name_or_path: m}\ndataset: [{folder_path: x}]\n",
        "name: a\nmodel: {name_or_path: m}\ndatasets: {folder_path: x}\n",
        "name: [a]\nmodel: {name_or_path: m}\ndatasets: [{folder_path: x}]\n",
        "name: a\nmodel: {name_or_path: m}\ndatasets: [{folder_path: x, resolution: [512, x]}]\n",
        "name: a\nmodel: {name_or_path: m}\ndatasets: [{folder_path: x}]\ntrain: {optimizer: [prodigy], optimizer_params: {d_coef: 2}}\n",
        "hello\n",
        "[1, 2]\n",
    ] {
        let message = errors(text, &[]);
        assert!(message.starts_with("c.yaml:") && !message.contains('\n'), "{message}");
    }
}

#[test]
fn a_file_of_nothing_but_mistakes_is_refused_in_bounded_words() {
    let text: String = (0..5000).map(|i| format!("k{i}: 1\n")).collect();
    let message = errors(&text, &[]);
    assert!(message.starts_with("at least 100 keys of c.yaml") && message.len() < 100_000, "{} letters", message.len());
    let text: String = (0..500).map(|_| "  - {folder_path: x, num_repeats: 0}\n").collect();
    let message = errors(&format!("name: a\nmodel: {{name_or_path: m}}\ndatasets:\n{text}"), &[]);
    assert!(message.starts_with("500 keys of c.yaml") && message.ends_with("\n  … and 400 more"), "{message}");
    assert_eq!(message.lines().count(), 102);
}

#[test]
fn a_key_that_is_no_text_is_named_as_that() {
    for (text, place) in [("~: 3", "c.yaml:5:"), ("null: 3", "c.yaml:5:"), ("train:\n  ~: 3", "c.yaml:6:"), (": 3", "c.yaml:5:")] {
        let message = errors(&format!("name: a\nmodel: {{name_or_path: m}}\ndatasets:\n  - folder_path: x\n{text}\n"), &[]);
        assert_says(&message, &[place, "a key is empty"]);
    }
    for text in ["[1]: 3", "{a: 1}: 3", "? [a]\n: 3"] {
        let message = errors(&format!("name: a\nmodel: {{name_or_path: m}}\ndatasets:\n  - folder_path: x\n{text}\n"), &[]);
        assert_says(&message, &["c.yaml:5:", "a key is a text"]);
    }
    let message = errors("name: a\nmodel: {name_or_path: m}\ndatasets: [{folder_path: x}]\n5: 3\ntrue: 1\n", &[]);
    assert_says(&message, &["c.yaml:4:1: unknown key `5`", "c.yaml:5:1: unknown key `true`"]);
}

const RIGHT: &str = "name: a\nmodel: {name_or_path: m}\ndatasets: [{folder_path: x}, {folder_path: y}]\ntrain: {lr: 1, learning_rate: 1}\n";

#[test]
fn one_key_by_two_values_of_set_is_a_contradiction_under_whatever_name() {
    for (first, second) in [
        (("train.lr", "1"), ("train.lr", "2")),
        (("train.lr", "1"), ("train.learning_rate", "2")),
        (("training.lr", "1"), ("train.lr", "2")),
        (("train", "{lr: 1}"), ("train.lr", "2")),
        (("train.lr", "2"), ("train", "{steps: 5, lr: 1}")),
        (("datasets.1.num_repeats", "1"), ("datasets.1.num_repeats", "2")),
        (("datasets.1.flip_x", "true"), ("datasets.1.flip_aug", "false")),
    ] {
        let message = errors(RIGHT, &[first, second]);
        let place = format!("--set {}={}: ", second.0, second.1);
        let other = format!("--set {}={}", first.0, first.1);
        assert!(message.starts_with(&place) && message.contains(&other) && message.contains("keep one"), "{message}");
    }
    let set = |pairs: &[(&str, &str)]| {
        let pairs: Vec<(String, String)> = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        load(RIGHT.as_bytes(), "c.yaml", &pairs).unwrap().config
    };
    assert_eq!(set(&[("train.lr", "1e-4"), ("train.learning_rate", "0.0001")]).train.lr, 1e-4);
    assert_eq!(set(&[("train", "{steps: 5}"), ("training.lr", "0.5")]).train.steps, 5);
    assert_eq!(set(&[("datasets.1.resolution", "256"), ("datasets.0.resolution", "128")]).datasets[1].resolution, [256]);
    assert_eq!(set(&[("sample.prompts", "[a, b]")]).sample.samples.len(), 2);
}

#[test]
fn a_key_below_a_value_is_refused_with_what_stands_there() {
    let file = "name: a\nmodel: {name_or_path: m, model_kwargs: ''}\ndatasets:\n  - folder_path: x\n    resolution: [64]\n    flip_x: true\ntrain: {steps: 4, lr: 1e-4}\nsample: {prompts: [a cat]}\n";
    for (key, part) in [
        ("train.steps.x", "train.steps is the number 4 (line 7)"),
        ("train.steps.0", "train.steps is the number 4 (line 7)"),
        ("train.lr.x", "train.lr is the number 1e-4 (line 7)"),
        ("name.x", "name is the text \"a\" (line 1)"),
        ("datasets.0.flip_x.x", "datasets[0].flip_x is true (line 6)"),
        ("datasets.0.resolution.0.x", "datasets[0].resolution[0] is the number 64 (line 5)"),
        ("model.name_or_path.x.y", "model.name_or_path is the text \"m\" (line 2)"),
        ("model.model_kwargs.x", "model.model_kwargs is the text \"\" (line 2)"),
        ("sample.prompts.0.x", "sample.prompts[0] is the text \"a cat\" (line 8)"),
    ] {
        let message = errors(file, &[(key, "5")]);
        assert!(message.starts_with(&format!("--set {key}=5: ")) && message.contains(part), "{key}: {message}");
    }
    let message = errors(file, &[("save.save_every", "5"), ("save.save_every.x", "5")]);
    assert!(message.starts_with("--set save.save_every.x=5: ") && message.contains("save.save_every is the number 5"), "{message}");
    // A section that is none is told once, where it stands.
    let message = errors(&file.replace("{steps: 4, lr: 1e-4}", "5"), &[("train.steps", "5")]);
    assert!(message.starts_with("c.yaml:7:1: `train`: expected keys"), "{message}");
}

#[test]
fn what_set_gets_wrong_is_told_with_its_own_words_in_front() {
    for (key, value, part) in [
        ("train.lrr", "1", "unknown key `train.lrr`; the nearest key is `train.lr`"),
        ("lr", "1", "unknown key `lr`; it belongs under `train`"),
        ("zzzz.a.b", "1", "unknown key `zzzz`"),
        ("train.lr", "fast", "`train.lr`: expected a number, found the text \"fast\""),
        ("model.low_vram", "7", "`model.low_vram`: expected true or false"),
        ("train.steps", "-1", "`train.steps`: -1 is negative"),
        ("train.lr", "50", "train.lr: 50"),
        ("train.lr.x", "50", "`train.lr`"),
        ("datasets.7.resolution", "256", "datasets has 2 datasets, counted from 0"),
        ("datasets.resolution", "256", "say which of its entries is meant, as in datasets.0.resolution"),
        ("sample.prompts.0", "a", "sample.prompts has 0 entries, counted from 0"),
        ("train.0.lr", "1", "only entries of lists"),
        ("train.lr", "[1", "`[` is never closed"),
        ("train.lr", "~", "the value is missing"),
        ("train.lr", "# 3", "the value is missing; give one, or leave this --set out"),
        ("train.steps", "null", "the value is missing; give one, or leave this --set out"),
        ("datasets.0.caption_prefix", "", "the value is missing; write '\"\"' for an empty text"),
        ("sample.neg", "", "the value is missing; write '\"\"' for an empty text"),
    ] {
        let message = errors(&RIGHT.replace("train: {lr: 1, learning_rate: 1}\n", "sample: {prompts: []}\n"), &[(key, value)]);
        assert!(message.starts_with(&format!("--set {key}={value}: ")), "{message}");
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}
