//! Whole configs, read and refused.

use super::*;

mod mistakes;
mod paths;
mod pictures;
mod shapes;
mod training;
mod values;

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

fn set(key: &str, value: &str) -> Result<RunConfig> {
    load(MINIMAL.as_bytes(), "c.yaml", &[(key.to_string(), value.to_string())]).map(|l| l.config)
}

#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is not in: {message}");
    }
}
