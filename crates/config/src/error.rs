//! What the YAML reader reports, as one line with file, line and column, and the nearest key to a mistyped one.

use crate::places::{Key, keys};
use crate::schema::{properties, real_name, schema};
use crate::section::dotted;
use serde_json::Value;
use serde_saphyr::Error as YamlError;
use std::sync::LazyLock;

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
    if let Some([first, second]) = two_names(bare).and_then(|key| same_key(text, path, &key)) {
        return anyhow::anyhow!(
            "{origin}:{}:{}: duplicate key: `{}` (line {}) and `{}` are one key, given twice, under two of its names; keep one",
            second.line,
            second.column,
            first.written,
            first.line,
            second.written
        );
    }
    let text = match bare {
        YamlError::SerdeUnknownField { field, expected, .. } => unknown_key(field, parent(path, field), expected),
        YamlError::DuplicateMappingKey { key: Some(key), .. } => format!("the key `{}` is given twice", dotted(parent(path, key), key)),
        other if path.is_empty() => message(other),
        other => format!("`{path}`: {}", message(other)),
    };
    match bare.location().filter(|at| at.line() > 0) {
        Some(at) => anyhow::anyhow!("{origin}:{}:{}: {text}", at.line(), at.column()),
        None => anyhow::anyhow!("{origin}: {text}"),
    }
}

/// The first two keys in the section at `path` that mean `key`.
fn same_key(text: &str, path: &str, key: &str) -> Option<[Key; 2]> {
    let section = |key: &Key| key.written.rsplit_once('.').map_or(String::new(), |(section, _)| section.to_string());
    let keys = keys(text).into_iter().filter(|found| section(found) == path && found.meant.rsplit('.').next() == Some(key));
    let keys: Vec<Key> = keys.take(2).collect();
    keys.try_into().ok()
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
        other => base::excerpt(&in_our_words(without_place(&other.to_string())), 400),
    }
}

/// Messages that speak of the reader's own interface, said for users.
fn in_our_words(text: String) -> String {
    let rows = [
        ("multiple YAML documents", "the file holds several documents (`---`); one config is one document"),
        ("non-finite float", "must be a finite number"),
        ("misplaced bracket", "a `}` or `]` stands here that nothing has opened"),
        ("unclosed quote", "a quote is never closed"),
        ("unclosed bracket '{'", "`{` is never closed: its `}` is missing"),
        ("unclosed bracket '['", "`[` is never closed: its `]` is missing"),
        ("illegal placement of ':'", "a `:` can't stand here; is a `[`, a `{` or a quote in front of it never closed?"),
        ("mismatched bracket '['", "`[` is not closed by `]` but by `}`: a `]` is missing"),
        ("mismatched bracket '{'", "`{` is not closed by `}` but by `]`: a `}` is missing"),
    ];
    rows.iter().find(|(sign, _)| text.contains(sign)).map_or(text, |(_, ours)| ours.to_string())
}

fn unknown_key(key: &str, section: &str, expected: &[&str]) -> String {
    let path = dotted(section, &base::excerpt(key, 80));
    let near = base::nearest::nearest(key, expected.iter().copied());
    let homes = homes(key, section);
    if let (Some(ours), []) = (crate::import::native_name(key), &homes[..]) {
        return format!("unknown key `{path}`; that is sd-scripts' name of `{ours}`");
    }
    match (near, &homes[..]) {
        (None, []) => {}
        (Some(near), []) => return format!("unknown key `{path}`; the nearest key is `{}`", dotted(section, near)),
        (near, homes) => {
            // One letter more or less may be a slip as well.
            let near = near
                .filter(|near| near.chars().count().abs_diff(key.chars().count()) <= 1 && key.len() > 2 && near.get(..3) == key.get(..3));
            let near = near.map(|near| format!(", or `{}` is meant", dotted(section, near))).unwrap_or_default();
            return format!("unknown key `{path}`; it belongs {}{near}", base::words::either(homes));
        }
    }
    if let Some(Known { name, section, .. }) = longer(key) {
        return format!("unknown key `{path}`; the nearest key is `{}`", dotted(section, name));
    }
    let shown = &expected[..expected.len().min(24)];
    let more = if expected.len() > shown.len() { ", …" } else { "" };
    format!("unknown key `{path}`; the keys here are {}{more}", shown.join(", "))
}

/// The same for a setting that an optimizer or schedule doesn't know; `error` is what it says itself.
pub(crate) fn with_home(error: String, section: &str) -> String {
    let key = error.split("unknown setting ").nth(1).and_then(|rest| rest.split([',', ' ']).next());
    let Some(key) = key else { return error };
    match &homes(key, "").into_iter().filter(|home| !home.contains(section)).collect::<Vec<_>>()[..] {
        [] => error,
        homes => format!("{error}; `{key}` belongs {}", base::words::either(homes)),
    }
}

/// Where a key is known, the nearest to `section` first; those sections alone in which it does something, if there are any.
fn homes(key: &str, section: &str) -> Vec<String> {
    let section = section.strip_prefix("config.process[0]").map_or(section, |rest| rest.trim_start_matches('.'));
    let mut homes: Vec<&Known> = KNOWN.iter().filter(|known| known.name == key).collect();
    if homes.iter().any(|home| home.has_effect) {
        homes.retain(|home| home.has_effect);
    }
    homes.sort_by_key(|home| (section.is_empty() || !home.section.starts_with(section), home.section.len()));
    let named = |home: &Known| match home.section.as_str() {
        "" => "at the top level, beside `model` and `train`".to_string(),
        section => format!("under `{section}`"),
    };
    homes.into_iter().map(named).collect()
}

/// A known key of which `key` is the beginning: `trigger` of `trigger_word`.
fn longer(key: &str) -> Option<&'static Known> {
    let begins = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with('_'));
    let found = KNOWN.iter().filter(|known| key.len() > 2 && known.has_effect && begins(&known.name));
    found.min_by_key(|known| (known.section.len(), known.name.len()))
}

/// A key that there is.
pub(crate) struct Known {
    pub name: String,
    pub section: String,
    /// Neither without effect, nor unsupported, nor of older files.
    pub has_effect: bool,
}

/// Every key that there is: those of the schema, and the settings of optimizers and schedules.
pub(crate) static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(known);

fn known() -> Vec<Known> {
    fn collect(section: &str, section_shape: &Value, found: &mut Vec<Known>) {
        for (key, shape) in properties(section_shape) {
            let text = shape["description"].as_str().unwrap_or_default();
            let has_effect = !shape["deprecated"].as_bool().unwrap_or_default() && !text.starts_with("Of older files");
            found.push(Known { name: key.clone(), section: section.to_string(), has_effect });
            // Another name of a section holds nothing that the section doesn't.
            if real_name(section_shape, key) == *key {
                collect(&dotted(section, key), shape, found);
            }
        }
    }
    let mut found = Vec::new();
    collect("", &schema(), &mut found);
    let none = serde_json::Map::new();
    let chosen = optim::OPTIMIZERS.iter().filter_map(|entry| optim::choose(entry.name, &none).ok());
    let of_optimizers = chosen.flat_map(|chosen| chosen.params).map(|(name, _)| (name, "train.optimizer_params"));
    let schedules = optim::schedule::SCHEDULES.iter().filter_map(|entry| optim::schedule::parse(entry.name, &none, 1e-4, 1000).ok());
    let of_schedules = schedules.flat_map(|schedule| schedule.params).map(|(name, _)| (name, "train.lr_scheduler_params"));
    let settings: std::collections::BTreeSet<_> = of_optimizers.chain(of_schedules).collect();
    found.extend(settings.into_iter().map(|(name, section)| Known { name, section: section.to_string(), has_effect: true }));
    found
}

/// The reader repeats the place at the end of its messages; here it stands in front.
fn without_place(text: &str) -> String {
    let line = text.lines().next().unwrap_or(text);
    let cut = line.rfind(" at line ").or_else(|| line.rfind(" (line ")).unwrap_or(line.len());
    line[..cut].trim_end().trim_start_matches("error: ").to_string()
}
