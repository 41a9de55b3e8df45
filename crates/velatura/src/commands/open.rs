//! What several commands begin with: the config, the model's files, the backend.

use crate::terminal::Terminal;
use anyhow::{Context, Result};
use clap::Args;
use engine::Backend;
use std::path::{Path, PathBuf};
use train::Prepared;

/// A config on the command line.
#[derive(Args)]
pub struct ConfigArguments {
    /// The config file; `-` reads it from standard input.
    pub config: PathBuf,
    /// Overrides a key, such as `--set train.lr=1e-4`. May be given several times.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub set: Vec<String>,
}

impl ConfigArguments {
    pub fn load(&self) -> Result<config::Loaded> {
        load(&self.config, &self.set)
    }
}

/// A config with `--set KEY=VALUE` arguments laid over it.
pub fn load(path: &Path, set: &[String]) -> Result<config::Loaded> {
    let overrides = set.iter().map(|argument| config::parse_override(argument)).collect::<Result<Vec<_>>>()?;
    config::load_file(path, &overrides)
}

/// A limit of memory on the command line.
#[derive(Args)]
pub struct MemoryArguments {
    /// The most memory that the run may take, such as `3GB`: of the blocks that could be computed again in the backward pass as few
    /// are chosen as fit. The same as `--set memory.budget=3GB`.
    #[arg(long, value_name = "SIZE")]
    memory_budget: Option<String>,
}

impl MemoryArguments {
    /// The config with this limit.
    pub fn load(&self, config: &ConfigArguments) -> Result<config::Loaded> {
        let budget = self.memory_budget.iter().map(|size| format!("memory.budget={size}"));
        load(&config.config, &config.set.iter().cloned().chain(budget).collect::<Vec<_>>())
    }
}

/// Everything up to the first step.
pub fn prepare(loaded: config::Loaded, terminal: &mut Terminal) -> Result<Prepared> {
    let model = local("model.name_or_path", &loaded.config.model.name_or_path, terminal)?;
    let vae = loaded.config.model.vae_path.as_deref().map(|name| local("model.vae_path", name, terminal)).transpose()?;
    Prepared::new(loaded, &model, vae.as_deref(), terminal)
}

/// The local files of a model: a path as it is, a Hugging Face id from the cache or the network.
pub fn local(key: &str, name: &str, terminal: &mut Terminal) -> Result<PathBuf> {
    weights::hub::resolve(name, &mut |progress| terminal.download(progress)).with_context(|| format!("in {key}"))
}

pub fn backend() -> Result<Box<dyn Backend>> {
    Ok(Box::new(cpu::Cpu::new()?))
}

/// An absolute path for people to find.
pub fn shown(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}
