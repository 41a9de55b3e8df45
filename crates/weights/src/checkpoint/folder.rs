//! Diffusers folders: a folder per component with `config.json` and weights, whole or in shards.

use super::{COMPONENTS, Checkpoint, Layout, Source, single};
use crate::safetensors::File;
use crate::weight_files::{WeightFiles, choose, pickles};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) fn open(path: &Path) -> Result<Checkpoint> {
    if !is_diffusers(path) {
        return open_other_folder(path);
    }
    let mut sources = Vec::new();
    for component in COMPONENTS {
        let dir = path.join(component);
        ensure!(dir.is_dir(), "{} has no {component}/ folder; a whole diffusers model has unet, vae and text_encoder", path.display());
        for name in component_files(&dir)? {
            sources.push(Source { file: File::open(&dir.join(name))?, component: Some(component) });
        }
    }
    let second = path.join("text_encoder_2").is_dir() || path.join("transformer").is_dir();
    let mut checkpoint = Checkpoint::assemble(path, Layout::DiffusersFolder, sources)?;
    if second && checkpoint.family.is_supported() {
        bail!("{} has a second text encoder or a transformer, so it is no SD 1.x or 2.x model", path.display());
    }
    adopt_configs(&mut checkpoint, path)?;
    Ok(checkpoint)
}

/// A folder counts as a diffusers model if it has the index, or a UNet's folder.
pub(super) fn is_diffusers(path: &Path) -> bool {
    path.join("model_index.json").is_file() || path.join("unet").is_dir()
}

/// Reads configs from `folder` into `checkpoint` and remembers it for the tokenizer.
pub(super) fn adopt_configs(checkpoint: &mut Checkpoint, folder: &Path) -> Result<()> {
    for component in COMPONENTS {
        if let Some(value) = read_json(&folder.join(component).join("config.json"))? {
            checkpoint.configs.insert(component.to_owned(), value);
        }
    }
    if let Some(value) = read_json(&folder.join("scheduler").join("scheduler_config.json"))? {
        checkpoint.configs.insert("scheduler".to_owned(), value);
    }
    checkpoint.companion = Some(folder.to_owned());
    Ok(())
}

/// `None` if there is no such file; an error if it can't be read.
fn read_json(path: &Path) -> Result<Option<Value>> {
    if !path.is_file() {
        return Ok(None);
    }
    let text = base::fs::read_text(path)?;
    serde_json::from_str(&text).map(Some).with_context(|| format!("{} is not valid JSON", path.display()))
}

/// Weight files of one component's folder.
fn component_files(dir: &Path) -> Result<Vec<String>> {
    let names = file_names(dir)?;
    match choose(names.iter().map(String::as_str)) {
        Some(WeightFiles::Single(name)) => Ok(vec![name]),
        Some(WeightFiles::Sharded { index, .. }) => shards_of(dir, &index),
        None => {
            let pickles = pickles(names.iter().map(String::as_str));
            if let Some(name) = pickles.first() {
                bail!(
                    "{} holds its weights only as {name}, a PyTorch pickle that is never unpickled here; convert it to safetensors",
                    dir.display()
                );
            }
            bail!("{} holds no diffusion_pytorch_model.safetensors or model.safetensors", dir.display())
        }
    }
}

/// The shards that an index names; the names come from a file, so they must be plain ones.
fn shards_of(dir: &Path, index: &str) -> Result<Vec<String>> {
    let path = dir.join(index);
    let value = read_json(&path)?.with_context(|| format!("{} vanished", path.display()))?;
    let map = value.get("weight_map").and_then(Value::as_object);
    let map = map.with_context(|| format!("{} has no weight_map object", path.display()))?;
    let mut shards = BTreeSet::new();
    for (key, file) in map {
        let name = file.as_str().with_context(|| format!("{}: the entry of {key} is no file name", path.display()))?;
        let plain = !name.is_empty() && !name.contains(['/', '\\', '\0']) && name != ".." && name != "." && !name.contains(':');
        ensure!(plain, "{}: {name:?} is no plain file name", path.display());
        shards.insert(name.to_owned());
    }
    for shard in &shards {
        ensure!(dir.join(shard).is_file(), "{} names the shard {shard}, which is not there", path.display());
    }
    Ok(shards.into_iter().collect())
}

/// Not a diffusers folder: perhaps a folder around one file, or one component of a model.
fn open_other_folder(path: &Path) -> Result<Checkpoint> {
    let names = file_names(path)?;
    if names.iter().any(|n| n == "config.json")
        && let Some(parent) = path.parent().filter(|parent| is_diffusers(parent))
    {
        bail!("{} is one component of a diffusers model; give the folder {}", path.display(), parent.display());
    }
    let checkpoints: Vec<&String> = names.iter().filter(|name| name.ends_with(".safetensors")).collect();
    match checkpoints[..] {
        [name] => single::open(&path.join(name)),
        [] => match pickles(names.iter().map(String::as_str)).first() {
            Some(name) => {
                bail!("{} holds only {name}, a PyTorch pickle that is never unpickled here; convert it to safetensors", path.display())
            }
            None => bail!(
                "{} is neither a diffusers model (no model_index.json, no unet/ folder) nor holds a .safetensors file",
                path.display()
            ),
        },
        [first, second, ..] => bail!(
            "{} holds {} safetensors files ({first}, {second}, …) and is no diffusers folder; give the path of one file",
            path.display(),
            checkpoints.len()
        ),
    }
}

/// Names of the files (not folders) in a folder, sorted; links are followed, as the hub's cache is made of them.
fn file_names(dir: &Path) -> Result<Vec<String>> {
    let context = || format!("can't list the folder {}", dir.display());
    let mut names = BTreeMap::new();
    for entry in std::fs::read_dir(dir).with_context(context)? {
        let entry = entry.with_context(context)?;
        if let Some(name) = entry.file_name().to_str()
            && entry.path().is_file()
            && !name.starts_with('.')
        {
            names.insert(name.to_owned(), ());
        }
    }
    Ok(names.into_keys().collect())
}
