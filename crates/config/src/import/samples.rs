//! `--sample_…`: pictures made while training, with prompts from a file of lines, TOML or JSON.

use super::native::Native;
use super::place::{self, Place};
use super::settings::{Settings, shown};
use super::toml_file::Toml;
use serde_json::{Map, Value};

/// sd-scripts' keys in prompt files, and what they are in `sample.samples`.
const KEYS: [(&str, &str); 7] = [
    ("prompt", "prompt"),
    ("negative_prompt", "neg"),
    ("width", "width"),
    ("height", "height"),
    ("seed", "seed"),
    ("scale", "guidance_scale"),
    ("sample_steps", "sample_steps"),
];

pub(super) fn import(native: &mut Native, run: &Settings, folder: &Place) {
    let Some(file) = run.text("sample_prompts") else {
        native.set("sample.sample_every", 0);
        for flag in ["sample_every_n_steps", "sample_every_n_epochs"] {
            if run.whole(flag).is_some_and(|n| n > 0) {
                native.note(format!("--{flag} has no effect without --sample_prompts"));
            }
        }
        return;
    };
    match run.whole("sample_every_n_epochs").filter(|n| *n > 0) {
        Some(epochs) => native.set("sample.sample_every_epochs", epochs),
        None => native.set("sample.sample_every", run.whole("sample_every_n_steps").unwrap_or(0)),
    }
    native.set("train.skip_first_sample", !run.is_on("sample_at_first"));
    let sampler = sampler(native, run.text("sample_sampler").unwrap_or("ddim"));
    native.set("sample.sampler", sampler);
    // sd-scripts' defaults for what a prompt doesn't say.
    native.set("sample.width", 512);
    native.set("sample.height", 512);
    native.set("sample.sample_steps", 30);
    native.set("sample.guidance_scale", 7.5);
    match folder.find(file).and_then(|found| place::content(&found)) {
        Ok(text) => prompts(native, file, &text),
        Err(error) => native.note(format!("--sample_prompts: {error:#}; add prompts under sample.prompts")),
    }
}

/// Samples are looked at, not trained on: another sampler than the one asked for does no harm.
fn sampler(native: &mut Native, name: &str) -> &'static str {
    match name {
        "ddim" => "ddim",
        "euler" | "k_euler" => "euler",
        other => {
            native.note(format!("--sample_sampler {other} is read as ddim"));
            "ddim"
        }
    }
}

fn prompts(native: &mut Native, file: &str, text: &str) {
    let lower = file.to_ascii_lowercase();
    let entries = if lower.ends_with(".json") {
        serde_json::from_str(text).map_err(|error| error.to_string())
    } else if lower.ends_with(".toml") {
        toml_entries(file, text)
    } else {
        // A line is a prompt with the same flags as here.
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let lines: Vec<Value> = lines.map(|line| prompt_line(native, file, line).into()).collect();
        native.set("sample.prompts", lines);
        return;
    };
    match entries {
        Ok(Value::Array(entries)) => {
            let entries: Vec<Value> = entries.iter().filter_map(|entry| sample(native, file, entry)).collect();
            native.set("sample.samples", entries);
        }
        Ok(_) => native.error(format!("{file}: a list of prompts is expected")),
        Err(error) => native.error(format!("{file}: {error}")),
    }
}

/// A line without what can't be used of it: samples are looked at, and training is worth having without a part of one.
fn prompt_line(native: &mut Native, file: &str, line: &str) -> String {
    let (usable, wrong) = crate::sample::usable_line(line);
    for part in wrong {
        native.note(format!("{file}: left out of a prompt: {part}"));
    }
    usable
}

/// `[prompt]` holds what the entries of `[[prompt.subset]]` have in common.
fn toml_entries(file: &str, text: &str) -> Result<Value, String> {
    let Toml { table, .. } = Toml::read(text, file).map_err(|error| format!("{error:#}"))?;
    let mut common = table.get("prompt").and_then(Value::as_object).cloned().ok_or("[prompt] is missing")?;
    let subsets = common.remove("subset").and_then(|subset| subset.as_array().cloned()).unwrap_or_default();
    let whole = |subset: &Value| {
        let mut entry = common.clone();
        entry.extend(subset.as_object().cloned().unwrap_or_default());
        Value::Object(entry)
    };
    Ok(subsets.iter().map(whole).collect())
}

fn sample(native: &mut Native, file: &str, entry: &Value) -> Option<Value> {
    let Some(entry) = entry.as_object() else {
        native.error(format!("{file}: {} is no prompt with keys", shown(entry)));
        return None;
    };
    let mut sample = Map::new();
    for (key, value) in entry {
        match KEYS.iter().find(|(theirs, _)| theirs == key) {
            Some((_, ours)) => match crate::sample::check_entry(Map::from_iter([(ours.to_string(), value.clone())]).into()) {
                Ok(()) => drop(sample.insert(ours.to_string(), value.clone())),
                Err(error) => native.note(format!("{file}: left out of a prompt: `{key}` ({}): {error}", shown(value))),
            },
            None => native.note(format!("{file}: `{key}` of a prompt has no effect here")),
        }
    }
    Some(Value::Object(sample))
}
