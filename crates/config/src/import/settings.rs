//! Settings as sd-scripts is given them, by name, with where each was said.

use super::flags::{Flag, Kind, Meaning, Off};
use serde_json::{Number, Value};
use std::collections::BTreeMap;

/// A value in the form that its flag asks for, and who said it (`--seed`, `a.toml: seed`).
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Setting {
    pub value: Value,
    pub origin: String,
}

/// What was given, of one list of flags or several.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings(BTreeMap<&'static str, Setting>);

impl Settings {
    /// Adds a value. It is an error if the value is none, or if another place says something else.
    pub fn put(&mut self, flag: &Flag, given: &Value, origin: &str) -> Result<(), String> {
        let value = read(flag.kind, given).ok_or_else(|| format!("{origin}: {}", misfit(flag.kind, given)))?;
        let setting = Setting { value, origin: origin.to_string() };
        match self.0.get(flag.name) {
            Some(said) if said.value != setting.value => Err(contradiction(said, &setting)),
            _ => {
                self.0.insert(flag.name, setting);
                Ok(())
            }
        }
    }

    /// Takes over other settings; what both say must be the same.
    pub fn merge(&mut self, others: &Settings) -> Vec<String> {
        let mut errors = Vec::new();
        for (name, setting) in &others.0 {
            match self.0.get(name) {
                Some(said) if said.value != setting.value => errors.push(contradiction(said, setting)),
                _ => drop(self.0.insert(name, setting.clone())),
            }
        }
        errors
    }

    /// These settings, and those of `under` that they don't say.
    pub fn over(&self, under: &Settings) -> Settings {
        let mut all = under.0.clone();
        all.extend(self.0.iter().map(|(name, setting)| (*name, setting.clone())));
        Settings(all)
    }

    pub fn get(&self, name: &str) -> Option<&Setting> {
        self.0.get(name)
    }

    pub fn take(&mut self, name: &str) -> Option<Setting> {
        self.0.remove(name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.get(name)?.value.as_str().map(str::trim).filter(|text| !text.is_empty())
    }

    pub fn number(&self, name: &str) -> Option<f64> {
        self.get(name)?.value.as_f64()
    }

    pub fn whole(&self, name: &str) -> Option<u64> {
        self.get(name)?.value.as_u64()
    }

    pub fn is_on(&self, name: &str) -> bool {
        self.get(name).is_some_and(|setting| setting.value == Value::Bool(true))
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        let items = self.get(name).and_then(|setting| setting.value.as_array());
        items.into_iter().flatten().filter_map(|item| item.as_str().map(str::to_string)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Flag {
    /// Whether a value is what the setting has when it does nothing.
    pub fn is_off(&self, value: &Value) -> bool {
        let off = if let Meaning::Refused(_, off) = self.meaning { off } else { Off::Empty };
        match value {
            Value::Null | Value::Bool(false) => true,
            Value::Bool(true) => false,
            Value::Object(map) => map.is_empty(),
            Value::Number(number) => number.as_f64() == Some(if let Off::At(at) = off { at } else { 0.0 }),
            Value::String(text) => text.trim().is_empty() || matches!(off, Off::Word(word) if word == text),
            Value::Array(items) => items.is_empty(),
        }
    }
}

fn contradiction(a: &Setting, b: &Setting) -> String {
    format!("{} ({}) and {} ({}) contradict each other; keep one", a.origin, shown(&a.value), b.origin, shown(&b.value))
}

pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // 1, not 1.0.
        Value::Number(number) if number.is_f64() => number.as_f64().map_or_else(|| number.to_string(), |number| number.to_string()),
        value => value.to_string(),
    }
}

/// Why a value can't be read.
fn misfit(kind: Kind, given: &Value) -> String {
    match (kind, given) {
        (Kind::Switch, Value::String(text)) if ["true", "false"].contains(&text.trim().to_ascii_lowercase().as_str()) => {
            format!("\"{text}\" is a text, not true or false; write {} without quotes", text.trim().to_ascii_lowercase())
        }
        (_, Value::String(text)) => format!("\"{text}\" is not {}", wanted(kind)),
        _ => format!("{} is not {}", shown(given), wanted(kind)),
    }
}

fn wanted(kind: Kind) -> &'static str {
    match kind {
        Kind::Switch => "true or false",
        Kind::Text => "a text",
        Kind::Whole => "a whole number, 0 or more",
        Kind::Number => "a number",
        Kind::Texts => "a list of texts",
        Kind::Sizes => "a size such as 512 or \"512,768\"",
        Kind::Any => "a value",
    }
}

/// The value in the form that the kind asks for. Numbers may come as texts: a command line has nothing else.
fn read(kind: Kind, given: &Value) -> Option<Value> {
    match kind {
        Kind::Switch => given.as_bool().map(Value::Bool),
        Kind::Text => match given {
            Value::String(_) => Some(given.clone()),
            Value::Number(_) => Some(Value::String(given.to_string())),
            _ => None,
        },
        Kind::Whole => whole(given).map(Value::from),
        Kind::Number => number(given).and_then(Number::from_f64).map(Value::Number),
        Kind::Texts => texts(given).map(Value::from),
        Kind::Sizes => sizes(given).map(Value::from),
        Kind::Any => Some(given.clone()),
    }
}

fn number(given: &Value) -> Option<f64> {
    let value = match given {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    value.filter(|value: &f64| value.is_finite())
}

fn whole(given: &Value) -> Option<u64> {
    if let Some(exact) = given.as_u64().or_else(|| given.as_str()?.trim().parse().ok()) {
        return Some(exact);
    }
    let value = number(given).filter(|value| value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(value));
    value.map(|value| value as u64)
}

fn texts(given: &Value) -> Option<Vec<String>> {
    match given {
        Value::Array(items) => items.iter().map(scalar_text).collect(),
        Value::String(text) if text.trim().is_empty() => Some(Vec::new()),
        other => scalar_text(other).map(|text| vec![text]),
    }
}

fn scalar_text(given: &Value) -> Option<String> {
    match given {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(given.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// One side or two, width first.
fn sizes(given: &Value) -> Option<Vec<u64>> {
    let sides: Option<Vec<u64>> = match given {
        Value::Array(items) => items.iter().map(whole).collect(),
        Value::String(text) => text.split([',', 'x']).map(|side| side.trim().parse().ok()).collect(),
        other => whole(other).map(|side| vec![side]),
    };
    sides.filter(|sides| (1..=2).contains(&sides.len()) && sides.iter().all(|side| (1..=65536).contains(side)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_read_in_every_form_in_which_files_and_command_lines_give_them() {
        for (kind, given, value) in [
            (Kind::Whole, json!("16"), Some(json!(16))),
            (Kind::Whole, json!(1e3), Some(json!(1000))),
            (Kind::Whole, json!("18446744073709551615"), Some(json!(u64::MAX))),
            (Kind::Whole, json!("-1"), None),
            (Kind::Whole, json!(1.5), None),
            (Kind::Number, json!("1e-4"), Some(json!(1e-4))),
            (Kind::Number, json!("nan"), None),
            (Kind::Switch, json!("True"), None),
            (Kind::Switch, json!(false), Some(json!(false))),
            (Kind::Sizes, json!("512,768"), Some(json!([512, 768]))),
            (Kind::Sizes, json!(" 512 , 768 "), Some(json!([512, 768]))),
            (Kind::Sizes, json!([640]), Some(json!([640]))),
            (Kind::Sizes, json!("512,"), None),
            (Kind::Sizes, json!([1, 2, 3]), None),
            (Kind::Texts, json!(1e-4), Some(json!(["0.0001"]))),
            (Kind::Texts, json!(""), Some(json!([]))),
            (Kind::Text, json!(7), Some(json!("7"))),
            (Kind::Text, json!(true), None),
        ] {
            assert_eq!(read(kind, &given), value, "{kind:?} {given}");
        }
    }
}
