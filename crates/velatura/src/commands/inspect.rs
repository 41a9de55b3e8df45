//! `velatura inspect FILE`

use crate::output;
use anyhow::Result;
use clap::Args;
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    /// A LoRA, a checkpoint file, or a diffusers folder.
    file: PathBuf,
    /// As JSON, with every module.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let summary = weights::inspect::inspect(&arguments.file)?;
    if arguments.json { output::json(&summary) } else { output::print(summary.to_string().trim_end()) }
}
