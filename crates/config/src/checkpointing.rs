//! `train.gradient_checkpointing`: which segments are computed again instead of being kept.

use crate::scalar::FlagOrTexts;
use anyhow::{Result, bail};
use serde::Serialize;

/// Which segments are computed again in the backward pass instead of being kept.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Checkpointing {
    /// As few as `memory.budget` allows; all if there is no budget.
    #[serde(serialize_with = "auto")]
    Auto,
    All(bool),
    /// Patterns that segment names are matched with; a budget may add others.
    Segments(Vec<String>),
}

fn auto<S: serde::Serializer>(serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str("auto")
}

pub(crate) fn read(given: Option<FlagOrTexts>) -> Result<Checkpointing> {
    match given {
        None => Ok(Checkpointing::Auto),
        Some(FlagOrTexts::Text(text)) if text.trim() == "auto" => Ok(Checkpointing::Auto),
        Some(FlagOrTexts::Text(text)) => {
            bail!("train.gradient_checkpointing: `{text}` is none of auto, true, false and a list of patterns")
        }
        Some(FlagOrTexts::Flag(on)) => Ok(Checkpointing::All(on)),
        Some(FlagOrTexts::Texts(names)) => Ok(Checkpointing::Segments(names)),
    }
}
