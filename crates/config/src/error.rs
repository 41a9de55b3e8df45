//! What the YAML reader reports, as one line with file, line and column, and the nearest key to a mistyped one.

use crate::places::keys_in;
use crate::schema::{WHOLE, meant, properties, real_name};
use crate::section::dotted;
use crate::tree::{Clash, Place};
use serde_json::Value;
use serde_saphyr::Error as YamlError;
use std::sync::LazyLock;

/// Something that can't be read.
#[derive(Debug)]
pub(crate) struct Wrong {
    /// The key as it is written, with its sections; empty for the whole file.
    pub name: String,
    pub place: Place,
    pub kind: Kind,
}

#[derive(Debug)]
pub(crate) enum Kind {
    /// No such key: this one, where these are known.
    Key(String, &'static [&'static str]),
    /// The key's value is of another type.
    Value(String),
    /// All that is to be said.
    Sentence(String),
}

impl Wrong {
    /// What is wrong, without the place.
    pub fn text(&self) -> String {
        let text = match &self.kind {
            Kind::Key(key, expected) => unknown_key(key, parent(&self.name, key), expected),
            Kind::Value(text) if self.name.is_empty() => text.clone(),
            Kind::Value(text) => format!("`{}`: {text}", self.name),
            Kind::Sentence(text) => text.clone(),
        };
        base::excerpt(&text, 800)
    }

    /// What may be said of a config for no other reason than this error.
    pub fn consequences(&self) -> Option<Consequences> {
        if matches!(self.kind, Kind::Sentence(_)) {
            return None;
        }
        // A job's name stands outside of its run.
        let mut roots = vec![meant(self.name.strip_prefix("config.").unwrap_or(&self.name))];
        if let Kind::Key(key, expected) = &self.kind {
            let near = crate::hints::meant_by(key, expected).or_else(|| base::nearest::nearest(key, expected.iter().copied()));
            roots.extend(near.map(|near| meant(&dotted(parent(&self.name, key), near))));
        }
        let list = self.name.strip_suffix(']').and_then(|name| name.rsplit_once('[')).map(|(list, _)| meant(list));
        Some(Consequences { roots, list })
    }
}

/// Errors about keys that could not be read.
pub(crate) struct Consequences {
    /// These, and everything below them.
    roots: Vec<String>,
    /// Without one of its entries a list may seem empty.
    list: Option<String>,
}

impl Consequences {
    pub fn include(&self, error: &str) -> bool {
        let below = |path: &str, root: &str| {
            let rest = if root.is_empty() { Some(".") } else { path.strip_prefix(root) };
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']) || rest.starts_with("_params"))
        };
        keys_in(error).iter().any(|path| self.list.as_deref() == Some(path) || self.roots.iter().any(|root| below(path, root)))
    }
}

/// Turns an error of the YAML reader into `file:line:column: what is wrong`.
pub(crate) fn explain(error: &YamlError, text: &str, origin: &str) -> anyhow::Error {
    let bare = error.without_snippet();
    if let Some((line, column)) = tab(bare, text) {
        return anyhow::anyhow!("{origin}:{line}:{column}: this line is indented with a tab, and YAML is indented with spaces");
    }
    match bare.location().filter(|at| at.line() > 0) {
        Some(at) => anyhow::anyhow!("{origin}:{}:{}: {}", at.line(), at.column(), message(bare)),
        None => anyhow::anyhow!("{origin}: {}", message(bare)),
    }
}

/// Two entries that mean one key.
pub(crate) fn clash(clash: Clash) -> Wrong {
    let [first, second] = &clash.names;
    let line = match clash.places[0] {
        Place::File(line, _) => format!(" (line {line})"),
        Place::Set(_) | Place::Unknown => String::new(),
    };
    let text = match first == second {
        true => format!("the key `{first}`{line} is given twice; keep one"),
        false => {
            format!("duplicate key: `{first}`{line} and `{second}` are one key, given twice under two of its names, and differ; keep one")
        }
    };
    Wrong { name: second.clone(), place: clash.places[1], kind: Kind::Sentence(text) }
}

/// Line and column of the first tab before a line's text, if that is what the reader stumbled on; it names the line before.
fn tab(error: &YamlError, text: &str) -> Option<(usize, usize)> {
    if !error.to_string().contains("tab") {
        return None;
    }
    let indent = |line: &str| line.find(|c: char| c != ' ').filter(|at| line[*at..].starts_with('\t') && !line.trim().is_empty());
    text.lines().enumerate().find_map(|(i, line)| Some((i + 1, indent(line)? + 1)))
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
    base::excerpt(&in_our_words(without_place(&error.without_snippet().to_string())), 400)
}

/// Messages that speak of the reader's own interface, said for users.
fn in_our_words(text: String) -> String {
    let rows = [
        // Only keys are read as texts before their section is known.
        ("expected string scalar", "a key is a text; a list or a section can't be one"),
        ("multiple YAML documents", "the file holds several documents (`---`); one config is one document"),
        ("misplaced bracket", "a `}` or `]` stands here that nothing has opened"),
        ("unclosed quote", "a quote is never closed"),
        ("unclosed bracket '{'", "`{` is never closed: its `}` is missing"),
        ("unclosed bracket '['", "`[` is never closed: its `]` is missing"),
        ("illegal placement of ':'", "a `:` can't stand here; is a `[`, a `{` or a quote in front of it never closed?"),
        ("mismatched bracket '['", "`[` is not closed by `]` but by `}`: a `]` is missing"),
        ("mismatched bracket '{'", "`{` is not closed by `}` but by `]`: a `}` is missing"),
        ("budget breached: Nodes", "more values than a config can have, those counted that aliases (`*name`) repeat"),
        ("recursive references", "an alias (`*name`) stands within what it names"),
        ("unknown anchor", "`*` begins an alias, and nothing has this name: put a text that begins with `*` in quotes"),
        (
            "mapping values are not allowed",
            "a `:` can't stand here; on this line or the one before a `:` has no space behind it, a `=` stands in its place, or the indent is wrong",
        ),
        (
            "did not find expected '-' indicator",
            "a list ends here in the middle of an entry: put an entry that begins with `[`, `{`, `*`, `&`, `!` or `@` in quotes",
        ),
        ("hexadecimal number", "a `\\` in double quotes begins a special sign: use single quotes, or `/` in paths"),
        ("expected <document start>", "this is no YAML; sd-scripts' TOML files and command lines are read by `velatura config import`"),
    ];
    rows.iter().find(|(sign, _)| text.contains(sign)).map_or(text, |(_, ours)| ours.to_string())
}

fn unknown_key(key: &str, section: &str, expected: &'static [&'static str]) -> String {
    if key.is_empty() {
        return "a key is empty (`~` and `null` are empty as well): write its name in front of the `:`, in quotes if it is null"
            .to_string();
    }
    let path = dotted(section, &base::excerpt(key, 80));
    let near = base::nearest::nearest(key, expected.iter().copied());
    // Of a job: what is around the run.
    if expected.contains(&"process") || expected.contains(&"config") {
        return match properties(&WHOLE).contains_key(key) {
            true => format!("unknown key `{path}`; it belongs under `config.process[0]`"),
            false => match near {
                Some(near) => format!("unknown key `{path}`; the nearest key is `{}`", dotted(section, near)),
                None => format!("unknown key `{path}`; the keys here are {}", expected.join(", ")),
            },
        };
    }
    let homes = homes(key, section);
    if let Some(ours) = crate::hints::meant_by(key, expected) {
        let homes = if homes.is_empty() { String::new() } else { format!(", or it belongs {}", base::words::either(&homes)) };
        return format!("unknown key `{path}`; `{}` is meant{homes}", dotted(section, ours));
    }
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

/// What optimizers and schedules say in front of a setting that they don't know.
pub(crate) const UNKNOWN: &str = "unknown setting ";

/// The same for a setting that an optimizer or schedule doesn't know; `error` is what it says itself.
pub(crate) fn with_home(error: String, section: &str) -> String {
    let key = error.split(UNKNOWN).nth(1).and_then(|rest| rest.split([',', ' ']).next());
    let Some(key) = key else { return error };
    match &homes(key, "").into_iter().filter(|home| !home.contains(section)).collect::<Vec<_>>()[..] {
        [] => error,
        homes => format!("{error}; `{key}` belongs {}", base::words::either(homes)),
    }
}

/// Where a key is known, the nearest to `section` first; those sections alone in which it does something, if there are any.
fn homes(key: &str, section: &str) -> Vec<String> {
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
    collect("", &WHOLE, &mut found);
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
