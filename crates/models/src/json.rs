//! Reading `config.json`: typed fields with messages that name file and key, and a list of keys that nobody asked for.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeSet;

pub(crate) struct Fields<'a> {
    file: &'a str,
    map: &'a Map<String, Value>,
    asked: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Fields<'a> {
    /// `file` is how messages call it (`unet/config.json`).
    pub fn new(file: &'a str, json: &'a Value) -> Result<Fields<'a>> {
        let map = json.as_object().with_context(|| format!("{file} holds no JSON object"))?;
        Ok(Fields { file, map, asked: RefCell::default() })
    }

    /// The value of `key`; absent and null are the same.
    fn value(&self, key: &'static str) -> Option<&'a Value> {
        self.asked.borrow_mut().insert(key);
        self.map.get(key).filter(|v| !v.is_null())
    }

    fn typed<T>(&self, key: &'static str, what: &str, read: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        Ok(Some(read(value).with_context(|| format!("{}: {key} is {value}, but must be {what}", self.file))?))
    }

    pub fn size(&self, key: &'static str) -> Result<Option<usize>> {
        self.typed(key, "a whole number from 1 to 1048576", as_size)
    }

    pub fn needed_size(&self, key: &'static str) -> Result<usize> {
        self.size(key)?.with_context(|| format!("{} lacks the key {key}", self.file))
    }

    pub fn number(&self, key: &'static str) -> Result<Option<f32>> {
        self.typed(key, "a number", |v| v.as_f64().map(|v| v as f32))
    }

    pub fn flag(&self, key: &'static str) -> Result<Option<bool>> {
        self.typed(key, "true or false", Value::as_bool)
    }

    pub fn text(&self, key: &'static str) -> Result<Option<&'a str>> {
        self.typed(key, "a text", Value::as_str)
    }

    pub fn sizes(&self, key: &'static str) -> Result<Option<Vec<usize>>> {
        self.typed(key, "a list of whole numbers from 1 to 1048576", |v| v.as_array()?.iter().map(as_size).collect())
    }

    pub fn texts(&self, key: &'static str) -> Result<Option<Vec<&'a str>>> {
        self.typed(key, "a list of texts", |v| v.as_array()?.iter().map(Value::as_str).collect())
    }

    /// One number for all of `n` blocks, or a list with one for each.
    pub fn per_block(&self, key: &'static str, n: usize) -> Result<Option<Vec<usize>>> {
        if let Some(value) = self.value(key)
            && let Some(one) = as_size(value)
        {
            return Ok(Some(vec![one; n]));
        }
        let list = self.sizes(key)?;
        if let Some(list) = &list {
            ensure!(list.len() == n, "{}: {key} lists {} numbers for {n} blocks", self.file, list.len());
        }
        Ok(list)
    }

    /// Refuses every value of `key` but absent, null and `allowed`.
    pub fn only(&self, key: &'static str, allowed: &[Value]) -> Result<()> {
        let Some(value) = self.value(key) else { return Ok(()) };
        let same = |a: &Value| a == value || a.as_f64().is_some_and(|a| value.as_f64() == Some(a));
        if allowed.iter().any(same) {
            return Ok(());
        }
        let list = if allowed.is_empty() { "null".into() } else { allowed.iter().map(Value::to_string).collect::<Vec<_>>().join(" or ") };
        bail!("{}: {key} is {value}, which this version does not support (it supports {list})", self.file)
    }

    /// Marks a key whose value changes nothing.
    pub fn ignored(&self, key: &'static str) {
        self.value(key);
    }

    /// Keys that hold something and that nobody asked for.
    pub fn unknown(&self) -> Vec<String> {
        let asked = self.asked.borrow();
        let means_something = |v: &Value| !(v.is_null() || v == &Value::Bool(false));
        self.map
            .iter()
            .filter(|(key, value)| !key.starts_with('_') && !asked.contains(key.as_str()) && means_something(value))
            .map(|(key, _)| key.clone())
            .collect()
    }
}

/// Larger sizes are nonsense, and graphs are built by them before any tensor can contradict.
const LARGEST_SIZE: u64 = 1 << 20;

/// More layers than any model has in one block.
pub const MOST_LAYERS: usize = 256;

fn as_size(value: &Value) -> Option<usize> {
    value.as_u64().filter(|v| (1..=LARGEST_SIZE).contains(v)).and_then(|v| usize::try_from(v).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn messages_name_the_file_the_key_and_the_value() {
        let config = json!({"a": "x", "heads": [1, 2], "norm": "layer_norm", "scale": 1.0, "new": 3, "off": false, "_note": 1});
        let fields = Fields::new("unet/config.json", &config).unwrap();
        assert_eq!(fields.size("a").unwrap_err().to_string(), "unet/config.json: a is \"x\", but must be a whole number from 1 to 1048576");
        assert!(fields.per_block("heads", 3).unwrap_err().to_string().contains("lists 2 numbers for 3 blocks"));
        let refused = fields.only("norm", &[json!("group")]).unwrap_err().to_string();
        assert!(refused.contains("norm is \"layer_norm\"") && refused.contains("\"group\""), "{refused}");
        fields.only("scale", &[json!(1)]).unwrap();
        fields.only("absent", &[]).unwrap();
        assert_eq!(fields.unknown(), ["new"]);
    }
}
