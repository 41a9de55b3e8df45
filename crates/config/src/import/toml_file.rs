//! A TOML file as JSON, with the line of every key: what is wrong with a value is told with its place.

use anyhow::{Result, anyhow};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use toml::de::{DeTable, DeValue};

pub(super) struct Toml {
    pub name: String,
    pub table: Map<String, Value>,
    /// By path: `datasets[0].subsets[1].num_repeats`.
    lines: BTreeMap<String, usize>,
}

impl Toml {
    pub fn read(content: &str, name: &str) -> Result<Toml> {
        let table = toml::from_str(content).map_err(|error| {
            let (line, column) = place(content, error.span().map_or(0, |span| span.start));
            anyhow!("{name}:{line}:{column}: {}", error.message().lines().next().unwrap_or_default())
        })?;
        let mut lines = BTreeMap::new();
        if let Ok(table) = DeTable::parse(content) {
            collect(table.get_ref(), "", content, &mut lines);
        }
        Ok(Toml { name: name.to_string(), table, lines })
    }

    /// Who says something: `file:line: shown`.
    pub fn origin(&self, path: &str, shown: &str) -> String {
        match self.lines.get(path) {
            Some(line) => format!("{}:{line}: {shown}", self.name),
            None => format!("{}: {shown}", self.name),
        }
    }
}

fn collect(table: &DeTable, path: &str, content: &str, lines: &mut BTreeMap<String, usize>) {
    for (key, value) in table {
        let below = if path.is_empty() { key.get_ref().to_string() } else { format!("{path}.{}", key.get_ref()) };
        lines.insert(below.clone(), place(content, key.span().start).0);
        match value.get_ref() {
            DeValue::Table(table) => collect(table, &below, content, lines),
            DeValue::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let below = format!("{below}[{i}]");
                    lines.insert(below.clone(), place(content, item.span().start).0);
                    if let DeValue::Table(table) = item.get_ref() {
                        collect(table, &below, content, lines);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Line and column of a byte, from 1.
fn place(content: &str, at: usize) -> (usize, usize) {
    let before = content.get(..at.min(content.len())).unwrap_or_default();
    (1 + before.matches('\n').count(), 1 + before.rsplit('\n').next().unwrap_or_default().chars().count())
}
