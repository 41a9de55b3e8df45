//! docs/config.md and docs/config.zh-CN.md list every key: their tables are held to the declarations in `crates/config/src`.
//!
//! `VELATURA_WRITE_DOCS=1 cargo test --release -p velatura-config --test reference` writes the tables anew. In the Chinese page
//! what stands in the last column stays; a new key gets the English words, to be translated by hand.
#![allow(clippy::unwrap_used)]

use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use velatura_config as config;

/// The keys without which there is no run.
const REQUIRED: [&str; 3] = ["name", "model.name_or_path", "datasets.folder_path"];

const MINIMAL: &str = "name: a\nmodel: {name_or_path: m}\ndatasets:\n  - folder_path: /imgs\n";

struct Language {
    file: &'static str,
    head: &'static str,
    required: &'static str,
    inert: &'static str,
    later: &'static str,
    /// Names of the types, English first.
    types: [(&'static str, &'static str); 12],
}

const ENGLISH: Language = Language {
    file: "docs/config.md",
    head: "| key | type | default | meaning |\n| --- | --- | --- | --- |\n",
    required: "required",
    inert: "Taken without effect",
    later: "Not supported yet, taken while off",
    types: [
        ("text", "text"),
        ("true/false", "true/false"),
        ("whole number", "whole number"),
        ("number", "number"),
        ("whole number or list", "whole number or list"),
        ("text or list", "text or list"),
        ("true/false or list", "true/false or list"),
        ("text or false", "text or false"),
        ("whole number or text", "whole number or text"),
        ("whole number, text or list", "whole number, text or list"),
        ("list", "list"),
        ("map", "map"),
    ],
};

const CHINESE: Language = Language {
    file: "docs/config.zh-CN.md",
    head: "| 键 | 类型 | 默认值 | 含义 |\n| --- | --- | --- | --- |\n",
    required: "必填",
    inert: "可写，但无作用",
    later: "尚未支持，仅在关闭时可写",
    types: [
        ("text", "文本"),
        ("true/false", "true/false"),
        ("whole number", "整数"),
        ("number", "数"),
        ("whole number or list", "整数或列表"),
        ("text or list", "文本或列表"),
        ("true/false or list", "true/false 或列表"),
        ("text or false", "文本或 false"),
        ("whole number or text", "整数或文本"),
        ("whole number, text or list", "整数、文本或列表"),
        ("list", "列表"),
        ("map", "映射"),
    ],
};

/// One line of a table.
struct Row {
    key: String,
    aliases: Vec<String>,
    kind: &'static str,
    meaning: String,
}

/// A section: its keys, and the names that have no effect or are not supported.
#[derive(Default)]
struct Section {
    rows: Vec<Row>,
    /// Reason → names.
    inert: BTreeMap<String, Vec<String>>,
    later: Vec<String>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What type a key has, in English; nothing for a section.
fn kind(shape: &Value) -> Option<&'static str> {
    let any = shape["anyOf"].as_array();
    // Every key may be without a value.
    let named = |shape: &'_ Value| -> Option<String> {
        let kinds = shape["type"].as_array().map_or(vec![&shape["type"]], |kinds| kinds.iter().filter(|kind| *kind != "null").collect());
        if let [kind] = kinds[..] { kind.as_str().filter(|kind| *kind != "null").map(str::to_string) } else { None }
    };
    let part = |i: usize| any.and_then(|any| any.get(i)).and_then(named);
    let part = [part(0), part(1), part(2)];
    let part = |i: usize| part[i].as_deref();
    Some(match (part(0), part(1)) {
        (Some("integer"), Some("string")) if part(2) == Some("array") => "whole number, text or list",
        (Some("integer"), Some("array")) => "whole number or list",
        (Some("string"), Some("array")) => "text or list",
        (Some("boolean"), _) => "true/false or list",
        (Some("integer"), _) => "whole number or text",
        (Some("string"), _) => "text or false",
        _ => match named(shape).as_deref() {
            Some("boolean") => "true/false",
            Some("integer") => "whole number",
            Some("number") => "number",
            Some("array") if shape["items"]["properties"].is_object() => return None,
            Some("array") => "list",
            Some("object") if shape["properties"].is_object() => return None,
            Some("object") => "map",
            _ => "text",
        },
    })
}

/// All sections by their dotted names; the top level is `run`.
fn sections() -> BTreeMap<String, Section> {
    let mut all = BTreeMap::new();
    collect("", &config::schema::schema()["$defs"]["run"], &mut all);
    all
}

fn collect(name: &str, shape: &Value, all: &mut BTreeMap<String, Section>) {
    let mut section = Section::default();
    let empty = Map::new();
    for (key, shape) in shape["properties"].as_object().unwrap_or(&empty) {
        let text = shape["description"].as_str().unwrap_or_default();
        if let Some(first) = text.strip_prefix("Another name of `").and_then(|rest| rest.split('`').next()) {
            // Aliases stand before the key that they belong to.
            match section.rows.iter_mut().find(|row| row.key == first) {
                Some(row) => row.aliases.push(key.clone()),
                None => section.rows.push(Row { key: first.to_string(), aliases: vec![key.clone()], kind: "", meaning: String::new() }),
            }
        } else if let Some(reason) = text.strip_prefix("Accepted; has no effect here: ") {
            section.inert.entry(reason.trim_end_matches('.').to_string()).or_default().push(key.clone());
        } else if text.starts_with("Not supported yet") {
            section.later.push(key.clone());
        } else if let Some(kind) = kind(shape) {
            match section.rows.iter_mut().find(|row| row.key == *key) {
                Some(row) => (row.kind, row.meaning) = (kind, text.to_string()),
                None => section.rows.push(Row { key: key.clone(), aliases: Vec::new(), kind, meaning: text.to_string() }),
            }
        } else {
            section.rows.retain(|row| row.key != *key);
            let inner = if shape["items"].is_object() { &shape["items"] } else { shape };
            let path = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            collect(&path, inner, all);
        }
    }
    all.insert(if name.is_empty() { "run".to_string() } else { name.to_string() }, section);
}

/// What a key is if nobody says anything: its value in a resolved config.
fn default(config: &Value, section: &str, key: &str, language: &Language) -> String {
    let path = if section == "run" { key.to_string() } else { format!("{section}.{key}") };
    if REQUIRED.contains(&path.as_str()) {
        return language.required.to_string();
    }
    let value = path.split('.').fold(config, |at, part| if at.is_array() { &at[0][part] } else { &at[part] });
    match value {
        Value::Null | Value::Object(_) => "–".to_string(),
        Value::Array(items) if items.is_empty() => "–".to_string(),
        Value::String(text) if text.is_empty() => "–".to_string(),
        Value::String(text) => format!("`{text}`"),
        Value::Array(_) | Value::Bool(_) | Value::Number(_) => format!("`{}`", value.to_string().trim_end_matches(".0")),
    }
}

/// The table of a section and the lines below it. `words` has the last column of keys that a page words itself.
fn block(name: &str, section: &Section, language: &Language, words: &BTreeMap<String, String>) -> String {
    let config = config::load(MINIMAL.as_bytes(), "minimal", &[]).unwrap().config.to_json().unwrap();
    let mut text = String::from(language.head);
    for row in &section.rows {
        let aliases: String = row.aliases.iter().map(|alias| format!(", `{alias}`")).collect();
        let kind = language.types.iter().find(|(english, _)| *english == row.kind).map_or(row.kind, |(_, name)| name);
        let meaning = words.get(&row.key).map_or(row.meaning.as_str(), String::as_str).replace('|', "\\|");
        let default = default(&config, name, &row.key, language);
        writeln!(text, "| `{}`{aliases} | {kind} | {default} | {meaning} |", row.key).unwrap();
    }
    if !section.inert.is_empty() {
        let names = |names: &Vec<String>| names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        let parts: Vec<String> = match language.file == ENGLISH.file {
            true => section.inert.iter().map(|(reason, keys)| format!("{} ({reason})", names(keys))).collect(),
            false => section.inert.values().map(names).collect(),
        };
        let between = if language.file == ENGLISH.file { "; " } else { ", " };
        writeln!(text, "\n{}: {}.", language.inert, parts.join(between)).unwrap();
    }
    if !section.later.is_empty() {
        let names: Vec<String> = section.later.iter().map(|name| format!("`{name}`")).collect();
        writeln!(text, "\n{}: {}.", language.later, names.join(", ")).unwrap();
    }
    text
}

/// The last column of a page's table, by key.
fn words_of(text: &str) -> BTreeMap<String, String> {
    let row = |line: &str| {
        let inner = line.strip_prefix("| `")?.strip_suffix(" |")?.replace("\\|", "\u{1}");
        let key = inner.split('`').next()?.to_string();
        Some((key, inner.rsplit(" | ").next()?.replace('\u{1}', "|")))
    };
    text.lines().filter_map(row).collect()
}

/// The page with every block made anew, and what was wrong with it.
fn renew(language: &Language) -> (String, String, Vec<String>) {
    let path = root().join(language.file);
    let page = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut fresh = page.clone();
    let mut wrong = Vec::new();
    for (name, section) in sections() {
        let (start, end) = (format!("<!-- keys of {name} -->\n"), "<!-- end -->");
        let Some(begin) = fresh.find(&start).map(|at| at + start.len()) else {
            wrong.push(format!(
                "{}: a heading for the section {name} is missing, and below it the lines `{}` and `{end}`",
                language.file,
                start.trim()
            ));
            continue;
        };
        let Some(length) = fresh[begin..].find(end) else {
            wrong.push(format!("{}: `{end}` is missing after `{}`", language.file, start.trim()));
            continue;
        };
        let old = fresh[begin..begin + length].to_string();
        let words = if language.file == ENGLISH.file { BTreeMap::new() } else { words_of(&old) };
        let new = block(&name, &section, language, &words);
        for line in new.lines().filter(|line| !old.lines().any(|known| known == *line)) {
            wrong.push(format!("{}, {name}: this line belongs there: {line}", language.file));
        }
        for line in old.lines().filter(|line| !new.lines().any(|known| known == *line)) {
            wrong.push(format!("{}, {name}: this line does not: {line}", language.file));
        }
        fresh.replace_range(begin..begin + length, &new);
    }
    (page, fresh, wrong)
}

#[test]
fn both_pages_list_every_key_with_its_type_default_and_meaning() {
    for language in [ENGLISH, CHINESE] {
        let (page, fresh, wrong) = renew(&language);
        if std::env::var_os("VELATURA_WRITE_DOCS").is_some() {
            std::fs::write(root().join(language.file), fresh).unwrap();
            continue;
        }
        assert!(
            page == fresh && wrong.is_empty(),
            "{} is not what the declarations in crates/config/src say:\n  {}\nWrite the tables anew with\n  \
             VELATURA_WRITE_DOCS=1 cargo test --release -p velatura-config --test reference\nand put new rows of docs/config.zh-CN.md into Chinese.",
            language.file,
            wrong.join("\n  ")
        );
    }
}

#[test]
fn every_key_has_a_comment_that_says_what_it_means() {
    let bare: Vec<String> = sections()
        .iter()
        .flat_map(|(name, section)| section.rows.iter().filter(|row| row.meaning.is_empty()).map(move |row| format!("{name}.{}", row.key)))
        .collect();
    assert!(bare.is_empty(), "these keys need a `///` comment above them in crates/config/src, which the pages show: {}", bare.join(", "));
}

#[test]
fn the_chinese_page_is_in_chinese() {
    let page = std::fs::read_to_string(root().join(CHINESE.file)).unwrap();
    for (key, meaning) in words_of(&page) {
        let chinese = meaning.chars().any(|c| ('\u{4e00}'..='\u{9fff}').contains(&c));
        assert!(chinese, "docs/config.zh-CN.md: say in Chinese what `{key}` means (now: {meaning})");
    }
}

#[test]
fn both_pages_name_every_optimizer_and_schedule() {
    let optimizers = optim::optimizers::OPTIMIZERS.iter().map(|entry| entry.name);
    let names: Vec<&str> = optimizers.chain(optim::schedule::SCHEDULES.iter().map(|entry| entry.name)).collect();
    for language in [ENGLISH, CHINESE] {
        let page = std::fs::read_to_string(root().join(language.file)).unwrap();
        let words: Vec<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
        let missing: Vec<&&str> = names.iter().filter(|name| !words.contains(name)).collect();
        assert!(missing.is_empty(), "{}: the lists below the section train lack {missing:?}", language.file);
    }
}
