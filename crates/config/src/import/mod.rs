//! `velatura config import`: configs of kohya's sd-scripts as native ones.
//!
//! Source: the facts that sd-scripts' documentation and `--help` state of its options. Each option is in THE list of `flags.rs`: it
//! has a name here, or no effect here with the reason, or it is refused because it would change the result. An unknown one is an
//! error that names the nearest.

mod command_line;
mod dataset_file;
mod flags;
mod kohya;
mod literal;
mod native;
mod pictures;
mod reading;
mod samples;
mod settings;
mod toml_file;

use crate::{LARGEST_FILE, text};
use anyhow::{Context, Result, bail};
use native::Native;
use reading::{Given, Place};
use std::path::{Path, PathBuf};

/// Where settings come from.
pub enum Source {
    /// A settings file, a dataset file, or a script that calls the training; `-` is standard input.
    File(PathBuf),
    /// The words of a command line.
    Words(Vec<String>),
    /// A command line as it would be typed.
    Line(String),
}

/// sd-scripts' options that more than one of our keys, or another value, comes of: what they are foremost.
const FOREMOST: [(&str, &str); 10] = [
    ("network_dim", "network.linear"),
    ("network_alpha", "network.linear_alpha"),
    ("conv_dim", "network.conv"),
    ("max_train_steps", "train.steps"),
    ("max_train_epochs", "train.epochs"),
    ("output_name", "name"),
    ("save_precision", "save.dtype"),
    ("save_every_n_steps", "save.save_every"),
    ("save_every_n_epochs", "save.save_every_epochs"),
    ("train_data_dir", "datasets[].folder_path"),
];

/// Our key for an option of sd-scripts.
pub(crate) fn native_name(option: &str) -> Option<&'static str> {
    let listed = [flags::RUN, flags::PICTURES, flags::NETWORK_ARGS].into_iter().flatten();
    let is = listed.filter(|flag| flag.name == option).find_map(|flag| match flag.meaning {
        flags::Meaning::Is(key) => Some(key),
        _ => None,
    });
    is.or_else(|| FOREMOST.iter().find(|(name, _)| *name == option).map(|(_, key)| *key))
}

/// What came out of it.
#[derive(Debug)]
pub struct Imported {
    /// The config, with a comment for each note.
    pub yaml: String,
    /// Settings without effect here, each with the reason, and those that are read as something else.
    pub notes: Vec<String>,
}

/// Reads settings from all sources together; what they contradict each other in is an error.
pub fn import(sources: &[Source]) -> Result<Imported> {
    let mut given = Given::default();
    let mut place = Place::default();
    for source in sources {
        match source {
            Source::Words(words) => given.command_words(words, &Place::default())?,
            Source::Line(line) => given.source(line, "the command", "", &Place::default())?,
            Source::File(path) => {
                place = Place::of(path);
                let origin = if path == Path::new("-") { "standard input".to_string() } else { path.display().to_string() };
                let content = text::decode(&read(path)?, &origin)?;
                let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
                given.source(&content, &origin, &extension, &place)?;
            }
        }
    }
    let mut native = Native::default();
    let has_run = !(given.run.is_empty() && given.network.is_empty());
    if has_run {
        kohya::import(&mut native, &given.run, &given.network);
        samples::import(&mut native, &given.run, &place);
    }
    if given.run.text("pretrained_model_name_or_path").is_none() {
        native.set("model.name_or_path", "/path/to/model.safetensors");
        native.note("no model is named: fill in model.name_or_path");
    }
    if !has_run {
        native.set("name", "my-lora");
        native.note("there are settings of pictures only: add those of the training, or see velatura config init");
    }
    pictures::import(&mut native, &given.run, &given.pictures, &given.subsets);
    given.errors.append(&mut native.errors);
    refuse(&given.errors)?;
    let (config, notes) = native.finish();
    let yaml = serde_saphyr::to_string(&config).context("the imported config can't be written as YAML")?;
    let (_, findings) = crate::read(&yaml, "the imported config", &[])?;
    // Its lines are nobody's yet.
    let notices = findings.finish().map_err(|wrong| anyhow::anyhow!("the imported config can't be used as it is: {}", wrong.join("; ")))?;
    let notes: Vec<String> = notes.into_iter().chain(notices).collect();
    Ok(Imported { yaml: with_comments(&yaml, &notes), notes })
}

fn read(path: &Path) -> Result<Vec<u8>> {
    if path != Path::new("-") {
        return base::fs::read(path, LARGEST_FILE);
    }
    crate::read_stdin()
}

/// One error for all that can't be taken over.
fn refuse(errors: &[String]) -> Result<()> {
    match errors {
        [] => Ok(()),
        [error] => bail!("{error}"),
        errors => bail!("{} settings can't be taken over: {}", errors.len(), errors.join("; ")),
    }
}

fn with_comments(yaml: &str, notes: &[String]) -> String {
    let mut text = String::from("# Made by `velatura config import`; what it would do: velatura plan FILE\n");
    for note in notes {
        text.push_str(&format!("# {}\n", note.replace(['\n', '\r'], " ")));
    }
    text.push_str(yaml);
    text
}

#[cfg(test)]
mod tests;
