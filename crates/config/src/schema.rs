//! A JSON schema of the config, for editors: made from the same lines that declare the keys, so it can't drift from them.

use crate::scalar::{Flag, FlagOrTexts, Number, Numbers, Size, Sizes, TextOrFalse, Texts, Whole, WholeOrText};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

/// What values of a key's type look like.
pub(crate) trait Shape {
    fn shape() -> Value;
}

macro_rules! shapes {
    ($($type:ty => $shape:expr,)*) => {
        $(impl Shape for $type {
            fn shape() -> Value {
                $shape
            }
        })*
    };
}

shapes! {
    String => json!({"type": ["string", "number", "boolean"]}),
    Flag => json!({"type": "boolean"}),
    Whole => json!({"type": "integer", "minimum": 0}),
    Number => json!({"type": "number"}),
    Numbers => json!({"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}),
    Size => json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^\\d+x\\d+$"}]}),
    Sizes => {
        let mut kinds = Size::shape()["anyOf"].as_array().cloned().unwrap_or_default();
        kinds.push(json!({"type": "array", "items": Size::shape()}));
        json!({"anyOf": kinds})
    },
    Texts => json!({"anyOf": [{"type": "string"}, {"type": "array", "items": String::shape()}]}),
    FlagOrTexts => json!({"anyOf": [{"type": "boolean"}, {"const": "auto"}, {"type": "array", "items": String::shape()}]}),
    TextOrFalse => json!({"anyOf": [{"type": "string"}, {"const": false}]}),
    WholeOrText => json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]}),
    Value => json!({}),
    Map<String, Value> => json!({"type": "object"}),
}

impl<T: Shape> Shape for Vec<T> {
    fn shape() -> Value {
        json!({"type": "array", "items": T::shape()})
    }
}

/// The schema of a section, put together key by key.
#[derive(Default)]
pub(crate) struct Section(Map<String, Value>);

impl Section {
    /// A key with its comment, and what `#[serde(…)]` says of its names.
    pub fn key(&mut self, field: &str, docs: &[&str], serde: &[&str], mut shape: Value) {
        let text = docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        if let (Some(object), false) = (shape.as_object_mut(), text.is_empty()) {
            object.insert("description".to_string(), Value::String(text));
        }
        let names = quoted(serde, "rename").into_iter().next().unwrap_or_else(|| field.trim_start_matches("r#").to_string());
        for alias in quoted(serde, "alias") {
            let mut same = shape.clone();
            if let Some(object) = same.as_object_mut() {
                object.insert("description".to_string(), format!("{ALIAS}{names}`.").into());
            }
            self.0.insert(alias, same);
        }
        self.0.insert(names, shape);
    }

    pub fn inert(&mut self, field: &str, reason: &str, shape: Value) {
        self.deprecated(field, format!("Accepted; has no effect here: {reason}."), shape);
    }

    /// A key that is accepted as long as it is off: as one of these values, or empty where they are texts.
    pub fn later(&mut self, field: &str, neutral: &[Value]) {
        let mut values = neutral.to_vec();
        if neutral.iter().any(Value::is_string) {
            values.extend([json!(""), json!([]), json!({})]);
        }
        self.deprecated(field, "Not supported yet; accepted while it is off.".to_string(), json!({"enum": values}));
    }

    fn deprecated(&mut self, field: &str, text: String, mut shape: Value) {
        if let Some(object) = shape.as_object_mut() {
            object.insert("description".to_string(), text.into());
            object.insert("deprecated".to_string(), true.into());
        }
        self.0.insert(field.to_string(), shape);
    }

    /// A key without a value is as if it weren't there.
    pub fn finish(mut self) -> Value {
        self.0.values_mut().for_each(allow_null);
        json!({"type": "object", "additionalProperties": false, "properties": Value::Object(self.0)})
    }
}

fn allow_null(shape: &mut Value) {
    let listed = ["type", "enum", "anyOf"].into_iter().find(|word| shape.get(word).is_some());
    let Some(word) = listed else { return };
    let null = match word {
        "type" => json!("null"),
        "enum" => Value::Null,
        _ => json!({"type": "null"}),
    };
    match &mut shape[word] {
        Value::Array(any) if any.contains(&null) => {}
        Value::Array(any) => any.push(null),
        one => *one = Value::Array(vec![one.take(), null]),
    }
}

/// The texts behind `word = "…"` in the tokens of an attribute.
fn quoted(attributes: &[&str], word: &str) -> Vec<String> {
    let words = attributes.iter().flat_map(|tokens| tokens.split(','));
    let found = words
        .filter_map(|part| part.trim().strip_prefix(word)?.trim().strip_prefix('=').map(|text| text.trim().trim_matches('"').to_string()));
    found.collect()
}

/// The keys of a section, or of the entries of a list of sections.
pub(crate) fn properties(shape: &Value) -> &Map<String, Value> {
    static NONE: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
    let section = if shape["items"].is_object() { &shape["items"] } else { shape };
    section["properties"].as_object().unwrap_or(&NONE)
}

/// The key that a name stands for in a section: another one, if the name is an alias.
pub(crate) fn real_name(shape: &Value, name: &str) -> String {
    let text = properties(shape).get(name).and_then(|shape| shape["description"].as_str()).unwrap_or_default();
    let real = text.strip_prefix(ALIAS).and_then(|rest| rest.split('`').next());
    real.unwrap_or(name).to_string()
}

/// A path with every alias replaced by the key that it stands for.
pub(crate) fn meant(path: &str) -> String {
    let mut shape: &Value = &WHOLE;
    let parts = path.split('.').map(|part| {
        let (name, index) = part.split_at(part.find('[').unwrap_or(part.len()));
        let real = real_name(shape, name);
        shape = properties(shape).get(name).unwrap_or(&Value::Null);
        format!("{real}{index}")
    });
    parts.collect::<Vec<_>>().join(".")
}

/// How the description of an alias begins.
const ALIAS: &str = "Another name of `";

/// The schema of a run, for readers that look up one key after the other.
pub(crate) static WHOLE: LazyLock<Value> = LazyLock::new(<crate::run::RawRun as Shape>::shape);

/// The schema of a file: a flat config, or ai-toolkit's job, which holds one under `config.process`.
pub fn schema() -> Value {
    let run = json!({"$ref": "#/$defs/run"});
    let text = json!({"type": ["string", "number", "boolean", "null"]});
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "velatura config",
        "type": "object",
        // Told apart first: an editor then complains of one shape, not of both.
        "if": {"anyOf": [{"required": ["job"]}, {"required": ["config"]}]},
        "then": {
            "additionalProperties": false,
            "required": ["config"],
            "properties": {
                "job": {"enum": ["extension", "train", null], "description": "Of ai-toolkit's job files."},
                "config": {
                    "type": "object",
                    "additionalProperties": false,
                    "required": ["process"],
                    "properties": {
                        "name": text,
                        "process": {"type": "array", "minItems": 1, "maxItems": 1, "items": run},
                    },
                },
                "meta": {"description": "Accepted; has no effect here: velatura writes its own metadata."},
            },
        },
        "else": {"$ref": "#/$defs/run", "required": ["name", "model", "datasets"]},
        "$defs": {"run": WHOLE.clone()},
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::keys_of;

    fn properties_of(section: &str) -> &'static Map<String, Value> {
        properties(if section.is_empty() { &WHOLE } else { &WHOLE["properties"][section] })
    }

    #[test]
    fn the_schema_knows_every_key_that_the_reader_knows_and_no_other() {
        let sections: [(&str, &[&str]); 6] = [
            ("", keys_of::<crate::run::RawRun>()),
            ("train", keys_of::<crate::train::RawTrain>()),
            ("network", keys_of::<crate::network::RawNetwork>()),
            ("datasets", keys_of::<crate::dataset::RawDataset>()),
            ("sample", keys_of::<crate::sample::RawSample>()),
            ("dataloader", keys_of::<crate::dataloader::RawDataloader>()),
        ];
        for (section, keys) in sections {
            let mut known: Vec<&str> = properties_of(section).keys().map(String::as_str).collect();
            let mut keys = keys.to_vec();
            known.sort_unstable();
            keys.sort_unstable();
            assert_eq!(known, keys, "in section `{section}`");
        }
    }

    #[test]
    fn keys_have_types_and_descriptions() {
        let train = properties_of("train");
        assert_eq!(train["steps"]["type"], json!(["integer", "null"]));
        assert!(train["steps"]["description"].as_str().unwrap().contains("Optimizer steps"));
        assert!(train["learning_rate"]["description"].as_str().unwrap().contains("`lr`"));
        assert_eq!(train["train_unet"]["type"], json!(["boolean", "null"]));
        assert!(train["xformers"]["description"].as_str().unwrap().contains("no effect"));
    }
}
