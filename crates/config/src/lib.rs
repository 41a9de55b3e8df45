//! The config of a run: one YAML file in the vocabulary of ai-toolkit's process section, written flat.
//!
//! Three stages, one direction. The *raw* form of a section is what the file may say (serde; every key optional, unknown keys
//! refused). *Resolving* checks ranges and conflicts and fills defaults. The *resolved* [`RunConfig`] is a plain struct: written
//! as YAML it is itself a config that loads to the identical value, so a run can keep its own frozen copy.
//!
//! A section's keys, meaning, defaults and checks are in the file of its name. What ai-toolkit knows and velatura has no use for
//! is listed there too, with the reason; a key that neither knows is an error that names the nearest one.

mod checkpointing;
mod error;
mod findings;
mod hints;
mod job;
mod older;
mod overrides;
mod path;
mod places;
mod qtype;
mod rates;
mod reader;
mod refusal;
mod scalar;
mod section;
mod text;
mod text_cache;
mod tree;

pub mod caption;
pub mod dataloader;
pub mod dataset;
pub mod ema;
pub mod grad_scaler;
pub mod import;
pub mod logging;
pub mod loss;
pub mod lr_scheduler;
pub mod mask;
pub mod memory;
pub mod model;
pub mod network;
pub mod noise;
pub mod optimizer;
pub mod param_group;
pub mod run;
pub mod sample;
pub mod save;
pub mod schema;
pub mod starter;
pub mod train;

pub use caption::{CaptionConfig, MissingCaptions};
pub use checkpointing::Checkpointing;
pub use dataloader::DataloaderConfig;
pub use dataset::{BadImages, BucketScheme, DatasetConfig, Resolution};
pub use ema::EmaConfig;
pub use grad_scaler::GradScalerConfig;
pub use logging::LoggingConfig;
pub use loss::{HuberSchedule, LossConfig, LossType};
pub use mask::MaskConfig;
pub use memory::MemoryConfig;
pub use model::{ModelConfig, Prediction};
pub use network::{NetworkConfig, NetworkType};
pub use noise::{ContentOrStyle, NoiseConfig, TimestepType};
pub use optimizer::OnOptimizerChange;
pub use param_group::{GroupRate, ParamGroup};
pub use refusal::Refusal;
pub use run::RunConfig;
pub use sample::{SampleConfig, SamplePrompt, Sampler};
pub use save::{Layout, SaveConfig};
pub use train::{LongCaptions, MOST_STEPS, TrainConfig};

use anyhow::{Context, Result};
use error::Wrong;
use findings::Findings;
use places::Places;
use std::path::Path;

/// A resolved config, and what a user should know about how it was read.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub config: RunConfig,
    /// Keys that were accepted and have no effect here, each with the reason; surprising but legal settings.
    pub notices: Vec<String>,
}

/// Largest config file: far beyond any real one, small enough that a wrong file is refused at once.
const LARGEST_FILE: u64 = 4_000_000;

/// Reads a config from bytes. `origin` names it in errors; `overrides` are `--set` pairs such as `("train.lr", "1e-4")`.
pub fn load(bytes: &[u8], origin: &str, overrides: &[(String, String)]) -> Result<Loaded> {
    let text = text::decode(bytes, origin)?;
    let Read { config, findings, wrong, tree } = read(&text, origin, overrides)?;
    let more = findings.more;
    match (findings.finish(), &wrong[..]) {
        (Ok(notices), []) => Ok(Loaded { config, notices }),
        (judged, wrong) => {
            let places = Places::of(&tree, origin, overrides);
            Err(Refusal::of(wrong, &judged.err().unwrap_or_default(), more, &places).into())
        }
    }
}

/// A config as far as it can be read, and what is wrong with it.
struct Read {
    config: RunConfig,
    /// What was found when values were judged.
    findings: Findings,
    /// What could not be read.
    wrong: Vec<Wrong>,
    /// The document without that.
    tree: tree::Node,
}

fn read(text: &str, origin: &str, overrides: &[(String, String)]) -> Result<Read> {
    let mut findings = Findings::default();
    let mut wrong = Vec::new();
    let job::Opened { mut tree, is_job } = job::open(text, origin, &mut wrong, &mut findings)?;
    overrides::apply(&mut tree, overrides, &mut wrong);
    job::drop_clashes(&mut tree, &mut wrong);
    let mut raw: run::RawRun = reader::read(&mut tree, &mut wrong);
    if is_job {
        job::drop_device(&mut raw, &mut findings);
    }
    let config = run::resolve(raw, &mut findings);
    Ok(Read { config, findings, wrong, tree })
}

/// Reads a config file; `-` is standard input.
pub fn load_file(path: &Path, overrides: &[(String, String)]) -> Result<Loaded> {
    if path == Path::new("-") {
        return load(&read_stdin()?, "standard input", overrides);
    }
    load(&base::fs::read(path, LARGEST_FILE)?, &path.display().to_string(), overrides)
}

/// All of standard input; more than any config is an error, not a part of it.
fn read_stdin() -> Result<Vec<u8>> {
    use std::io::Read;
    let mut bytes = Vec::new();
    std::io::stdin().take(LARGEST_FILE + 1).read_to_end(&mut bytes).context("can't read standard input")?;
    anyhow::ensure!(
        bytes.len() as u64 <= LARGEST_FILE,
        "standard input holds more than {}, the most for a config",
        base::human(LARGEST_FILE)
    );
    Ok(bytes)
}

/// A path as configs may give it, with `~` and `$HOME` at its start expanded; `key` is for the error.
pub fn expand_path(key: &str, text: &str) -> Result<String> {
    path::read_text(key, text)
}

/// Splits a `--set` argument at its first `=`.
pub fn parse_override(argument: &str) -> Result<(String, String)> {
    let (key, value) = argument.split_once('=').with_context(|| format!("--set {argument}: expected KEY=VALUE, such as train.lr=1e-4"))?;
    Ok((key.trim().to_string(), value.trim().to_string()))
}

#[cfg(test)]
mod tests;
