//! A JSON schema of the config, for editors: made from the same lines that declare the keys, so it can't drift from them.

use crate::scalar::{Flag, FlagOrTexts, Number, Size, Sizes, TextOrFalse, Texts, Whole, WholeOrText};
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
    Size => json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^\\d+x\\d+$"}]}),
    Sizes => {
        let mut kinds = Size::shape()["anyOf"].as_array().cloned().unwrap_or_default();
        kinds.push(json!({"type": "array", "items": Size::shape()}));
        json!({"anyOf": kinds})
    },
    Texts => json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
    FlagOrTexts => json!({"anyOf": [{"type": "boolean"}, {"const": "auto"}, {"type": "array", "items": {"type": "string"}}]}),
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

    pub fn inert(&mut self, field: &str, reason: &str) {
        self.0.insert(field.to_string(), json!({"description": format!("Accepted; has no effect here: {reason}."), "deprecated": true}));
    }

    /// A key that is accepted as long as it is off.
    pub fn later(&mut self, field: &str) {
        self.0.insert(field.to_string(), json!({"description": "Not supported yet; accepted while it is off.", "deprecated": true}));
    }

    pub fn finish(self) -> Value {
        json!({"type": "object", "additionalProperties": false, "properties": Value::Object(self.0)})
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
    let section = if shape["type"] == "array" { &shape["items"] } else { shape };
    section["properties"].as_object().unwrap_or(&NONE)
}

/// The key that a name stands for in a section: another one, if the name is an alias.
pub(crate) fn real_name(shape: &Value, name: &str) -> String {
    let text = properties(shape).get(name).and_then(|shape| shape["description"].as_str()).unwrap_or_default();
    let real = text.strip_prefix(ALIAS).and_then(|rest| rest.split('`').next());
    real.unwrap_or(name).to_string()
}

/// How the description of an alias begins.
const ALIAS: &str = "Another name of `";

/// The schema of a flat config. ai-toolkit's job files hold the same sections under `config.process`.
pub fn schema() -> Value {
    let mut schema = crate::run::RawRun::shape();
    if let Some(object) = schema.as_object_mut() {
        object.insert("$schema".to_string(), "https://json-schema.org/draft/2020-12/schema".into());
        object.insert("title".to_string(), "velatura config".into());
        object.insert("required".to_string(), json!(["name", "model", "datasets"]));
    }
    schema
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::keys_of;

    fn properties<'a>(schema: &'a Value, section: &str) -> &'a Map<String, Value> {
        let root = &schema["properties"];
        let section = if section.is_empty() { schema } else { &root[section] };
        let section = if section["type"] == "array" { &section["items"] } else { section };
        section["properties"].as_object().unwrap()
    }

    #[test]
    fn the_schema_knows_every_key_that_the_reader_knows_and_no_other() {
        let schema = schema();
        let sections: [(&str, &[&str]); 6] = [
            ("", keys_of::<crate::run::RawRun>()),
            ("train", keys_of::<crate::train::RawTrain>()),
            ("network", keys_of::<crate::network::RawNetwork>()),
            ("datasets", keys_of::<crate::dataset::RawDataset>()),
            ("sample", keys_of::<crate::sample::RawSample>()),
            ("dataloader", keys_of::<crate::dataloader::RawDataloader>()),
        ];
        for (section, keys) in sections {
            let mut known: Vec<&str> = properties(&schema, section).keys().map(String::as_str).collect();
            let mut keys = keys.to_vec();
            known.sort_unstable();
            keys.sort_unstable();
            assert_eq!(known, keys, "in section `{section}`");
        }
    }

    #[test]
    fn keys_have_types_and_descriptions() {
        let schema = schema();
        let train = properties(&schema, "train");
        assert_eq!(train["steps"]["type"], "integer");
        assert!(train["steps"]["description"].as_str().unwrap().contains("Optimizer steps"));
        assert!(train["learning_rate"]["description"].as_str().unwrap().contains("`lr`"));
        assert_eq!(train["train_unet"]["type"], "boolean");
        assert!(train["xformers"]["description"].as_str().unwrap().contains("no effect"));
    }
}
