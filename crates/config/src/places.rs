//! Where a config says what: the place (`file:line:column`, or the `--set` that says it) of every key, for errors that are found only
//! when the values are judged.

use crate::schema::meant;
use crate::section::dotted;
use crate::tree::{Content, Node, Place};
use std::collections::BTreeMap;

/// The place of every key, by the names under which errors speak of it.
pub(crate) struct Places<'a> {
    pub origin: &'a str,
    overrides: &'a [(String, String)],
    at: BTreeMap<String, Place>,
}

impl<'a> Places<'a> {
    pub fn of(tree: &Node, origin: &'a str, overrides: &'a [(String, String)]) -> Places<'a> {
        let mut at = BTreeMap::new();
        collect(tree, "", &mut at);
        Places { origin, overrides, at }
    }

    /// A place in words.
    pub fn show(&self, place: Place) -> String {
        match place {
            Place::File(line, column) => format!("{}:{line}:{column}", self.origin),
            Place::Set(i) => self.overrides.get(i as usize).map_or(String::new(), |(key, value)| format!("--set {key}={value}")),
            Place::Unknown => self.origin.to_string(),
        }
    }

    /// The place of the first key that an error names.
    pub fn locate(&self, error: &str) -> Place {
        let paths = keys_in(error);
        let exact = || paths.iter().find_map(|path| self.at.get(*path)).copied();
        let place = self.setting(&paths, error).or_else(exact).or_else(|| paths.iter().find_map(|path| self.nearest(path)));
        place.unwrap_or_default()
    }

    /// The place of a setting of an optimizer or schedule: their errors name the section, and the setting by itself.
    fn setting(&self, paths: &[&str], error: &str) -> Option<Place> {
        let words = || error.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        let sections = paths.iter().filter(|path| path.ends_with("_params"));
        sections.flat_map(|section| words().map(move |word| format!("{section}.{word}"))).find_map(|path| self.at.get(&path)).copied()
    }

    /// The place of a key or, where the file doesn't have it, of the section that should.
    fn nearest(&self, path: &str) -> Option<Place> {
        let mut path = path;
        loop {
            if let Some(place) = self.at.get(path) {
                return Some(*place);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// What may be keys among the words of an error.
pub(crate) fn keys_in(error: &str) -> Vec<&str> {
    let words = error.split(|c: char| !(c.is_ascii_alphanumeric() || "_.[]".contains(c))).enumerate();
    // A single word may be any word, but for the first one.
    let paths = words.filter(|(i, word)| *i == 0 || word.contains(['.', '[']));
    paths.map(|(_, word)| word.trim_end_matches('.')).collect()
}

fn collect(node: &Node, path: &str, at: &mut BTreeMap<String, Place>) {
    let mut add = |path: String, place: Place, node: &Node| {
        at.entry(meant(&path)).or_insert(place);
        collect(node, &path, at);
        at.entry(path).or_insert(place);
    };
    match &node.content {
        Content::List(items) => items.iter().enumerate().for_each(|(i, item)| add(format!("{path}[{i}]"), item.place, item)),
        Content::Map(entries) => entries.iter().for_each(|entry| add(dotted(path, &entry.key), entry.place, &entry.node)),
        _ => {}
    }
}
