//! `velatura dev …`: tools for developing velatura.

use crate::commands::open;
use crate::output;
use anyhow::Result;
use clap::Subcommand;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Command {
    /// Write a model of a few MB with random weights, in diffusers layout.
    MakeTiny {
        /// `sd15` or `sd21`.
        #[arg(long)]
        arch: String,
        /// Decides the weights.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        folder: PathBuf,
    },
}

pub fn run(command: Command) -> Result<()> {
    match command {
        Command::MakeTiny { arch, seed, folder } => {
            models::tiny::make_tiny(&arch, &folder, seed)?;
            output::print(open::shown(&folder))
        }
    }
}
