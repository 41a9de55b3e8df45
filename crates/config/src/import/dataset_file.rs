//! sd-scripts' dataset files: `[general]`, `[[datasets]]`, `[[datasets.subsets]]`.

use super::flags::{FILE, PICTURES};
use super::pictures::Subset;
use super::reading::{Given, lookup, unknown};
use super::settings::Settings;
use serde_json::{Map, Value};

impl Given {
    /// `[general]`, `[[datasets]]` and `[[datasets.subsets]]`: the inner says what counts.
    pub(super) fn dataset_file(&mut self, table: &Map<String, Value>, origin: &str) {
        for key in table.keys().filter(|key| !["general", "datasets"].contains(&key.as_str())) {
            self.errors.push(format!("{origin}: unknown section `{key}`; a dataset file has general and datasets"));
        }
        let empty = Map::new();
        let general = self.level(table.get("general").and_then(Value::as_object).unwrap_or(&empty), &format!("{origin}: general"));
        for (i, dataset) in table.get("datasets").and_then(Value::as_array).into_iter().flatten().enumerate() {
            let at = format!("{origin}: datasets[{i}]");
            let Some(mut keys) = dataset.as_object().cloned() else {
                self.errors.push(format!("{at} is no table"));
                continue;
            };
            let subsets = keys.remove("subsets");
            let dataset = self.level(&keys, &at).over(&general);
            let Some(subsets) = subsets.as_ref().and_then(Value::as_array).filter(|subsets| !subsets.is_empty()) else {
                self.errors.push(format!("{at} has no [[datasets.subsets]]"));
                continue;
            };
            for (k, subset) in subsets.iter().enumerate() {
                let at = format!("{at}.subsets[{k}]");
                let settings = self.level(subset.as_object().unwrap_or(&empty), &at).over(&dataset);
                self.subsets.push(Subset { origin: at, settings });
            }
        }
    }

    fn level(&mut self, keys: &Map<String, Value>, at: &str) -> Settings {
        let mut settings = Settings::default();
        for (key, value) in keys {
            let origin = format!("{at}.{key}");
            match lookup(PICTURES, key).or_else(|| lookup(FILE, key)) {
                Some(flag) => self.errors.extend(settings.put(flag, value, &origin).err()),
                None => self.errors.push(unknown(key, &origin, &[PICTURES, FILE])),
            }
        }
        settings
    }
}
