//! `velatura cache FOLDER`

use crate::output;
use anyhow::Result;
use clap::Args;
use data::collect::{Stale, collect};
use std::path::PathBuf;

#[derive(Args)]
pub struct Arguments {
    /// A run's cache_dir; by default that is `cache` in its training folder.
    folder: PathBuf,
    /// Removes entries that no run whose folder still exists has used when it last started.
    #[arg(long)]
    collect: bool,
    /// As JSON, on standard output.
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: Arguments) -> Result<()> {
    let inventory = collect(&arguments.folder, if arguments.collect { Stale::Remove } else { Stale::Count })?;
    if arguments.json { output::json(&inventory) } else { output::print(inventory) }
}
