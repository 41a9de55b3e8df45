//! From files and words to settings: which flags and keys are given, by whom.

use super::command_line::{Command, Dialect, commands};
use super::flags::{Flag, Kind, NETWORK_ARGS, PICTURES, RUN};
use super::literal;
use super::pictures::Subset;
use super::place::{self, Place};
use super::settings::Settings;
use super::toml_file::Toml;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that is given.
#[derive(Default)]
pub(super) struct Given {
    pub run: Settings,
    pub pictures: Settings,
    pub network: Settings,
    pub dataset: Option<DatasetFile>,
    /// Where files that are named were named, by the name of the setting.
    pub places: BTreeMap<&'static str, Place>,
    /// What is without effect.
    pub notes: Vec<String>,
    /// Everything that is wrong, to be told at once.
    pub errors: Vec<String>,
}

/// A dataset file that was read.
pub(super) struct DatasetFile {
    pub name: String,
    pub place: Place,
    pub subsets: Vec<Subset>,
}

/// What a source is called that is no file.
pub(super) const COMMAND: &str = "the command";

/// Settings that name a file which is read.
const FILES: [&str; 2] = ["dataset_config", "sample_prompts"];

impl Given {
    /// A file or a pasted line: TOML, or commands.
    pub fn source(&mut self, content: &str, origin: &str, extension: &str, place: &Place) -> Result<()> {
        ensure!(!content.trim().is_empty(), "{origin} is empty");
        match extension {
            "yaml" | "yml" => bail!("{origin} is YAML: ai-toolkit's files are taken as they are (velatura plan {origin})"),
            "json" => bail!("{origin} is JSON: let the GUI print its training command (or write its TOML), and import that"),
            "toml" => return self.toml(content, origin, place),
            _ => {}
        }
        if (extension.is_empty() || extension == "txt")
            && let Ok(toml) = Toml::read(content, origin)
        {
            return self.table(&toml, place);
        }
        let all = commands(content, Dialect::of(extension, content)).with_context(|| origin.to_string())?;
        self.training_command(&all, origin, place)
    }

    fn toml(&mut self, content: &str, origin: &str, place: &Place) -> Result<()> {
        self.table(&Toml::read(content, origin)?, place)
    }

    fn table(&mut self, toml: &Toml, place: &Place) -> Result<()> {
        if toml.table.get("datasets").is_some_and(Value::is_array) || toml.table.get("general").is_some_and(Value::is_object) {
            self.dataset_file(toml, place);
            return Ok(());
        }
        let mut here = Given::default();
        for (key, value) in &toml.table {
            // Sections only group the keys.
            match value.as_object() {
                Some(section) => {
                    section.iter().for_each(|(inner, value)| here.put(inner, value, &toml.origin(&format!("{key}.{inner}"), inner)));
                }
                None => here.put(key, value, &toml.origin(key, key)),
            }
        }
        if let Some(setting) = here.run.take("config_file") {
            here.notes.push(format!("{} has no effect here: only a command names a settings file, as in sd-scripts", setting.origin));
        }
        self.join(here, place)
    }

    /// One flag or key of a settings file.
    fn put(&mut self, name: &str, value: &Value, origin: &str) {
        let found = [RUN, PICTURES].into_iter().enumerate().find_map(|(list, flags)| Some((list, lookup(flags, name)?)));
        let Some((list, flag)) = found else {
            return self.errors.push(unknown(name, origin, &[RUN, PICTURES]));
        };
        let settings = if list == 0 { &mut self.run } else { &mut self.pictures };
        self.errors.extend(settings.put(flag, value, origin).err());
    }

    /// Takes over what one source says, and what the settings file says that it names.
    fn join(&mut self, mut here: Given, place: &Place) -> Result<()> {
        here.network_args();
        for name in FILES.into_iter().filter(|name| here.run.get(name).is_some()) {
            here.places.insert(name, place.clone());
        }
        if let Some(file) = here.run.text("config_file").map(str::to_string) {
            here.under(&file, place)?;
        }
        for (mine, theirs) in [(&mut self.run, &here.run), (&mut self.pictures, &here.pictures), (&mut self.network, &here.network)] {
            self.errors.extend(mine.merge(theirs));
        }
        self.found_at(here.places);
        self.notes.append(&mut here.notes);
        self.errors.append(&mut here.errors);
        Ok(())
    }

    /// Puts the settings of `--config_file` under those of the command line, which count before them.
    fn under(&mut self, file: &str, place: &Place) -> Result<()> {
        // sd-scripts adds the extension by itself.
        let named = if file.to_ascii_lowercase().ends_with(".toml") { file.to_string() } else { format!("{file}.toml") };
        let found = place.find(&named).or_else(|error| place.find(file).map_err(|_| error)).context("in --config_file")?;
        let content = place::content(&found)?;
        let mut under = Given::default();
        under.toml(&content, file, &Place::of(&found))?;
        ensure!(under.dataset.is_none(), "--config_file: {file} is a dataset file; give it as --dataset_config");
        (self.run, self.pictures, self.network) =
            (self.run.over(&under.run), self.pictures.over(&under.pictures), self.network.over(&under.network));
        self.found_at(under.places);
        self.notes.append(&mut under.notes);
        self.errors.append(&mut under.errors);
        Ok(())
    }

    /// Reads the dataset file that the settings name.
    pub fn named_dataset(&mut self) -> Result<()> {
        let Some(file) = self.run.text("dataset_config").map(str::to_string) else { return Ok(()) };
        let found = self.place("dataset_config").find(&file).context("in --dataset_config")?;
        let content = place::content(&found)?;
        self.dataset_file(&Toml::read(&content, &file)?, &Place::of(&found));
        Ok(())
    }

    fn found_at(&mut self, places: BTreeMap<&'static str, Place>) {
        for (name, place) in places {
            self.places.entry(name).or_insert(place);
        }
    }

    /// Where a file is looked for that this setting names.
    pub fn place(&self, name: &str) -> Place {
        self.places.get(name).cloned().unwrap_or_default()
    }

    pub fn subsets(&self) -> &[Subset] {
        self.dataset.as_ref().map_or(&[], |dataset| &dataset.subsets)
    }

    fn network_args(&mut self) {
        let args = self.run.texts("network_args");
        let pairs = match literal::pairs(&args) {
            Ok(pairs) => pairs,
            Err(error) => return self.errors.push(format!("--network_args: {error}")),
        };
        for (key, value) in pairs {
            let origin = format!("--network_args {key}");
            match lookup(NETWORK_ARGS, &key) {
                Some(flag) => {
                    let value = if flag.kind == Kind::Switch { literal::literal(&value) } else { Value::from(value) };
                    self.errors.extend(self.network.put(flag, &value, &origin).err());
                }
                None => self.errors.push(unknown(&key, &origin, &[NETWORK_ARGS])),
            }
        }
    }

    /// The one call of `train_network.py` among the commands of a script.
    fn training_command(&mut self, all: &[Command], origin: &str, place: &Place) -> Result<()> {
        let calls: Vec<(&Command, usize)> = all.iter().filter_map(|command| Some((command, flags_start(&command.words)?))).collect();
        match calls.as_slice() {
            [] => bail!("{origin} holds neither settings as TOML nor a call of sd-scripts' train_network.py"),
            [(command, start)] => {
                let script = command.words.get(start.wrapping_sub(1)).map(|word| file_name(word)).unwrap_or_default();
                check_script(&script, origin)?;
                if let Some(name) = command.unknown.first() {
                    bail!(
                        "{origin}:{}: the command uses {name}, whose value only a run of the script would tell; write the value in its place \
                         (of a list, write the flags that it holds in its place)",
                        command.line
                    );
                }
                // Words of the terminal have no lines.
                let at = if origin == COMMAND { origin.to_string() } else { format!("{origin}:{}", command.line) };
                self.words(&command.words[*start..], &at, place)
            }
            [(first, _), (second, _), ..] => {
                bail!("{origin} calls a training script in line {} and again in line {}; import them one by one", first.line, second.line)
            }
        }
    }

    /// The words of a command, from `accelerate launch` or from the first flag on.
    pub fn command_words(&mut self, words: &[String], place: &Place) -> Result<()> {
        let command = Command { line: 1, words: words.to_vec(), unknown: Vec::new() };
        self.training_command(&[command], COMMAND, place)
    }

    fn words(&mut self, words: &[String], origin: &str, place: &Place) -> Result<()> {
        let mut here = Given::default();
        let mut rest = words.iter().map(String::as_str).peekable();
        while let Some(word) = rest.next() {
            let Some(flag) = word.strip_prefix("--") else {
                if !word.is_empty() {
                    here.errors.push(format!("{origin}: `{word}` belongs to no flag"));
                }
                continue;
            };
            let (name, joined) = flag.split_once('=').map_or((flag, None), |(name, value)| (name, Some(value)));
            let known = lookup(RUN, name).or_else(|| lookup(PICTURES, name));
            let value = match (known.map(|flag| flag.kind), joined) {
                (Some(Kind::Switch), None) => Value::Bool(true),
                (Some(Kind::Switch), Some(value)) => {
                    here.errors.push(format!("--{name} takes no value, so `={value}` can't stand behind it"));
                    continue;
                }
                (_, Some(value)) => Value::from(value),
                (Some(Kind::Texts) | None, None) => {
                    let mut values = Vec::new();
                    while let Some(value) = rest.next_if(|word| !word.starts_with("--")) {
                        values.push(Value::from(value));
                    }
                    Value::Array(values)
                }
                (Some(_), None) => match rest.next_if(|word| !word.starts_with("--")) {
                    Some(value) => Value::from(value),
                    None => {
                        here.errors.push(format!("--{name} lacks its value"));
                        continue;
                    }
                },
            };
            here.put(name, &value, &format!("--{name}"));
        }
        self.join(here, place)
    }
}

/// Where the flags of the training script begin: after its name, or at the first flag of a bare list of flags.
fn flags_start(words: &[String]) -> Option<usize> {
    let script = words.iter().position(|word| word.to_ascii_lowercase().ends_with(".py") && !word.starts_with("--"));
    match script {
        Some(at) if is_training_script(&file_name(&words[at])) => Some(at + 1),
        Some(_) => None,
        None => words.first()?.starts_with("--").then_some(0),
    }
}

fn file_name(word: &str) -> String {
    word.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase()
}

fn is_training_script(script: &str) -> bool {
    script.contains("train") || script == "fine_tune.py"
}

fn check_script(script: &str, origin: &str) -> Result<()> {
    match script {
        // A bare list of flags, whatever stands before it.
        "train_network.py" => Ok(()),
        script if !script.ends_with(".py") => Ok(()),
        script if script.ends_with("_train_network.py") => {
            bail!("{origin} calls {script}, which trains another family of models than train_network.py; those are not supported yet")
        }
        script => bail!("{origin} calls {script}; only LoRA training (train_network.py) can be taken over"),
    }
}

pub(super) fn lookup(flags: &'static [Flag], name: &str) -> Option<&'static Flag> {
    flags.iter().find(|flag| flag.name == name)
}

pub(super) fn unknown(name: &str, origin: &str, lists: &[&'static [Flag]]) -> String {
    let names = lists.iter().flat_map(|list| list.iter()).map(|flag| flag.name);
    match base::nearest::nearest(name, names) {
        Some(near) => format!("{origin} is unknown; the nearest is {near}"),
        None => format!("{origin} is unknown"),
    }
}
