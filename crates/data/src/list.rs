//! Lists of pictures with captions: JSON lines, CSV and TSV, and the JSON tables that other trainers write.
//!
//! Paths are relative to the list. Columns that mean nothing here are passed over; a line that can't be used is reported with its
//! number, and the others count.

use crate::csv;
use crate::scan::Rejected;
use crate::text::{self, Pages};
use anyhow::{Context, Result, bail, ensure};
use encoding_rs::Encoding;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

/// Larger lists are none.
const LARGEST_FILE: u64 = 1 << 28;

/// Columns that name the picture, and those that hold its caption, in the order in which they are looked for.
const FILES: [&str; 7] = ["file_name", "image_path", "image", "file", "path", "filename", "image_file"];
const CAPTIONS: [&str; 4] = ["text", "caption", "prompt", "description"];
const TAGS: &str = "tags";

/// Names under which a folder of pictures may hold its own list.
pub const IN_FOLDERS: [&str; 2] = ["metadata.jsonl", "metadata.csv"];

/// A picture and what the list says of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// As written: relative to the list's folder, or absolute.
    pub file: String,
    /// `list.jsonl line 3`.
    pub place: String,
    pub caption: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    pub rows: Vec<Row>,
    /// Lines that can't be used.
    pub bad: Vec<Rejected>,
}

/// Would this file be read as a list?
pub fn is_list(path: &Path) -> bool {
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    ["jsonl", "json", "csv", "tsv"].contains(&extension.as_str())
}

/// The picture that a list in `folder` names. Lists that were written on Windows have backslashes between folders.
pub fn path_in(folder: &Path, file: &str) -> PathBuf {
    let path = folder.join(file);
    if file.contains('\\') && !path.exists() { folder.join(file.replace('\\', "/")) } else { path }
}

/// Reads a list; `column` names the captions' column where it has none of the usual names.
pub fn read(path: &Path, column: Option<&str>, encoding: Option<&'static Encoding>) -> Result<List> {
    let bytes = base::fs::read_regular(path, LARGEST_FILE)?;
    let text = text::decode(&bytes, Pages { named: encoding, guessed: None }).with_context(|| format!("the list {}", path.display()))?.text;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let extension = name.rsplit_once('.').map(|(_, e)| e.to_ascii_lowercase()).unwrap_or_default();
    let reader = Reader { name: &name, column };
    let list = match extension.as_str() {
        "csv" => reader.table(&text, separator(&text)),
        "tsv" => reader.table(&text, '\t'),
        "json" => reader.json(&text),
        _ => Ok(reader.lines(&text)),
    };
    list.with_context(|| format!("the list {}", path.display()))
}

/// What a table's first line is cut at: spreadsheets of half the world write semicolons where the comma is in their numbers.
fn separator(text: &str) -> char {
    let header = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    [',', ';', '\t'].into_iter().find(|separator| header.contains(*separator)).unwrap_or(',')
}

struct Reader<'a> {
    name: &'a str,
    column: Option<&'a str>,
}

impl Reader<'_> {
    fn lines(&self, text: &str) -> List {
        let mut list = List::default();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let place = format!("{} line {}", self.name, number + 1);
            let object = serde_json::from_str::<Map<String, Value>>(line).map_err(|e| anyhow::anyhow!("it is no JSON object: {e}"));
            list.add(place.clone(), object.and_then(|object| self.row(&object, None, place)));
        }
        list
    }

    fn table(&self, text: &str, separator: char) -> Result<List> {
        let mut rows = csv::rows(text, separator).into_iter();
        let (_, header) = rows.next().context("it is empty")?;
        let header: Vec<&str> = header.iter().map(|name| name.trim()).collect();
        ensure!(
            header.iter().any(|name| FILES.contains(name)),
            "no column names the pictures: it has {}, and one of {} is needed",
            header.join(", "),
            FILES.join(", ")
        );
        let mut list = List::default();
        for (line, fields) in rows {
            let place = format!("{} line {line}", self.name);
            let row = if fields.len() == header.len() {
                let object = header.iter().zip(&fields).map(|(name, field)| (name.to_string(), Value::String(field.clone()))).collect();
                self.row(&object, None, place.clone())
            } else {
                Err(anyhow::anyhow!("it has {} fields where the first line names {} columns", fields.len(), header.len()))
            };
            list.add(place, row);
        }
        Ok(list)
    }

    /// A list of objects, or one object that has the pictures for its keys.
    fn json(&self, text: &str) -> Result<List> {
        let mut list = List::default();
        match serde_json::from_str::<Value>(text).context("it is no JSON")? {
            Value::Array(entries) => {
                for (number, entry) in entries.into_iter().enumerate() {
                    let place = format!("{} entry {}", self.name, number + 1);
                    let object = if let Value::Object(object) = entry { Ok(object) } else { Err(anyhow::anyhow!("it is no object")) };
                    list.add(place.clone(), object.and_then(|object| self.row(&object, None, place)));
                }
            }
            Value::Object(table) => {
                for (file, entry) in table {
                    let place = format!("{} entry {file}", self.name);
                    let object = match entry {
                        Value::Object(object) => object,
                        text => Map::from_iter([(CAPTIONS[0].to_string(), text)]),
                    };
                    list.add(place.clone(), self.row(&object, Some(&file), place));
                }
            }
            _ => bail!("it is neither a list of objects nor an object with a picture for each key"),
        }
        Ok(list)
    }

    fn row(&self, object: &Map<String, Value>, file: Option<&str>, place: String) -> Result<Row> {
        let named = FILES.iter().find_map(|key| object.get(*key).and_then(Value::as_str));
        let file = file.or(named).map(str::trim).filter(|file| !file.is_empty());
        let file = file.with_context(|| format!("it names no picture; one of {} is needed", FILES.join(", ")))?;
        Ok(Row { file: file.to_string(), place, caption: self.caption(object)? })
    }

    fn caption(&self, object: &Map<String, Value>) -> Result<Option<String>> {
        if let Some(column) = self.column {
            let value = object.get(column).with_context(|| format!("it has no `{column}` (caption_column)"))?;
            return text_of(column, value, "\n");
        }
        let caption = CAPTIONS.iter().find_map(|key| Some((*key, object.get(*key)?)));
        let caption = caption.map(|(key, value)| text_of(key, value, "\n")).transpose()?.flatten();
        let tags = object.get(TAGS).map(|tags| text_of(TAGS, tags, ", ")).transpose()?.flatten();
        let both: Vec<String> = caption.into_iter().chain(tags).filter(|text| !text.trim().is_empty()).collect();
        Ok((!both.is_empty()).then(|| both.join(", ")))
    }
}

impl List {
    fn add(&mut self, place: String, row: Result<Row>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(error) => self.bad.push(Rejected { file: place, reason: format!("{error:#}") }),
        }
    }
}

/// A text, or several joined.
fn text_of(key: &str, value: &Value, between: &str) -> Result<Option<String>> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Array(parts) if parts.iter().all(Value::is_string) => {
            Ok(Some(parts.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(between)))
        }
        _ => bail!("its `{key}` is no text"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(name: &str, content: &str, column: Option<&str>) -> Result<List> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(name), content).unwrap();
        read(&dir.path().join(name), column, None)
    }

    fn pairs(list: &List) -> Vec<(&str, Option<&str>)> {
        list.rows.iter().map(|row| (row.file.as_str(), row.caption.as_deref())).collect()
    }

    #[test]
    fn json_lines_with_marks_blank_lines_extra_columns_and_bad_lines() {
        let content = "\u{FEFF}{\"file_name\": \"a.png\", \"text\": \"one\", \"width\": 3}\r\n\r\n{\"image_path\": \"b/c.png\", \"caption\": \"two\"}\r\n\
                       not json\r\n{\"text\": \"three\"}\r\n{\"file_name\": \"d.png\", \"text\": 4}\r\n{\"file_name\": \"e.png\"}\r\n\r\n";
        let list = list("metadata.jsonl", content, None).unwrap();
        assert_eq!(pairs(&list), [("a.png", Some("one")), ("b/c.png", Some("two")), ("e.png", None)]);
        let bad: Vec<&str> = list.bad.iter().map(|b| b.file.as_str()).collect();
        assert_eq!(bad, ["metadata.jsonl line 4", "metadata.jsonl line 5", "metadata.jsonl line 6"]);
        assert!(list.bad[1].reason.contains("names no picture") && list.bad[2].reason.contains("`text`"), "{:?}", list.bad);
    }

    #[test]
    fn tables_have_a_header_and_report_short_rows() {
        let list = list("x.csv", "text,image,extra\n\"one, two\",a.png,1\nb.png\n,c.png,2\n", None).unwrap();
        assert_eq!(pairs(&list), [("a.png", Some("one, two")), ("c.png", None)]);
        assert!(list.bad[0].file == "x.csv line 3" && list.bad[0].reason.contains("1 fields"), "{:?}", list.bad);
        let european = super::tests::list("x.csv", "\u{FEFF}Datei;file_name;text\r\n1;a.png;\"one; two, three\"\r\n", None).unwrap();
        assert_eq!(pairs(&european), [("a.png", Some("one; two, three"))]);
        assert_eq!(pairs(&super::tests::list("x.tsv", "file\tcaption\na\tb,c\n", None).unwrap()), [("a", Some("b,c"))]);
        let error = format!("{:#}", super::tests::list("x.csv", "a,b\n1,2\n", None).unwrap_err());
        assert!(error.contains("it has a, b") && error.contains("file_name"), "{error}");
        assert!(super::tests::list("x.csv", "", None).is_err());
    }

    #[test]
    fn json_tables_by_picture_and_lists_of_objects() {
        let by_picture =
            list("meta.json", r#"{"a.png": {"caption": "one", "tags": "t1, t2"}, "b.png": "two", "c.png": {"tags": ["x", "y"]}}"#, None);
        assert_eq!(pairs(&by_picture.unwrap()), [("a.png", Some("one, t1, t2")), ("b.png", Some("two")), ("c.png", Some("x, y"))]);
        let objects = list("meta.json", r#"[{"image": "a.png", "prompt": "one"}, 3]"#, None).unwrap();
        assert_eq!((pairs(&objects), objects.bad[0].file.as_str()), (vec![("a.png", Some("one"))], "meta.json entry 2"));
        assert!(list("meta.json", "3", None).is_err() && list("meta.json", "{", None).is_err());
    }

    #[test]
    fn lists_from_windows_find_their_pictures() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        for file in ["in/a.png", "odd\\name.png"] {
            std::fs::write(dir.path().join(file), "").unwrap();
        }
        assert_eq!(path_in(dir.path(), "in\\a.png"), dir.path().join("in/a.png"));
        assert_eq!(path_in(dir.path(), "odd\\name.png"), dir.path().join("odd\\name.png"));
    }

    #[test]
    fn the_captions_column_may_have_any_name() {
        let list =
            list("m.jsonl", "{\"image\": \"a\", \"text\": \"no\", \"zh\": \"猫\"}\n{\"image\": \"b\", \"text\": \"no\"}\n", Some("zh"))
                .unwrap();
        assert_eq!(pairs(&list), [("a", Some("猫"))]);
        assert!(list.bad[0].reason.contains("`zh`"));
    }
}
