//! What the YAML reader reports, as one line with file, line and column, and the nearest key to a mistyped one.

use crate::section::{dotted, keys_of};
use serde_saphyr::Error as YamlError;

/// What the reader says, and the path of the key that it was at (`datasets[0].resolution`, `.` for the whole file).
pub(crate) struct Failure {
    pub error: YamlError,
    pub path: String,
}

/// Turns an error of the reader into `file:line:column: what is wrong`.
pub(crate) fn explain(failure: &Failure, text: &str, origin: &str) -> anyhow::Error {
    let bare = failure.error.without_snippet();
    if let Some((line, column)) = tab(bare, text) {
        return anyhow::anyhow!("{origin}:{line}:{column}: this line is indented with a tab, and YAML is indented with spaces");
    }
    // The reader was between two keys where the path ends in a question mark, and at the top where it is a dot.
    let path = failure.path.trim_end_matches('?').trim_end_matches('.');
    let text = match bare {
        YamlError::SerdeUnknownField { field, expected, .. } => unknown_key(field, parent(path, field), expected),
        YamlError::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{}` is given twice", dotted(parent(path, key), key)),
        other => match (two_names(other), path) {
            (Some(key), _) => format!("duplicate key: `{}` is given twice, under two of its names; keep one", dotted(path, &key)),
            (None, "") => message(other),
            (None, path) => format!("`{path}`: {}", message(other)),
        },
    };
    match bare.location().filter(|at| at.line() > 0) {
        Some(at) => anyhow::anyhow!("{origin}:{}:{}: {text}", at.line(), at.column()),
        None => anyhow::anyhow!("{origin}: {text}"),
    }
}

/// Line and column of the first tab before a line's text, if that is what the reader stumbled on; it names the line before.
fn tab(error: &YamlError, text: &str) -> Option<(usize, usize)> {
    if !error.to_string().contains("tab") {
        return None;
    }
    let indent = |line: &str| line.find(|c: char| c != ' ').filter(|at| line[*at..].starts_with('\t') && !line.trim().is_empty());
    text.lines().enumerate().find_map(|(i, line)| Some((i + 1, indent(line)? + 1)))
}

/// The key that a file gives under its name and under another one; the place that the reader knows is the section's.
fn two_names(error: &YamlError) -> Option<String> {
    let text = error.to_string();
    let key = text.split("duplicate field `").nth(1)?.split('`').next()?;
    Some(key.to_string())
}

/// The path of the section that holds `key`; empty for the top.
fn parent<'a>(path: &'a str, key: &str) -> &'a str {
    match path.strip_suffix(key) {
        Some("") => "",
        Some(section) if section.ends_with('.') => section.trim_end_matches('.'),
        _ => path,
    }
}

/// What is wrong, without the place: the lines of an override's little document mean nothing to the user.
pub(crate) fn message(error: &YamlError) -> String {
    match error {
        YamlError::SerdeUnknownField { field: invalid, expected, .. } => unknown_key(invalid, "", expected),
        YamlError::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{key}` is given twice"),
        YamlError::Unexpected { expected: "mapping start", .. } => "expected keys with values here".to_string(),
        YamlError::Unexpected { expected: "sequence start", .. } => {
            "expected a list here: each entry on its own line after `- `".to_string()
        }
        YamlError::Unexpected { expected: "string scalar", .. } => "expected a text here".to_string(),
        other => in_our_words(without_place(&other.to_string())),
    }
}

/// Messages that speak of the reader's own interface, said for users.
fn in_our_words(text: String) -> String {
    let rows = [
        ("multiple YAML documents", "the file holds several documents (`---`); one config is one document"),
        ("non-finite float", "must be a finite number"),
    ];
    rows.iter().find(|(sign, _)| text.contains(sign)).map_or(text, |(_, ours)| ours.to_string())
}

fn unknown_key(key: &str, section: &str, expected: &[&str]) -> String {
    let path = dotted(section, key);
    if let Some(near) = base::nearest::nearest(key, expected.iter().copied()) {
        return format!("unknown key `{path}`; the nearest key is `{}`", dotted(section, near));
    }
    let shown = &expected[..expected.len().min(24)];
    let more = if expected.len() > shown.len() { ", …" } else { "" };
    match section_with(key) {
        Some(section) => format!("unknown key `{path}`; it belongs under `{section}`"),
        None => format!("unknown key `{path}`; the keys here are {}{more}", shown.join(", ")),
    }
}

/// The section that knows `key`, for keys that were put one level too high or under the wrong heading.
fn section_with(key: &str) -> Option<&'static str> {
    let sections: [(&str, &[&str]); 9] = [
        ("train", keys_of::<crate::train::RawTrain>()),
        ("network", keys_of::<crate::network::RawNetwork>()),
        ("model", keys_of::<crate::model::RawModel>()),
        ("datasets", keys_of::<crate::dataset::RawDataset>()),
        ("sample", keys_of::<crate::sample::RawSample>()),
        ("save", keys_of::<crate::save::RawSave>()),
        ("memory", keys_of::<crate::memory::RawMemory>()),
        ("logging", keys_of::<crate::logging::RawLogging>()),
        ("dataloader", keys_of::<crate::dataloader::RawDataloader>()),
    ];
    sections.into_iter().find(|(_, keys)| keys.contains(&key)).map(|(name, _)| name)
}

/// The reader repeats the place at the end of its messages; here it stands in front.
fn without_place(text: &str) -> String {
    let line = text.lines().next().unwrap_or(text);
    let cut = line.rfind(" at line ").or_else(|| line.rfind(" (line ")).unwrap_or(line.len());
    line[..cut].trim_end().trim_start_matches("error: ").to_string()
}
