//! `velatura config …`: config files made, checked, and taken over from other programs.

use crate::commands::open::{self, ConfigArguments};
use crate::output;
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use config::Prediction;
use config::import::Source;
use config::starter::Starter;
use models::StableDiffusion;
use std::path::{Path, PathBuf};
use weights::hub::{Hub, is_model_id};
use weights::{Checkpoint, Family};

#[derive(Subcommand)]
pub enum Command {
    /// Print the JSON schema of configs, for editors.
    Schema,
    /// Write a first config, with comments, that fits a model.
    Init(Init),
    /// Make a config from those of kohya's sd-scripts: TOML files (settings, datasets), or the command that starts the training.
    Import(Import),
    /// Say whether a config can be read, without opening the model or the pictures.
    Check(ConfigArguments),
}

#[derive(Args)]
pub struct Import {
    /// Settings or dataset TOML, or a script (.sh, .bat, .ps1, .txt) that calls train_network.py; `-` is standard input; or the whole
    /// command in quotes. Several are taken together.
    #[arg(required_unless_present = "command")]
    files: Vec<PathBuf>,
    /// The file to write, which must not exist yet; default: standard output.
    #[arg(long)]
    output: Option<PathBuf>,
    /// Instead of files: the command itself, after `--`.
    #[arg(last = true, conflicts_with = "files")]
    command: Vec<String>,
}

#[derive(Args)]
pub struct Init {
    /// The base model: a file, a diffusers folder, or a Hugging Face id. Only its headers are read.
    #[arg(long)]
    model: Option<String>,
    /// The folder of the pictures.
    #[arg(long)]
    dataset: Option<String>,
    /// The file to write, which must not exist yet; default: standard output.
    #[arg(long)]
    output: Option<PathBuf>,
}

pub fn run(command: Command) -> Result<()> {
    match command {
        Command::Schema => output::json(&config::schema::schema()),
        Command::Init(arguments) => init(&arguments),
        Command::Import(arguments) => import(arguments),
        Command::Check(arguments) => check(&arguments),
    }
}

fn import(arguments: Import) -> Result<()> {
    if let Some(path) = &arguments.output {
        output::ensure_new("--output", path)?;
    }
    let sources: Vec<Source> = match arguments.command.is_empty() {
        true => arguments.files.into_iter().map(source).collect(),
        false => vec![Source::Words(arguments.command)],
    };
    let imported = config::import::import(&sources)?;
    imported.notes.iter().for_each(|note| output::say_line(format_args!("note: {note}")));
    write(imported.yaml.trim_end(), arguments.output.as_deref())
}

/// A file, unless it can only be a command that was given in quotes.
fn source(argument: PathBuf) -> Source {
    match argument.to_str() {
        Some(text) if text.contains(" --") && !argument.exists() => Source::Line(text.to_string()),
        _ => Source::File(argument),
    }
}

fn check(arguments: &ConfigArguments) -> Result<()> {
    let loaded = arguments.load()?;
    loaded.notices.iter().for_each(output::say_line);
    let name = if arguments.config == Path::new("-") { "standard input".into() } else { arguments.config.display().to_string() };
    output::print(format_args!("{name}: a config that can be read"))
}

fn init(arguments: &Init) -> Result<()> {
    if let Some(path) = &arguments.output {
        output::ensure_new("--output", path)?;
    }
    let look = arguments.model.as_deref().map(look).transpose()?.flatten();
    if let Some(folder) = arguments.dataset.as_deref() {
        let folder = config::expand_path("--dataset", folder)?;
        ensure!(Path::new(&folder).exists(), "--dataset: {folder} doesn't exist");
    }
    let known = look.as_ref().is_none_or(|look| look.prediction_is_known);
    let starter = Starter {
        model: arguments.model.as_deref().unwrap_or("/path/to/model.safetensors"),
        family: look.as_ref().map_or("", |look| look.family.describe()),
        prediction: look.as_ref().and_then(|look| look.prediction),
        prediction_is_known: known,
        dataset: arguments.dataset.as_deref().unwrap_or("/path/to/pictures"),
        resolution: look.as_ref().map_or(512, |look| look.resolution),
    };
    if !known {
        output::say("note: the model does not say what it predicts; check model.prediction_type before you train");
    }
    write(starter.to_yaml().trim_end(), arguments.output.as_deref())
}

/// Prints a config, or writes it to a file that doesn't exist yet and says which.
fn write(text: &str, path: Option<&Path>) -> Result<()> {
    let Some(path) = path else { return output::data(text) };
    output::ensure_new("--output", path)?;
    base::fs::write_atomic(path, format!("{text}\n").as_bytes())?;
    output::print(open::shown(path))
}

/// What a model's headers and configs tell a first config.
struct Look {
    family: Family,
    prediction: Option<Prediction>,
    prediction_is_known: bool,
    resolution: u32,
}

/// Opens what is on this machine; a model that would have to be downloaded is not looked at.
fn look(name: &str) -> Result<Option<Look>> {
    let path = config::expand_path("--model", name)?;
    let local = Hub { offline: true, ..Hub::from_env()? }.resolve(&path, &mut |_| ());
    match local {
        Ok(path) => look_at(&path).map(Some),
        Err(_) if is_model_id(&path) => {
            output::say(format_args!("note: {path} is not on this machine, so the config is written without having looked at it"));
            Ok(None)
        }
        Err(error) => Err(error).context("in --model"),
    }
}

fn look_at(path: &Path) -> Result<Look> {
    let checkpoint = Checkpoint::open(path)?;
    let parts = StableDiffusion::of_checkpoint(&checkpoint)?;
    let stated = match checkpoint.prediction_type() {
        Some("v_prediction") => Some(Prediction::VPrediction),
        Some("epsilon") => Some(Prediction::Epsilon),
        Some(_) | None => None,
    };
    let prediction = match (parts.family, stated) {
        (Family::Sd1, Some(Prediction::Epsilon) | None) => None,
        (_, Some(stated)) => Some(stated),
        // Most files without a word are the 768 px model.
        (_, None) => Some(Prediction::VPrediction),
    };
    let usual = if parts.family == Family::Sd2 && prediction == Some(Prediction::VPrediction) { 768 } else { 512 };
    let sample_size = checkpoint.config("unet").and_then(|config| config.get("sample_size")).and_then(serde_json::Value::as_u64);
    let side = sample_size.map(|latents| latents * parts.vae.factor() as u64).filter(|side| (64..=2048).contains(side));
    Ok(Look {
        family: parts.family,
        prediction,
        prediction_is_known: prediction.is_none() || stated.is_some(),
        resolution: side.map_or(usual, |side| side as u32),
    })
}
