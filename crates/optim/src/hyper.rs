//! Hyperparameters from a config's `optimizer_params` / `lr_scheduler_params`: every key must be known and in range.

use anyhow::{Result, bail, ensure};
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// A map of settings that shrinks as they are read; what is left at the end is an unknown key.
pub struct Hyper<'a> {
    owner: &'a str,
    given: &'a Map<String, Value>,
    known: Vec<&'static str>,
}

impl<'a> Hyper<'a> {
    /// `owner` is what the errors name, as `optimizer adamw`.
    pub fn new(owner: &'a str, given: &'a Map<String, Value>) -> Hyper<'a> {
        Hyper { owner, given, known: Vec::new() }
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

    /// A number in `range`, `None` if not given.
    pub fn number(&mut self, keys: &[&'static str], range: RangeInclusive<f64>) -> Result<Option<f64>> {
        let Some((key, value)) = self.value(keys)? else { return Ok(None) };
        // YAML 1.2 reads `1e-4` (no dot) as text; every peer accepts it as a number.
        let number = value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        match number {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => bail!("{}: {key} is {value}, must be a number from {} to {}", self.owner, range.start(), range.end()),
        }
    }

    /// `N` numbers, each in `range`, `None` if not given.
    pub fn numbers<const N: usize>(&mut self, keys: &[&'static str], range: RangeInclusive<f64>) -> Result<Option<[f64; N]>> {
        let Some((key, value)) = self.value(keys)? else { return Ok(None) };
        let list: Vec<f64> = value.as_array().map(|list| list.iter().filter_map(Value::as_f64).collect()).unwrap_or_default();
        let error = || format!("{}: {key} is {value}, must be a list of {N} numbers from {} to {}", self.owner, range.start(), range.end());
        ensure!(value.as_array().is_some_and(|l| l.len() == N) && list.iter().all(|v| range.contains(v)), error());
        <[f64; N]>::try_from(list).map(Some).map_err(|_| anyhow::anyhow!(error()))
    }

    /// Refuses keys that nobody asked for, with the nearest known one.
    pub fn finish(self) -> Result<()> {
        for key in self.given.keys() {
            if !self.known.contains(&key.as_str()) {
                let hint =
                    base::nearest::nearest(key, self.known.iter().copied()).map(|n| format!(", did you mean {n}?")).unwrap_or_default();
                bail!("{}: unknown setting {key}{hint} (known: {})", self.owner, self.known.join(", "));
            }
        }
        Ok(())
    }
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
        assert_eq!(hyper.number(&["weight_decay"], 0.0..=1.0).unwrap(), None);
        let error = hyper.finish().unwrap_err().to_string();
        assert!(error.contains("weight_decai") && error.contains("did you mean weight_decay?"), "{error}");
    }

    #[test]
    fn numbers_out_of_range_of_wrong_type_or_given_twice_are_refused() {
        let given = map(r#"{"eps": -1, "betas": [0.9], "min_lr": 0.1, "eta_min": 0.2, "wd": "1e-4", "text": "many"}"#);
        let mut hyper = Hyper::new("optimizer adamw", &given);
        assert!(hyper.number(&["eps"], 0.0..=1.0).is_err());
        assert!(hyper.numbers::<2>(&["betas"], 0.0..=1.0).is_err());
        assert!(hyper.number(&["min_lr", "eta_min"], 0.0..=1.0).is_err());
        assert!(hyper.number(&["text"], 0.0..=1.0).is_err());
        assert_eq!(hyper.number(&["wd"], 0.0..=1.0).unwrap(), Some(1e-4));
    }
}
