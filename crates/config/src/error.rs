//! What the YAML reader reports, as one line with file, line and column, and the nearest key to a mistyped one.

use crate::section::keys_of;
use serde_saphyr::Error as YamlError;

/// Turns an error of the reader of `text` into `file:line:column: what is wrong`.
pub(crate) fn explain(error: &YamlError, text: &str, origin: &str) -> anyhow::Error {
    let bare = error.without_snippet();
    let Some(at) = bare.location().filter(|at| at.line() > 0) else {
        return anyhow::anyhow!("{origin}: {}", message(bare));
    };
    let key = if names_its_key(bare) { None } else { key_at(text, at.line() as usize, at.column() as usize) };
    let key = key.map(|key| format!("`{key}`: ")).unwrap_or_default();
    anyhow::anyhow!("{origin}:{}:{}: {key}{}", at.line(), at.column(), message(bare))
}

/// Errors about a key itself name it; errors about its value are told after the key.
fn names_its_key(error: &YamlError) -> bool {
    matches!(error, YamlError::SerdeUnknownField { .. } | YamlError::DuplicateMappingKey { .. })
}

/// The key that a line holds at a column (both counted from 1), or before it on the same line; it may stand in quotes.
fn key_at(text: &str, line: usize, column: usize) -> Option<String> {
    let line: Vec<char> = text.lines().nth(line.checked_sub(1)?)?.chars().collect();
    let is_key = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    let is_bare = |c: &&char| !matches!(c, '"' | '\'');
    let start = column.checked_sub(1)?;
    let rest: Vec<char> = line.get(start..)?.iter().filter(is_bare).copied().collect();
    let after: String = rest.iter().take_while(|c| is_key(c)).collect();
    if !after.is_empty() && rest.get(after.len()) == Some(&':') {
        return Some(after);
    }
    let colon = line[..start].iter().rposition(|c| *c == ':')?;
    let before: String = line[..colon].iter().rev().filter(is_bare).take_while(|c| is_key(c)).collect();
    (!before.is_empty()).then(|| before.chars().rev().collect())
}

/// What is wrong, without the place: the lines of an override's little document mean nothing to the user.
pub(crate) fn message(error: &YamlError) -> String {
    match error {
        YamlError::SerdeUnknownField { field: invalid, expected, .. } => unknown_key(invalid, expected),
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

fn unknown_key(key: &str, expected: &[&str]) -> String {
    if let Some(near) = base::nearest::nearest(key, expected.iter().copied()) {
        return format!("unknown key `{key}`; the nearest key is `{near}`");
    }
    let shown = &expected[..expected.len().min(24)];
    match section_with(key) {
        Some(section) => format!("unknown key `{key}` here; it belongs under `{section}`"),
        None => {
            format!("unknown key `{key}`; the keys here are {}{}", shown.join(", "), if expected.len() > shown.len() { ", …" } else { "" })
        }
    }
}

/// The section that knows `key`, for keys that were put one level too high or under the wrong heading.
fn section_with(key: &str) -> Option<&'static str> {
    let sections: [(&str, &[&str]); 8] = [
        ("train", keys_of::<crate::train::RawTrain>()),
        ("network", keys_of::<crate::network::RawNetwork>()),
        ("model", keys_of::<crate::model::RawModel>()),
        ("datasets", keys_of::<crate::dataset::RawDataset>()),
        ("sample", keys_of::<crate::sample::RawSample>()),
        ("save", keys_of::<crate::save::RawSave>()),
        ("memory", keys_of::<crate::memory::RawMemory>()),
        ("logging", keys_of::<crate::logging::RawLogging>()),
    ];
    sections.into_iter().find(|(_, keys)| keys.contains(&key)).map(|(name, _)| name)
}

/// The reader repeats the place at the end of its messages; here it stands in front.
fn without_place(text: &str) -> String {
    let line = text.lines().next().unwrap_or(text);
    let cut = line.rfind(" at line ").or_else(|| line.rfind(" (line ")).unwrap_or(line.len());
    line[..cut].trim_end().trim_start_matches("error: ").to_string()
}
