//! LoRA files: low-rank factors per module, in kohya or diffusers layout.
//!
//! ΔW = (alpha/rank) · up · down, with down [rank, in] and up [out, rank]; for convolutions down is [rank, in, kh, kw] and up
//! [out, rank, 1, 1], as in files. Both layouts are read; an absent alpha means alpha = rank. A key that can't be placed is an
//! error that names it: nothing of a file is dropped.

mod check;
mod diffusers;
mod factors;
mod kohya;
mod names;
mod read;
mod write;

pub use check::check;
pub use names::{ModuleShape, modules_of};
pub use read::{Opened, open, read};
pub use write::{WriteReport, write};

use anyhow::{Result, ensure};
use base::Shape;
use std::collections::BTreeMap;

/// How a file names its modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// `lora_unet_down_blocks_0_….lora_down.weight`, `.lora_up.weight`, `.alpha`: loads nearly everywhere.
    Kohya,
    /// `unet.down_blocks.0.….lora_A.weight`, `.lora_B.weight`: diffusers and PEFT. There is no place for alpha in it
    /// (diffusers refuses files with `.alpha` keys), so alpha/rank is multiplied into the up factor.
    Diffusers,
}

impl Layout {
    pub fn parse(name: &str) -> Option<Layout> {
        match name {
            "kohya" => Some(Layout::Kohya),
            "diffusers" | "peft" => Some(Layout::Diffusers),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Layout::Kohya => "kohya",
            Layout::Diffusers => "diffusers",
        }
    }
}

/// The factors of one adapted module.
#[derive(Clone, Debug, PartialEq)]
pub struct LoraModule {
    /// Canonical name: `unet.mid_block.attentions.0.proj_in`.
    pub module: String,
    /// [rank, in] or [rank, in, kh, kw].
    pub down: Vec<f32>,
    pub down_shape: Shape,
    /// [out, rank] or [out, rank, 1, 1].
    pub up: Vec<f32>,
    pub up_shape: Shape,
    pub alpha: f32,
}

impl LoraModule {
    pub fn rank(&self) -> usize {
        self.down_shape.batch()
    }

    /// alpha / rank.
    pub fn scale(&self) -> f32 {
        self.alpha / self.rank() as f32
    }
}

/// A LoRA: its modules sorted by name, and the file's metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoraFile {
    pub modules: Vec<LoraModule>,
    pub metadata: BTreeMap<String, String>,
}

impl LoraFile {
    /// An error that names the first module with a value that is not finite.
    pub fn ensure_finite(&self) -> Result<()> {
        for module in &self.modules {
            for (what, values) in [("lora_down", &module.down), ("lora_up", &module.up), ("alpha", &vec![module.alpha])] {
                let bad = values.iter().filter(|value| !value.is_finite()).count();
                ensure!(bad == 0, "{what} of {} has {bad} values that are not finite (NaN or infinite)", module.module);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
