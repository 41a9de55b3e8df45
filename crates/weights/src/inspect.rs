//! What is in a model or LoRA file: a summary to print or to serialise, and conversion between LoRA layouts.

mod base_model;
mod lora_file;

pub use base_model::{BaseSummary, ComponentSummary};
pub use lora_file::{LoraSummary, ModuleSummary};

use crate::checkpoint::Checkpoint;
use crate::family::Family;
use crate::lora::{self, Layout, WriteReport};
use anyhow::Result;
use base::DType;
use serde::Serialize;
use std::path::Path;

/// A file's (or model folder's) summary. `Display` is the text for people, `Serialize` the form for programs.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Summary {
    Lora(LoraSummary),
    Base(BaseSummary),
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Summary::Lora(summary) => summary.fmt(f),
            Summary::Base(summary) => summary.fmt(f),
        }
    }
}

/// Summarises a LoRA file, a single-file checkpoint or a model folder; files that can't be trained on are described too.
pub fn inspect(path: &Path) -> Result<Summary> {
    let checkpoint = Checkpoint::open(path)?;
    if checkpoint.family() == Family::Lora {
        return Ok(Summary::Lora(lora_file::summarise(path, lora::open(checkpoint.files()[0].path())?)));
    }
    Ok(Summary::Base(base_model::summarise(&checkpoint)))
}

/// Reads a LoRA of either layout and writes it in `layout`; without a `dtype` the file's own is kept (f32 if it mixes several).
/// The metadata is carried over; going to diffusers multiplies alpha/rank into the up factors.
pub fn convert(input: &Path, output: &Path, layout: Layout, dtype: Option<DType>) -> Result<WriteReport> {
    let opened = lora::open(input)?;
    let own = match opened.dtypes.iter().collect::<Vec<_>>()[..] {
        [only] => *only,
        _ => DType::F32,
    };
    lora::write(output, &opened.lora, layout, dtype.unwrap_or(own))
}

#[cfg(test)]
mod tests;
