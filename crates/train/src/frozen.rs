//! The run's own copy of what it was told and of what it found: nothing that is edited later changes what a run was, and the copy of
//! the config means the same from any folder.

use crate::folder::RunFolder;
use crate::prepare::Prepared;
use anyhow::{Context, Result};
use config::RunConfig;
use std::path::{Path, PathBuf};

/// Writes `config.yaml` and `data.json`.
pub fn freeze(run: &Prepared, folder: &RunFolder) -> Result<()> {
    base::fs::write_atomic(&folder.path().join("config.yaml"), with_whole_paths(&run.config)?.to_yaml()?.as_bytes())?;
    let list = serde_json::to_vec_pretty(&run.image_rows()).context("a list of pictures is plain JSON")?;
    base::fs::write_atomic(&folder.path().join("data.json"), &list)
}

/// The config with every relative path as it is seen from this folder.
pub fn with_whole_paths(config: &RunConfig) -> Result<RunConfig> {
    let mut config = config.clone();
    let always = [&mut config.training_folder, &mut config.cache_dir];
    let given = [&mut config.dump_pixels, &mut config.network.pretrained_lora_path];
    let datasets = config.datasets.iter_mut().flat_map(|d| std::iter::once(&mut d.folder_path).chain(&mut d.mask.mask_path));
    for path in always.into_iter().chain(given.into_iter().flatten()).chain(datasets) {
        *path = whole(path)?;
    }
    // What is not there is an id of the hub.
    let models = std::iter::once(&mut config.model.name_or_path).chain(&mut config.model.vae_path);
    for path in models.filter(|path| Path::new(path.as_str()).exists()) {
        *path = whole(Path::new(path.as_str()))?.to_string_lossy().into_owned();
    }
    Ok(config)
}

fn whole(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).with_context(|| format!("{} has no absolute path", path.display()))
}
