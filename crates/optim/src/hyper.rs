//! Hyperparameters from a config's `optimizer_params` / `lr_scheduler_params`: every key must be known and in range.

use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value, json};

/// What a number must be, in words and as a check.
#[derive(Clone, Copy)]
pub struct Bounds {
    text: &'static str,
    holds: fn(f64) -> bool,
}

pub const NOT_NEGATIVE: Bounds = Bounds { text: "a number, 0 or more", holds: |v| v >= 0.0 };
/// Of the weight decay: in each step parameters shrink by this times the rate, so from 1 / rate on they would be turned around.
pub const WEIGHT_DECAY: [f64; 2] = [0.0, 10.0];
pub const DECAY_OF_WEIGHTS: Bounds = Bounds { text: "a number from 0 to 10", holds: |v| (WEIGHT_DECAY[0]..=WEIGHT_DECAY[1]).contains(&v) };
pub const POSITIVE: Bounds = Bounds { text: "a number, more than 0", holds: |v| v > 0.0 };
pub const SHARE: Bounds = Bounds { text: "a number from 0 to 1", holds: |v| (0.0..=1.0).contains(&v) };
/// For the decay of running means, which at 1 would never move.
pub const DECAY: Bounds = Bounds { text: "a number from 0 up to (not including) 1", holds: |v| (0.0..1.0).contains(&v) };
pub const NEGATIVE: Bounds = Bounds { text: "a number below 0", holds: |v| v < 0.0 };
pub const ANY: Bounds = Bounds { text: "a number", holds: |_| true };
/// For factors that may leave things as they are.
pub const DECAY_TO_ONE: Bounds = Bounds { text: "a number, more than 0 and at most 1", holds: |v| v > 0.0 && v <= 1.0 };
pub const AT_LEAST_ONE: Bounds = Bounds { text: "a number, 1 or more", holds: |v| v >= 1.0 };

/// A map of settings that is read key by key. It remembers what it was asked for, so that the rest are unknown keys, and what it
/// answered, which is the settings as they apply, defaults included.
pub struct Hyper<'a> {
    owner: &'a str,
    given: &'a Map<String, Value>,
    known: Vec<&'static str>,
    resolved: Map<String, Value>,
}

impl<'a> Hyper<'a> {
    /// `owner` is what the errors name, as `optimizer adamw`.
    pub fn new(owner: &'a str, given: &'a Map<String, Value>) -> Hyper<'a> {
        Hyper { owner, given, known: Vec::new(), resolved: Map::new() }
    }

    /// The value under the first of `keys` (a name and its aliases) that is there; two of them at once is an error.
    fn value(&mut self, keys: &[&'static str]) -> Result<Option<(&'static str, &'a Value)>> {
        self.known.extend(keys);
        let mut found = keys.iter().filter_map(|key| self.given.get(*key).filter(|v| !v.is_null()).map(|v| (*key, v)));
        let first = found.next();
        if let (Some((a, _)), Some((b, _))) = (first, found.next()) {
            bail!("{}: {a} and {b} mean the same, give one", self.owner);
        }
        Ok(first)
    }

    fn note(&mut self, keys: &[&'static str], value: Value) {
        self.resolved.insert(keys[0].to_string(), value);
    }

    /// A number within `bounds`, `None` if not given.
    pub fn optional(&mut self, keys: &[&'static str], bounds: Bounds) -> Result<Option<f64>> {
        let Some((key, value)) = self.value(keys)? else { return Ok(None) };
        match number(value) {
            Some(number) if (bounds.holds)(number) => {
                self.note(keys, json!(number));
                Ok(Some(number))
            }
            _ => bail!("{}: {key} is {}, must be {}", self.owner, shown(value), bounds.text),
        }
    }

    pub fn number(&mut self, keys: &[&'static str], default: f64, bounds: Bounds) -> Result<f64> {
        let number = self.optional(keys, bounds)?.unwrap_or(default);
        self.note(keys, json!(number));
        Ok(number)
    }

    /// A whole number from `least` to `most`.
    pub fn whole(&mut self, keys: &[&'static str], default: u64, [least, most]: [u64; 2]) -> Result<u64> {
        let number = match self.value(keys)? {
            None => default,
            Some((key, value)) => {
                let whole = number(value).filter(|v| v.fract() == 0.0 && (least as f64..=most as f64).contains(v));
                let Some(whole) = whole else {
                    bail!("{}: {key} is {}, must be a whole number from {least} to {most}", self.owner, shown(value))
                };
                whole as u64
            }
        };
        self.note(keys, json!(number));
        Ok(number)
    }

    pub fn flag(&mut self, keys: &[&'static str], default: bool) -> Result<bool> {
        let flag = match self.value(keys)? {
            None => default,
            Some((_, Value::Bool(flag))) => *flag,
            Some((key, value)) => bail!("{}: {key} is {value}, must be true or false", self.owner),
        };
        self.note(keys, json!(flag));
        Ok(flag)
    }

    /// One of several words; the first is the default.
    pub fn choice(&mut self, keys: &[&'static str], words: &[&'static str]) -> Result<&'static str> {
        let word = match self.value(keys)? {
            None => words[0],
            Some((key, value)) => {
                let found = value.as_str().and_then(|text| words.iter().find(|word| word.eq_ignore_ascii_case(text)));
                let Some(word) = found else { bail!("{}: {key} is {value}, must be {}", self.owner, words.join(" or ")) };
                word
            }
        };
        self.note(keys, json!(word));
        Ok(word)
    }

    /// A list of `N` numbers.
    pub fn numbers<const N: usize>(&mut self, keys: &[&'static str], default: [f64; N], bounds: Bounds) -> Result<[f64; N]> {
        let numbers = match self.value(keys)? {
            None => default,
            Some((key, value)) => {
                let list: Option<Vec<f64>> = value.as_array().and_then(|list| list.iter().map(number).collect());
                let list = list.filter(|list| list.iter().all(|v| (bounds.holds)(*v)));
                let list: Option<[f64; N]> = list.and_then(|list| list.try_into().ok());
                let Some(list) = list else {
                    bail!("{}: {key} is {}, must be a list of {N}, each {}", self.owner, shown(value), bounds.text)
                };
                list
            }
        };
        self.note(keys, json!(numbers.as_slice()));
        Ok(numbers)
    }

    /// Keys of other programs that change nothing here as long as they say `neutral`.
    pub fn only(&mut self, key: &'static str, neutral: Value, reason: &str) -> Result<()> {
        let Some((_, value)) = self.value(&[key])? else { return Ok(()) };
        let same = *value == neutral || number(value).is_some() && number(value) == number(&neutral);
        ensure!(same, "{}: {key} is {value}, only {neutral} is possible: {reason}", self.owner);
        Ok(())
    }

    /// Whether a key (or an alias of it) is given.
    pub fn gives(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.given.get(*key).is_some_and(|v| !v.is_null()))
    }

    /// Refuses keys that nobody asked for, with the nearest known one. Returns the settings with their defaults.
    pub fn finish(self) -> Result<Map<String, Value>> {
        for key in self.given.keys() {
            if !self.known.contains(&key.as_str()) {
                let hint =
                    base::nearest::nearest(key, self.known.iter().copied()).map(|n| format!(", did you mean {n}?")).unwrap_or_default();
                bail!("{}: unknown setting {key}{hint} (known: {})", self.owner, self.known.join(", "));
            }
        }
        Ok(self.resolved)
    }
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// A value for an error: a number in quotes is a text, as everywhere in a config.
fn shown(value: &Value) -> String {
    let is_number = |value: &Value| value.as_str().is_some_and(|text| text.trim().parse::<f64>().is_ok());
    let quoted = is_number(value) || value.as_array().is_some_and(|items| items.iter().any(is_number));
    if quoted { format!("{value} (numbers are written without quotes)") } else { value.to_string() }
}

/// `bitsandbytes.optim.AdamW8bit` and `adamw_8bit` are the same to users.
pub(crate) fn plain(name: &str) -> String {
    let last = name.trim().rsplit('.').next().unwrap_or_default();
    last.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).flat_map(char::to_lowercase).collect()
}

/// Finds `name` in a list of names, or says which there are and which was probably meant.
pub(crate) fn unknown_name(kind: &str, name: &str, names: &[&str]) -> anyhow::Error {
    let hint = base::nearest::nearest(name, names.iter().copied()).map(|n| format!(", did you mean {n}?")).unwrap_or_default();
    anyhow::anyhow!("unknown {kind} {name:?}{hint} (known: {})", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn unknown_keys_name_the_nearest() {
        let given = map(r#"{"weight_decai": 0.1}"#);
        let mut hyper = Hyper::new("optimizer adamw", &given);
        assert_eq!(hyper.optional(&["weight_decay"], SHARE).unwrap(), None);
        let error = hyper.finish().unwrap_err().to_string();
        assert!(error.contains("weight_decai") && error.contains("did you mean weight_decay?"), "{error}");
    }

    #[test]
    fn what_is_out_of_range_of_wrong_type_or_given_twice_is_refused() {
        let text = r#"{"eps": -1, "betas": [0.9], "min_lr": 0.1, "eta_min": 0.2, "text": "many", "steps": 2.5, "on": 1, "word": "red"}"#;
        let given = map(text);
        let mut hyper = Hyper::new("optimizer adamw", &given);
        assert!(hyper.number(&["eps"], 1e-8, SHARE).is_err());
        assert!(hyper.numbers(&["betas"], [0.9, 0.999], DECAY).is_err());
        assert!(hyper.optional(&["min_lr", "eta_min"], SHARE).is_err());
        assert!(hyper.number(&["text"], 0.0, ANY).is_err());
        assert!(hyper.whole(&["steps"], 1, [0, 9]).is_err());
        assert!(hyper.flag(&["on"], false).is_err());
        assert!(hyper.choice(&["word"], &["blue", "green"]).is_err());
        assert!(hyper.only("eps", json!(0), "no").is_err());
    }

    #[test]
    fn the_settings_come_back_with_their_defaults_under_their_first_names() {
        let given = map(r#"{"wd": 1e-4, "word": "Green", "steps": 3}"#);
        let mut hyper = Hyper::new("optimizer adamw", &given);
        assert_eq!(hyper.number(&["weight_decay", "wd"], 0.0, NOT_NEGATIVE).unwrap(), 1e-4);
        assert_eq!(hyper.choice(&["word"], &["blue", "green"]).unwrap(), "green");
        assert_eq!(hyper.whole(&["steps"], 1, [0, 9]).unwrap(), 3);
        assert!(!hyper.flag(&["on"], false).unwrap());
        let expected = r#"{"weight_decay": 0.0001, "word": "green", "steps": 3, "on": false}"#;
        assert_eq!(hyper.finish().unwrap(), map(expected));
    }
}
