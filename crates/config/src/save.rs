//! `save:` when and how the LoRA is written.

use crate::findings::Findings;
use crate::model::{dtype, read_dtype};
use crate::scalar::{Flag, Whole};
use crate::section::section;
use anyhow::{Result, bail, ensure};
use base::DType;
use serde::Serialize;

section! {
    RawSave {
        /// Steps between checkpoints; 0: only at the end.
        #[serde(alias = "every")]
        save_every: Whole,
        /// Passes over the data between checkpoints, instead of `save_every`.
        save_every_epochs: Whole,
        /// Type of the numbers in the LoRA file.
        dtype: String,
        /// Number of checkpoints that stay beside the final file.
        #[serde(alias = "keep")]
        max_step_saves_to_keep: Whole,
        /// `kohya` or `diffusers`: the names in the LoRA file.
        layout: String,
        /// `safetensors`; ai-toolkit's `diffusers` says nothing about a LoRA, and `layout` chooses the names.
        save_format: String,
    }
    no effect { hf_repo_id: String => "nothing is uploaded", hf_private: Flag => "nothing is uploaded", }
    not yet { push_to_hub: false, }
}

/// Key names of the LoRA file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Layout {
    Kohya,
    Diffusers,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SaveConfig {
    /// 0: only at the end, or as `save_every_epochs` says.
    pub save_every: u64,
    /// 0: `save_every` counts. A run counts its epochs in steps and puts them there.
    pub save_every_epochs: u64,
    #[serde(serialize_with = "dtype")]
    pub dtype: DType,
    pub max_step_saves_to_keep: usize,
    pub layout: Layout,
}

pub(crate) fn resolve(raw: RawSave, findings: &mut Findings) -> SaveConfig {
    raw.check_foreign("save", findings);
    const ADVICE: &str = "files are safetensors, and save.layout chooses the names in them";
    match raw.save_format.as_deref() {
        None | Some("safetensors") => {}
        Some("diffusers") => findings.notice(format!("save.save_format: diffusers has no effect here: {ADVICE}")),
        Some(format) => findings.wrong(format!("save.save_format: {format} is not supported; {ADVICE}")),
    }
    let every = interval(["save.save_every", "save.save_every_epochs"], [raw.save_every, raw.save_every_epochs], 1000);
    let (save_every, save_every_epochs) = findings.or(every, (1000, 0));
    SaveConfig {
        save_every,
        save_every_epochs,
        dtype: findings.or(raw.dtype.as_deref().map_or(Ok(DType::F16), |d| read_dtype("save.dtype", d)), DType::F16),
        max_step_saves_to_keep: findings.or(kept(raw.max_step_saves_to_keep), 5),
        layout: findings.or(layout(raw.layout.as_deref()), Layout::Kohya),
    }
}

fn kept(number: Option<Whole>) -> Result<usize> {
    let number = number.map_or(5, |n| n.0);
    ensure!(number >= 1, "save.max_step_saves_to_keep: at least 1 checkpoint must stay, or a stopped run can't go on");
    Ok(number as usize)
}

fn layout(name: Option<&str>) -> Result<Layout> {
    match name.unwrap_or("kohya") {
        "kohya" => Ok(Layout::Kohya),
        "diffusers" | "peft" => Ok(Layout::Diffusers),
        other => bail!("save.layout: {other} is unknown; it is kohya or diffusers"),
    }
}

/// Steps or epochs between two happenings, of which at most one counts; 0: never.
pub(crate) fn interval(keys: [&str; 2], [steps, epochs]: [Option<Whole>; 2], default: u64) -> Result<(u64, u64)> {
    let epochs = epochs.map_or(0, |e| e.0);
    match steps.map(|s| s.0) {
        Some(steps) if steps > 0 && epochs > 0 => bail!("{} ({steps}) and {} ({epochs}) are both given; keep one", keys[0], keys[1]),
        Some(steps) => Ok((steps, epochs)),
        None => Ok((if epochs > 0 { 0 } else { default }, epochs)),
    }
}
