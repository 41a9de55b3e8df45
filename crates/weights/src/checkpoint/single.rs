//! Single-file checkpoints in the original Stable Diffusion layout.

use super::{Checkpoint, Layout, Source, folder};
use crate::family::Family;
use crate::safetensors::File;
use anyhow::{Result, bail};
use std::path::Path;

pub(super) fn open(path: &Path) -> Result<Checkpoint> {
    if path.file_name().is_some_and(|name| name == "model_index.json")
        && let Some(parent) = path.parent()
    {
        return folder::open(parent);
    }
    let file = File::open(path)?;
    let mut checkpoint = Checkpoint::assemble(path, Layout::SingleFile, vec![Source { file, component: None }])?;
    if matches!(checkpoint.family, Family::Unet | Family::Vae | Family::TextEncoder)
        && let Some(model) = path.parent().and_then(Path::parent).filter(|dir| folder::is_diffusers(dir))
    {
        bail!("{} is one component of a diffusers model; give the folder {}", path.display(), model.display());
    }
    let companion = path.with_extension("");
    if companion.is_dir() && folder::is_diffusers(&companion) {
        folder::adopt_configs(&mut checkpoint, &companion)?;
    }
    Ok(checkpoint)
}
