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
mod place;
mod reading;
mod samples;
mod settings;
mod toml_file;

use crate::{LARGEST_FILE, text};
use anyhow::{Context, Result, bail};
use native::Native;
use place::Place;
use reading::Given;
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
const FOREMOST: [(&str, &str); 34] = [
    ("network_dim", "network.linear"),
    ("network_alpha", "network.linear_alpha"),
    ("algo", "network.type"),
    ("network_module", "network.type"),
    ("conv_dim", "network.conv"),
    ("conv_alpha", "network.conv_alpha"),
    ("max_train_steps", "train.steps"),
    ("max_train_epochs", "train.epochs"),
    ("max_token_length", "train.max_token_length"),
    ("max_timestep", "train.max_timestep"),
    ("gradient_checkpointing", "train.gradient_checkpointing"),
    ("seed", "seed"),
    ("train_batch_size", "train.batch_size"),
    ("batch_size", "train.batch_size"),
    ("learning_rate", "train.lr"),
    ("unet_lr", "train.unet_lr"),
    ("text_encoder_lr", "train.text_encoder_lr"),
    ("optimizer_type", "train.optimizer"),
    ("optimizer_args", "train.optimizer_params"),
    ("lr_scheduler", "train.lr_scheduler"),
    ("lr_warmup_steps", "train.lr_warmup_steps"),
    ("lr_scheduler_args", "train.lr_scheduler_params"),
    ("prior_loss_weight", "train.reg_weight"),
    ("output_name", "name"),
    ("save_precision", "save.dtype"),
    ("save_every_n_steps", "save.save_every"),
    ("save_every_n_epochs", "save.save_every_epochs"),
    ("train_data_dir", "datasets.folder_path"),
    ("num_repeats", "datasets.num_repeats"),
    ("dataset_repeats", "datasets.num_repeats"),
    ("resolution", "datasets.resolution"),
    ("bucket_reso_steps", "datasets.bucket_step"),
    ("min_bucket_reso", "datasets.min_bucket"),
    ("max_bucket_reso", "datasets.max_bucket"),
];

/// Our key for an option of sd-scripts; those of pictures begin with `datasets.`.
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
    for source in sources {
        match source {
            Source::Words(words) => given.command_words(words, &Place::default())?,
            Source::Line(line) => given.source(line, reading::COMMAND, "", &Place::default())?,
            Source::File(path) => {
                let origin = if path == Path::new("-") { "standard input".to_string() } else { path.display().to_string() };
                let content = text::decode(&read(path)?, &origin)?;
                let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase()).unwrap_or_default();
                given.source(&content, &origin, &extension, &Place::of(path))?;
            }
        }
    }
    given.named_dataset()?;
    let mut native = Native::default();
    native.notes.append(&mut given.notes);
    let has_run = !(given.run.is_empty() && given.network.is_empty());
    if has_run {
        kohya::import(&mut native, &given.run, &given.network);
        samples::import(&mut native, &given.run, &given.place("sample_prompts"));
    }
    if given.run.text("pretrained_model_name_or_path").is_none() {
        native.set("model.name_or_path", "/path/to/model.safetensors");
        native.note("no model is named: fill in model.name_or_path");
    }
    if !has_run {
        native.set("name", "my-lora");
        native.note("there are settings of pictures only: add those of the training, or see velatura config init");
    }
    pictures::import(&mut native, &given.run, &given.pictures, given.subsets());
    given.errors.append(&mut native.errors);
    refuse(&given.errors)?;
    let (config, notes) = native.finish();
    let yaml = serde_saphyr::to_string(&config).context("the imported config can't be written as YAML")?;
    let crate::Read { findings, wrong, .. } = crate::read(&yaml, "the imported config", &[])?;
    // Its lines are nobody's yet: what is wrong is told with the setting that it comes of.
    let wrong: Vec<String> = wrong.iter().map(crate::error::Wrong::text).collect();
    let judged = if wrong.is_empty() { findings.finish() } else { Err(wrong) };
    let notices = judged.map_err(|wrong| {
        let told: Vec<String> = wrong.into_iter().map(|error| with_origin(error, &given)).collect();
        anyhow::anyhow!("the imported config can't be used as it is: {}", told.join("; "))
    })?;
    let notes: Vec<String> = notes.into_iter().chain(notices).collect();
    Ok(Imported { yaml: with_comments(&yaml, &notes), notes })
}

/// An error about a key of ours, with who said it in front, in sd-scripts' words.
fn with_origin(error: String, given: &Given) -> String {
    match crate::places::keys_in(&error).into_iter().find_map(|key| origin(key, given)) {
        Some(origin) => format!("{origin}: {error}"),
        None => error,
    }
}

/// Who said what one of our keys comes of.
fn origin(key: &str, given: &Given) -> Option<String> {
    let (dataset, key) = match key.strip_prefix("datasets[").and_then(|rest| rest.split_once("].")) {
        Some((index, key)) => (index.parse::<usize>().ok(), format!("datasets.{key}")),
        None => (None, key.to_string()),
    };
    let listed = [flags::RUN, flags::PICTURES, flags::FILE, flags::NETWORK_ARGS].into_iter().flatten();
    let same = listed.filter(|flag| matches!(flag.meaning, flags::Meaning::Is(ours) if ours == key)).map(|flag| flag.name);
    let names = FOREMOST.iter().filter(|(_, ours)| *ours == key).map(|(name, _)| *name).chain(same);
    let subset = dataset.and_then(|index| given.subsets().get(index)).or(given.subsets().first()).map(|subset| &subset.settings);
    let all = [subset, Some(&given.run), Some(&given.network), Some(&given.pictures)];
    let found = names.into_iter().find_map(|name| all.iter().flatten().find_map(|settings| settings.get(name)));
    found.map(|setting| setting.origin.clone())
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
