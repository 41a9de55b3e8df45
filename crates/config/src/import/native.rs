//! The config that an import puts together, and what the user has to hear of it.

use super::flags::{Flag, Meaning};
use super::settings::{Settings, shown};
use serde_json::{Map, Value};

/// Sections in the order in which a reader expects them.
const ORDER: [&str; 10] = ["name", "training_folder", "seed", "model", "network", "datasets", "train", "sample", "save", "dataloader"];

#[derive(Default)]
pub(super) struct Native {
    config: Map<String, Value>,
    /// What has no effect here, and why; what is read as something else.
    pub notes: Vec<String>,
    /// What can't be taken over.
    pub errors: Vec<String>,
}

impl Native {
    /// Sets `train.lr` and the like.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        set(&mut self.config, key, value.into());
    }

    pub fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    pub fn error(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.errors.contains(&text) {
            self.errors.push(text);
        }
    }

    /// Everything of a list that needs no thought: what has a name here, no effect here, or can't be done.
    pub fn take(&mut self, flags: &[Flag], settings: &Settings) {
        let mut config = std::mem::take(&mut self.config);
        self.take_into(&mut config, flags, settings);
        self.config = config;
    }

    /// The same, for one dataset: keys lose their `datasets.` in front.
    pub fn take_into(&mut self, target: &mut Map<String, Value>, flags: &[Flag], settings: &Settings) {
        for flag in flags {
            let Some(setting) = settings.get(flag.name) else { continue };
            let (value, origin) = (&setting.value, &setting.origin);
            match flag.meaning {
                Meaning::Own => {}
                Meaning::Is(key) => {
                    let empty = value.as_str().is_some_and(|text| text.trim().is_empty());
                    if !empty {
                        set(target, key.trim_start_matches("datasets."), value.clone());
                    }
                }
                Meaning::Nothing(why) if !flag.is_off(value) => self.note(format!("{origin} has no effect here: {why}")),
                Meaning::Refused(why, _) if !flag.is_off(value) => self.error(format!("{origin} ({}): {why}", shown(value))),
                Meaning::Nothing(_) | Meaning::Refused(..) => {}
            }
        }
    }

    /// The config in a readable order.
    pub fn finish(mut self) -> (Map<String, Value>, Vec<String>) {
        let mut ordered = Map::new();
        for key in ORDER {
            if let Some(value) = self.config.remove(key) {
                ordered.insert(key.to_string(), value);
            }
        }
        ordered.extend(self.config);
        (ordered, self.notes)
    }
}

/// Puts a value under a dotted key, making sections on the way.
fn set(map: &mut Map<String, Value>, key: &str, value: Value) {
    match key.split_once('.') {
        None => drop(map.insert(key.to_string(), value)),
        Some((section, rest)) => {
            let entry = map.entry(section).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(section) = entry {
                set(section, rest, value);
            }
        }
    }
}
