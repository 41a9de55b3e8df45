//! Whole configs, read and refused.

use super::*;

const MINIMAL: &str = "name: a\nmodel: {name_or_path: m}\ndatasets:\n  - folder_path: /imgs\n";

fn read(text: &str) -> Loaded {
    load(text.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{text}"))
}

fn refused(text: &str) -> String {
    format!("{:#}", load(text.as_bytes(), "c.yaml", &[]).expect_err(text))
}

#[test]
fn probe() {
    for text in [
        format!("{MINIMAL}train: {{lrr: 1}}\n"),
        format!("{MINIMAL}train:\n  steps: 3\n  lr: 1\n  lr: 2\n"),
        format!("{MINIMAL}train:\n  lr: 1\n  learning_rate: 2\n"),
        format!("{MINIMAL}train:\n\tsteps: 3\n"),
        format!("{MINIMAL}train:\n  steps: three\n"),
        format!("{MINIMAL}train:\n  steps: 1.5\n"),
        format!("{MINIMAL}train:\n  steps: -1\n"),
        format!("{MINIMAL}train:\n  steps: \"5\"\n"),
        format!("{MINIMAL}train:\n  train_unet: off\n"),
        format!("{MINIMAL}train:\n  train_unet: \"False\"\n"),
        format!("{MINIMAL}train: [1]\n"),
        format!("{MINIMAL}lr: 1\n"),
        format!("{MINIMAL}zzzzzzzz: 1\n"),
        format!("{MINIMAL}train: {{steps: 5\n"),
        "- a\n".to_string(),
        "hello".to_string(),
    ] {
        println!("{}", refused(&text));
    }
    println!("{}", read(MINIMAL).config.to_yaml().unwrap());
}
