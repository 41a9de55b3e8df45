//! What the YAML reader reports, as one line with file, line and column, and the nearest key to a mistyped one.

use crate::section::keys_of;
use serde_saphyr::Error as YamlError;

/// Turns an error of the reader into `file:line:column: what is wrong`.
pub(crate) fn explain(error: &YamlError, origin: &str) -> anyhow::Error {
    let bare = error.without_snippet();
    let place = match bare.location() {
        Some(at) if at.line() > 0 => format!("{origin}:{}:{}", at.line(), at.column()),
        _ => origin.to_string(),
    };
    anyhow::anyhow!("{place}: {}", message(bare))
}

fn message(error: &YamlError) -> String {
    match error {
        YamlError::SerdeUnknownField { invalid, expected, .. } => unknown_key(invalid, expected),
        YamlError::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{key}` is given twice"),
        other => without_place(&other.to_string()),
    }
}

fn unknown_key(key: &str, expected: &[&str]) -> String {
    if let Some(near) = base::nearest::nearest(key, expected.iter().copied()) {
        return format!("unknown key `{key}`; the nearest key is `{near}`");
    }
    match section_with(key) {
        Some(section) => format!("unknown key `{key}` here; it belongs under `{section}`"),
        None => format!("unknown key `{key}`; the keys here are {}", expected.join(", ")),
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
