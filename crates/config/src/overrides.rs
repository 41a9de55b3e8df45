//! `--set train.lr=1e-4`: the value is read as YAML, by the same typed reader as the file, and laid over it.

use crate::error::message;
use crate::job::parse;
use crate::run::RawRun;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Lays one override over the raw config. `datasets.0.resolution` addresses an entry of the list.
pub(crate) fn apply(raw: RawRun, key: &str, value: &str) -> Result<RawRun> {
    let origin = format!("--set {key}={value}");
    ensure!(!key.is_empty() && key.split('.').all(|part| !part.is_empty()), "{origin}: `{key}` is not a key");
    ensure!(!value.is_empty() && value != "null" && value != "~", "{origin}: the value is missing; write '\"\"' for an empty text");
    ensure!(!value.contains('\n'), "{origin}: the value must be one line");
    let parts: Vec<&str> = key.split('.').collect();
    let (document, index) = document(&parts, value, &origin)?;
    let overlay: RawRun = parse(&document).map_err(|e| anyhow::anyhow!("{origin}: {}", message(e.error.without_snippet())))?;
    let mut merged = serde_json::to_value(&raw).context("the config can't be held as JSON")?;
    let overlay = serde_json::to_value(&overlay).context("the override can't be held as JSON")?;
    if let Some(index) = index {
        let count = merged["datasets"].as_array().map_or(0, Vec::len);
        ensure!(index < count, "{origin}: the config has {}, counted from 0", base::counted(count, "dataset"));
    }
    merge(&mut merged, overlay, index.is_some());
    // JSON is YAML: one reader for everything, since a second one would double what this crate takes to compile.
    parse(&merged.to_string()).map_err(|e| anyhow::anyhow!("{origin} doesn't fit the config: {}", message(e.error.without_snippet())))
}

/// `train.lr`, `1e-4` → the YAML document `{"train": {"lr": 1e-4}}` in block form, and the list index if there is one.
fn document(parts: &[&str], value: &str, origin: &str) -> Result<(String, Option<usize>)> {
    let mut text = String::new();
    let mut index = None;
    let mut indent = 0;
    for (depth, part) in parts.iter().enumerate() {
        let last = depth + 1 == parts.len();
        if let Ok(number) = part.parse::<usize>() {
            ensure!(depth == 1 && parts[0] == "datasets" && !last, "{origin}: only entries of `datasets` are addressed by number");
            ensure!(number < 1000, "{origin}: there is no dataset {number}");
            (0..number).for_each(|_| text.push_str(" - {}\n"));
            text.push_str(" -\n");
            index = Some(number);
            indent = 3;
            continue;
        }
        if !part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            bail!("{origin}: `{part}` is not a key");
        }
        text.push_str(&format!("{:indent$}{part}:{}\n", "", if last { format!(" {value}") } else { String::new() }));
        indent += 1;
    }
    Ok((text, index))
}

/// Overlays `top` on `under`; what the overlay doesn't say (null) stays. Lists are replaced, or merged entry by entry.
fn merge(under: &mut Value, top: Value, entries: bool) {
    match (under, top) {
        (_, Value::Null) => {}
        (Value::Object(under), Value::Object(top)) => {
            for (key, value) in top {
                merge(under.entry(key).or_insert(Value::Null), value, entries);
            }
        }
        (Value::Array(under), Value::Array(top)) if entries && top.iter().all(Value::is_object) => {
            under.iter_mut().zip(top).for_each(|(under, top)| merge(under, top, false));
        }
        (under, top) => *under = top,
    }
}
