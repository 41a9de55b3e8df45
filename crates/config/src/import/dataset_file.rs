//! sd-scripts' dataset files: `[general]`, `[[datasets]]`, `[[datasets.subsets]]`.

use super::flags::{FILE, PICTURES};
use super::pictures::Subset;
use super::place::Place;
use super::reading::{DatasetFile, Given, lookup, unknown};
use super::settings::Settings;
use super::toml_file::Toml;
use serde_json::{Map, Value};

impl Given {
    /// `[general]`, `[[datasets]]` and `[[datasets.subsets]]`: the inner says what counts.
    pub(super) fn dataset_file(&mut self, toml: &Toml, place: &Place) {
        if let Some(first) = &self.dataset {
            if !first.place.is_file_of(place) {
                self.errors.push(format!(
                    "{} and {} are both dataset files, and a run has one dataset file: give one, or put the [[datasets]] of both into it",
                    first.name, toml.name
                ));
            }
            return;
        }
        let mut read = Vec::new();
        for key in toml.table.keys().filter(|key| !["general", "datasets"].contains(&key.as_str())) {
            self.errors.push(format!("{}; a dataset file has general and datasets", toml.origin(key, &format!("unknown section `{key}`"))));
        }
        let empty = Map::new();
        let general = self.level(toml.table.get("general").and_then(Value::as_object).unwrap_or(&empty), toml, "general");
        for (i, dataset) in toml.table.get("datasets").and_then(Value::as_array).into_iter().flatten().enumerate() {
            let at = format!("datasets[{i}]");
            let Some(mut keys) = dataset.as_object().cloned() else {
                self.errors.push(format!("{} is no table", toml.origin(&at, &at)));
                continue;
            };
            let subsets = keys.remove("subsets");
            let dataset = self.level(&keys, toml, &at).over(&general);
            let Some(subsets) = subsets.as_ref().and_then(Value::as_array).filter(|subsets| !subsets.is_empty()) else {
                self.errors.push(format!("{} has no [[datasets.subsets]]", toml.origin(&at, &at)));
                continue;
            };
            for (k, subset) in subsets.iter().enumerate() {
                let at = format!("{at}.subsets[{k}]");
                let settings = self.level(subset.as_object().unwrap_or(&empty), toml, &at).over(&dataset);
                read.push(Subset { origin: toml.origin(&at, &at), settings });
            }
        }
        self.dataset = Some(DatasetFile { name: toml.name.clone(), place: place.clone(), subsets: read });
    }

    fn level(&mut self, keys: &Map<String, Value>, toml: &Toml, at: &str) -> Settings {
        let mut settings = Settings::default();
        for (key, value) in keys {
            let path = format!("{at}.{key}");
            let origin = toml.origin(&path, &path);
            match lookup(PICTURES, key).or_else(|| lookup(FILE, key)) {
                Some(flag) => self.errors.extend(settings.put(flag, value, &origin).err()),
                None => self.errors.push(unknown(key, &origin, &[PICTURES, FILE])),
            }
        }
        settings
    }
}
