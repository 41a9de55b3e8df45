//! Where a config says what: the place (`file:line:column`, or the `--set` that says it) of every key, for errors that are found only
//! when the file is read.

use crate::job::parse;
use crate::schema::{properties, real_name, schema};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_saphyr::Spanned;
use std::collections::BTreeMap;
use std::fmt;

/// In front of the sections of a job file.
const IN_JOB: &str = "config.process[0].";

/// A YAML document as nothing but its keys.
enum Node {
    Map(Vec<(Spanned<String>, Node)>),
    List(Vec<Spanned<Node>>),
    Leaf,
}

/// A key of a file: under which name it stands where.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    /// From the root of the file.
    pub written: String,
    /// The same with every alias replaced by the key that it stands for.
    pub meant: String,
    pub line: u64,
    pub column: u64,
}

/// The place of every key, by the names under which errors speak of it.
pub(crate) struct Places {
    origin: String,
    at: BTreeMap<String, String>,
}

impl Places {
    pub fn of(text: &str, origin: &str) -> Places {
        let mut at = BTreeMap::new();
        for key in keys(text) {
            let place = format!("{origin}:{}:{}", key.line, key.column);
            for path in [&key.written, &key.meant] {
                at.insert(path.strip_prefix(IN_JOB).unwrap_or(path).to_string(), place.clone());
            }
            // A job's name stands outside of its process.
            if key.written == "config.name" {
                at.insert("name".to_string(), place);
            }
        }
        Places { origin: origin.to_string(), at }
    }

    /// `--set key=value` counts before what the file says.
    pub fn lay_over(&mut self, key: &str, value: &str) {
        let mut path = String::new();
        let mut meant = String::new();
        let mut shape = schema();
        for part in key.split('.') {
            let part = if part.parse::<usize>().is_ok() { format!("[{part}]") } else { part.to_string() };
            let dot = if path.is_empty() || part.starts_with('[') { "" } else { "." };
            meant.push_str(&format!("{dot}{}", real_name(&shape, &part)));
            path.push_str(&format!("{dot}{part}"));
            shape = properties(&shape).get(&part).cloned().unwrap_or(shape);
        }
        for path in [path, meant] {
            self.at.insert(path, format!("--set {key}={value}"));
        }
    }

    /// An error with the place of the first key that it names in front; the file's name where that names none.
    pub fn locate(&self, error: &str) -> String {
        let words = error.split(|c: char| !(c.is_ascii_alphanumeric() || "_.[]".contains(c))).enumerate();
        // A single word may be any word, but for the first one.
        let paths = words.filter(|(i, word)| *i == 0 || word.contains(['.', '[']));
        let paths: Vec<&str> = paths.map(|(_, word)| word.trim_end_matches('.')).collect();
        let exact = || paths.iter().find_map(|path| self.at.get(*path)).map(String::as_str);
        let place = self.setting(&paths, error).or_else(exact).or_else(|| paths.iter().find_map(|path| self.nearest(path)));
        format!("{}: {error}", place.unwrap_or(&self.origin))
    }

    /// The place of a setting of an optimizer or schedule: their errors name the section, and the setting by itself.
    fn setting(&self, paths: &[&str], error: &str) -> Option<&str> {
        let words = || error.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).filter(|word| !word.is_empty());
        let sections = paths.iter().filter(|path| path.ends_with("_params"));
        sections
            .flat_map(|section| words().map(move |word| format!("{section}.{word}")))
            .find_map(|path| self.at.get(&path))
            .map(String::as_str)
    }

    /// The place of a key or, where the file doesn't have it, of the section that should.
    fn nearest(&self, path: &str) -> Option<&str> {
        let mut path = path;
        loop {
            if let Some(place) = self.at.get(path) {
                return Some(place);
            }
            path = &path[..path.rfind(['.', '['])?];
        }
    }
}

/// All keys of a file, in its order; none if it is no YAML.
pub(crate) fn keys(text: &str) -> Vec<Key> {
    let mut found = Vec::new();
    if let Ok(root) = parse::<Node>(text) {
        let whole = schema();
        collect(&root, ["", ""], &whole, &whole, &mut found);
    }
    found
}

/// `paths` are those of the node as they are written and as they are meant; `shape` is its part of the schema.
fn collect(node: &Node, [written, meant]: [&str; 2], shape: &Value, whole: &Value, found: &mut Vec<Key>) {
    let below = |path: &str, key: &str| if path.is_empty() { key.to_string() } else { format!("{path}.{key}") };
    match node {
        Node::Leaf => {}
        Node::List(items) => {
            for (i, item) in items.iter().enumerate() {
                let paths = [written, meant].map(|path| format!("{path}[{i}]"));
                // A process of a job is shaped like a whole config.
                let shape = if written == "config.process" { whole } else { shape };
                let (line, column) = (item.referenced.line(), item.referenced.column());
                found.push(Key { written: paths[0].clone(), meant: paths[1].clone(), line, column });
                collect(&item.value, [&paths[0], &paths[1]], shape, whole, found);
            }
        }
        Node::Map(entries) => {
            for (key, value) in entries {
                let (line, column) = (key.referenced.line(), key.referenced.column());
                let paths = [below(written, &key.value), below(meant, &real_name(shape, &key.value))];
                found.push(Key { written: paths[0].clone(), meant: paths[1].clone(), line, column });
                let shape = properties(shape).get(&key.value).unwrap_or(&Value::Null);
                collect(value, [&paths[0], &paths[1]], shape, whole, found);
            }
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(Read)
    }
}

struct Read;

macro_rules! leaves {
    ($($visit:ident: $type:ty,)*) => {
        $(fn $visit<E>(self, _: $type) -> Result<Node, E> {
            Ok(Node::Leaf)
        })*
    };
}

impl<'de> Visitor<'de> for Read {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    leaves! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_i128: i128, visit_u128: u128, visit_f64: f64, visit_str: &str, visit_bytes: &[u8], }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Leaf)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(key) = map.next_key::<Spanned<String>>()? {
            entries.push((key, map.next_value()?));
        }
        Ok(Node::Map(entries))
    }
}
