//! Files as large as any may be are judged in moments, whatever is wrong with them: work that grows with the square of their length would
//! take minutes to hours here.
#![allow(clippy::unwrap_used)]

use velatura_config::{Loaded, load};

const MINIMAL: &str = "name: a\nmodel: {name_or_path: m}\ndatasets:\n  - folder_path: /imgs\n";

fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).map(|i| line(i) + "\n").collect()
}

fn read(extra: &str) -> anyhow::Result<Loaded> {
    load(format!("{MINIMAL}{extra}").as_bytes(), "c.yaml", &[])
}

/// What is said of a file: in bounded words, with the number of errors.
#[track_caller]
fn refused(extra: &str, parts: &[&str]) {
    let message = format!("{:#}", read(extra).unwrap_err());
    let begin = base::excerpt(&message, 400);
    assert!(message.len() < 100_000, "{} bytes", message.len());
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {begin}");
    }
}

#[test]
fn many_prompts() {
    let config = read(&format!("sample:\n  prompts:\n{}", lines(60_000, |i| format!("    - a {i}")))).unwrap().config;
    assert_eq!((config.sample.samples.len(), &config.sample.samples[59_999].prompt[..]), (60_000, "a 59999"));
}

#[test]
fn many_prompts_with_wrong_flags() {
    refused(
        &format!("sample:\n  prompts:\n{}", lines(60_000, |_| "    - a --zz".to_string())),
        &["60000 keys of c.yaml", "c.yaml:7:7: sample.prompts[0]", "and 59900 more"],
    );
}

#[test]
fn many_prompts_that_are_no_texts_behind_many_that_are() {
    let prompts = lines(100_000, |_| "    - a".to_string()) + &lines(5_000, |_| "    - [1]".to_string());
    refused(&format!("sample:\n  prompts:\n{prompts}"), &["at least 100 keys of c.yaml", "c.yaml:100007:7: `sample.prompts[100000]`"]);
}

#[test]
fn many_settings_that_nothing_knows() {
    for (section, name) in [("optimizer", "optimizer_params"), ("lr_scheduler", "lr_scheduler_params")] {
        refused(
            &format!("train:\n  {name}:\n{}", lines(20_000, |i| format!("    k{i}: 1"))),
            &["20000 keys of c.yaml", &format!("in train.{section}"), "c.yaml:7:5: ", "and 19900 more"],
        );
        refused(&format!("train:\n  {name}:\n{}", lines(20_000, |i| format!("    k{i}: ~"))), &["20000 keys of c.yaml", "has no value"]);
    }
}

#[test]
fn many_sizes() {
    let sizes = lines(80_000, |i| format!("      - {}x{}", 8 + i / 1000, 8 + i % 1000));
    let text = MINIMAL.to_string() + "    resolution:\n" + &sizes;
    assert_eq!(load(text.as_bytes(), "c.yaml", &[]).unwrap().config.datasets[0].resolution.len(), 80_000);
    let message = format!("{:#}", load((text + "      - 8\n").as_bytes(), "c.yaml", &[]).unwrap_err());
    assert!(message.contains("8x8 is given twice"), "{message}");
}

#[test]
fn many_keys_given_twice() {
    refused(&lines(90_000, |_| "seed: 1".to_string()), &["at least 100 keys of c.yaml", "the key `seed` (line 5) is given twice"]);
}

#[test]
fn many_datasets_groups_and_replacements_that_lack_something() {
    refused(&lines(40_000, |_| "  - num_repeats: 0".to_string()), &["80000 keys of c.yaml", "datasets[1].folder_path is missing"]);
    let groups = lines(40_000, |_| "    - {lr_scale: -1}".to_string());
    refused(&format!("train:\n  param_groups:\n{groups}"), &["80000 keys of c.yaml", "train.param_groups[0].contains is missing"]);
    let replacements = lines(60_000, |i| format!("      - a{i}"));
    refused(&format!("    replacements:\n{replacements}"), &["60000 keys of c.yaml", "lacks a `|`"]);
}

#[test]
fn a_key_of_millions_of_letters() {
    refused(&format!("train: {{? {} : 1}}\n", "k".repeat(3_000_000)), &["unknown key `train.kkkk"]);
}
