//! `docs/optimizers.md` and its Chinese twin say of every optimizer and schedule what the code says: names, sizes, settings, defaults and
//! ranges. With VELATURA_WRITE_DOCS=1 the tables are written instead of compared.

#![allow(clippy::unwrap_used)]

use base::Shape;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use velatura_optim::schedule::{SCHEDULES, parse};
use velatura_optim::{Layout, OPTIMIZERS, choose};

/// Words of the tables, in the language of a page.
struct Language {
    file: &'static str,
    aliases: &'static str,
    rate: &'static str,
    bytes: &'static str,
    head: &'static str,
    itself: &'static str,
    /// What stands in the code's ranges, and what is written for it; longer ones first.
    ranges: &'static [(&'static str, &'static str)],
}

const ENGLISH: Language = Language {
    file: "optimizers.md",
    aliases: "Other names",
    rate: "Rate if none is given",
    bytes: "Bytes for each parameter",
    head: "| setting | default | what it can be |",
    itself: "not set",
    ranges: &[],
};

const CHINESE: Language = Language {
    file: "optimizers.zh-CN.md",
    aliases: "别名",
    rate: "未指定时的学习率",
    bytes: "每个参数占用的字节数",
    head: "| 设置 | 默认值 | 取值 |",
    itself: "未设置",
    ranges: &[
        ("a list of ", "列表，个数 "),
        (", each a number", "，每项为数"),
        ("a whole number from ", "整数，范围 "),
        ("a number from 0 up to (not including) 1", "数，0 到 1（不含 1）"),
        ("a number from 0 to 1", "数，0 到 1"),
        ("a number, more than 0 and at most 1", "数，大于 0 且不超过 1"),
        ("a number, more than 0", "数，大于 0"),
        ("a number, 0 or more", "数，不小于 0"),
        ("a number, 1 or more", "数，不小于 1"),
        ("a number below 0", "数，小于 0"),
        (" from 0 up to (not including) 1", "，0 到 1（不含 1）"),
        (", more than 0", "，大于 0"),
        (" to ", " 到 "),
        ("true or false", "true 或 false"),
        ("a number", "数"),
        (" or ", " 或 "),
    ],
};

/// Reads settings, and gives them with their defaults.
type Read = dyn Fn(&Map<String, Value>) -> anyhow::Result<Map<String, Value>>;

/// A thing with settings.
struct Subject<'a> {
    facts: Vec<String>,
    /// Settings that it can't do without.
    needed: Map<String, Value>,
    read: &'a Read,
}

impl Subject<'_> {
    fn error(&self, changes: &[(&str, Value)]) -> String {
        let mut settings = self.needed.clone();
        settings.extend(changes.iter().map(|(key, value)| (key.to_string(), value.clone())));
        (self.read)(&settings).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    /// Every key that it reads, aliases included.
    fn keys(&self) -> Vec<String> {
        let error = self.error(&[("no such key", json!(1))]);
        let list = error.split_once("(known: ").and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or_else(|| panic!("{error}"));
        list.split(", ").map(str::to_string).collect()
    }

    /// The table of its settings, as the page should have it.
    fn table(&self, language: &Language) -> String {
        let defaults = (self.read)(&self.needed).unwrap();
        let mut lines: Vec<String> = self.facts.clone();
        let mut rows = Vec::new();
        let keys = self.keys();
        for key in &keys {
            let other = |main: &&String| *main != key && self.error(&[(main, json!(1)), (key, json!(1))]).contains("mean the same");
            if keys.iter().take_while(|before| *before != key).any(|before| other(&before)) {
                continue;
            }
            let names: Vec<String> = std::iter::once(key).chain(keys.iter().filter(other)).map(|name| format!("`{name}`")).collect();
            let default = match defaults.get(key) {
                Some(_) if self.needed.contains_key(key) => language.itself.to_string(),
                Some(value) => format!("`{}`", value.to_string().replace('"', "").replace(',', ", ")),
                None => language.itself.to_string(),
            };
            let error = self.error(&[(key, json!({"not": "a value"}))]);
            let range =
                error.split_once("must be ").or(error.split_once("}, ")).map(|(_, range)| range).unwrap_or_else(|| panic!("{error}"));
            let range = language.ranges.iter().fold(range.to_string(), |text, (from, to)| text.replace(from, to));
            rows.push(format!("| {} | {default} | {range} |", names.join(" ")));
        }
        if !rows.is_empty() {
            lines.extend([String::new(), language.head.to_string(), "| --- | --- | --- |".to_string()]);
            lines.extend(rows);
        }
        lines.join("\n")
    }
}

fn bytes_per_parameter(name: &str) -> String {
    let layout = Layout::uniform([("p".to_string(), Shape::from([512, 512]))]).unwrap();
    let bytes = choose(name, &Map::new()).unwrap().held_bytes(&layout) as f64 / layout.elements() as f64;
    format!("{bytes:.2}").trim_end_matches('0').trim_end_matches('.').to_string()
}

fn facts(language: &Language, aliases: &[&str]) -> Vec<String> {
    let names: Vec<String> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
    if names.is_empty() { Vec::new() } else { vec![format!("{}: {}", language.aliases, names.join(", "))] }
}

/// The blocks of a page: what stands between `<!-- name -->` and `<!-- end -->`.
fn page(language: &Language) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    for entry in OPTIMIZERS {
        let mut facts = facts(language, entry.aliases);
        facts.push(format!("{}: `{:e}`. {}: {}", language.rate, entry.rates.default, language.bytes, bytes_per_parameter(entry.name)));
        let read = |settings: &Map<String, Value>| choose(entry.name, settings).map(|chosen| chosen.params);
        let facts = vec![facts.join("\n\n")];
        blocks.push((entry.name.to_string(), Subject { facts, needed: Map::new(), read: &read }.table(language)));
    }
    for entry in SCHEDULES {
        let needed = if entry.name == "step" { Map::from_iter([("step_size".to_string(), json!(3))]) } else { Map::new() };
        let read = |settings: &Map<String, Value>| parse(entry.name, settings, 1e-3, 100).map(|schedule| schedule.params);
        let facts = facts(language, entry.aliases);
        blocks.push((format!("schedule {}", entry.name), Subject { facts, needed, read: &read }.table(language)));
    }
    blocks
}

fn path(language: &Language) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(language.file)
}

fn check(language: &Language) {
    let path = path(language);
    let mut text = std::fs::read_to_string(&path).unwrap();
    let blocks = page(language);
    let marks = text.matches("<!-- end -->").count();
    assert_eq!(marks, blocks.len(), "{}: a block for each optimizer and schedule, and no other", language.file);
    for (name, block) in blocks {
        let begin = format!("<!-- {name} -->\n");
        let start = text.find(&begin).unwrap_or_else(|| panic!("{} lacks {begin}", language.file)) + begin.len();
        let end = start + text[start..].find("<!-- end -->").unwrap();
        if std::env::var_os("VELATURA_WRITE_DOCS").is_some() {
            text.replace_range(start..end, &format!("{block}\n"));
        } else {
            assert_eq!(text[start..end].trim(), block.trim(), "{}: {name}; VELATURA_WRITE_DOCS=1 writes the tables anew", language.file);
        }
    }
    if std::env::var_os("VELATURA_WRITE_DOCS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
}

#[test]
fn the_english_page_says_what_the_code_says() {
    check(&ENGLISH);
}

#[test]
fn the_chinese_page_says_what_the_code_says() {
    check(&CHINESE);
}
