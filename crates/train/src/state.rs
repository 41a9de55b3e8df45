//! The checkpoint folder: everything that a resume needs, under `state/<step:09>/`.
//!
//! `state.safetensors` holds the adapters in f32 (`param.<name>`), their moving average if there is one (`ema.<name>`) and the
//! optimizer's arrays, f32 or bytes (`optimizer.<name>.<array>`), with the optimizer's scalars in its metadata; `manifest.json` holds the step, the length of the schedule, and a hash of the tensors.
//! Randomness and data order are pure functions of (seed, step), so nothing of them is stored.
//!
//! A folder is written under a temporary name, synced and renamed; its manifest is written last, so one that has it and not yet its name
//! only lacks the renaming. A folder whose hash is wrong is passed over for the one before.

use crate::contents::Contents;
use crate::course::Course;
use crate::loss_scale::Standing;
use anyhow::{Context, Result, bail, ensure};
use base::{DType, Shape};
use optim::state::Array;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use weights::safetensors::{self, Entry, File};

pub const FORMAT_VERSION: u32 = 1;

/// What a resumed run must know before it reads tensors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub format_version: u32,
    /// Optimizer steps done.
    pub step: u64,
    /// Steps that the run was to have.
    pub total_steps: u64,
    /// The way through the learning-rate schedule; absent: as long as the run.
    #[serde(default)]
    pub course: Option<Course>,
    /// The rate that the run was started with.
    pub lr: f64,
    pub seed: u64,
    /// SHA-256 of `state.safetensors`.
    pub sha256: String,
    /// Identity of what the data order depends on (items, repeats, buckets, batch size).
    pub data: String,
    /// Updates that the moving average holds, if there is one.
    #[serde(default)]
    pub ema_updates: Option<u64>,
    /// Where the scale of the loss stands, in fp16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<Standing>,
    /// Everything else that decides the result, by config key: a resumed run says what has changed.
    pub settings: BTreeMap<String, String>,
    /// What was learned from; a state without it names no change of files.
    #[serde(default)]
    pub contents: Option<Contents>,
}

/// A state in memory.
#[derive(Clone, Debug)]
pub struct State {
    pub manifest: Manifest,
    /// Adapters by name, in memory order.
    pub params: BTreeMap<String, Vec<f32>>,
    /// The moving average: its number of updates, and its values by the adapters' names.
    pub ema: Option<(u64, BTreeMap<String, Vec<f32>>)>,
    pub optimizer: optim::State,
}

/// The folders of saved states, oldest first.
pub fn list(root: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut states: Vec<(u64, PathBuf)> = entries.filter_map(|e| Some((step_of(&e.file_name().to_string_lossy())?, e.path()))).collect();
    states.sort();
    states
}

/// `000000120` → 120; anything else is not one of our folders.
fn step_of(name: &str) -> Option<u64> {
    (name.len() == 9 && name.bytes().all(|b| b.is_ascii_digit())).then(|| name.parse().ok()).flatten()
}

/// Writes a state; returns its folder.
pub fn write(root: &Path, mut state: State) -> Result<PathBuf> {
    base::fs::create_dir(root)?;
    let folder = root.join(format!("{:09}", state.manifest.step));
    let part = root.join(format!(".{:09}.part", state.manifest.step));
    remove(&part)?;
    base::fs::create_dir(&part)?;
    let file = part.join("state.safetensors");
    write_tensors(&file, &state)?;
    state.manifest.sha256 = hash(&file)?;
    base::fs::write_atomic(&part.join("manifest.json"), serde_json::to_string_pretty(&state.manifest)?.as_bytes())?;
    remove(&folder)?;
    base::fs::rename(&part, &folder)?;
    Ok(folder)
}

fn write_tensors(path: &Path, state: &State) -> Result<()> {
    let average = state.ema.as_ref().map(|(_, average)| average);
    let params = state.params.iter().map(|(name, values)| floats(format!("param.{name}"), values));
    let average = average.into_iter().flatten().map(|(name, values)| floats(format!("ema.{name}"), values));
    let tensors = state.optimizer.tensors();
    let arrays = tensors.iter().map(|(name, array)| match array {
        Array::F32(values) => floats(format!("optimizer.{name}"), values),
        Array::U8(values) => entry(format!("optimizer.{name}"), DType::U8, values.len(), values),
    });
    let entries: Vec<Entry> = params.chain(average).chain(arrays).collect();
    safetensors::write(path, &entries, &state.optimizer.metadata())
}

fn floats(name: String, values: &[f32]) -> Entry<'_> {
    entry(name, DType::F32, values.len(), bytemuck::cast_slice(values))
}

fn entry(name: String, dtype: DType, elements: usize, bytes: &[u8]) -> Entry<'_> {
    Entry { name, dtype, shape: Shape::from([elements]), bytes: Cow::Borrowed(bytes) }
}

/// The newest state that is whole, and a line for each newer one that is not.
pub fn newest(root: &Path) -> Result<(Option<State>, Vec<String>)> {
    finish_renaming(root)?;
    let mut damaged = Vec::new();
    for (_, folder) in list(root).into_iter().rev() {
        match read(&folder) {
            Ok(state) => return Ok((Some(state), damaged)),
            Err(error) => damaged.push(format!("{} can't be used: {error:#}", folder.display())),
        }
    }
    ensure!(damaged.is_empty(), "no saved state is whole: {}", damaged.join("; "));
    Ok((None, damaged))
}

/// Gives whole folders the names that a killed process was about to give them.
fn finish_renaming(root: &Path) -> Result<()> {
    for (step, part) in parts(root) {
        let folder = root.join(format!("{step:09}"));
        if part.join("manifest.json").exists() && !folder.exists() {
            base::fs::rename(&part, &folder)?;
        }
    }
    Ok(())
}

/// Folders under their temporary names.
fn parts(root: &Path) -> Vec<(u64, PathBuf)> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    let step = |name: &str| step_of(name.strip_prefix('.')?.strip_suffix(".part")?);
    entries.filter_map(|e| Some((step(&e.file_name().to_string_lossy())?, e.path()))).collect()
}

fn read(folder: &Path) -> Result<State> {
    let text = base::fs::read_text(&folder.join("manifest.json"))?;
    let manifest: Manifest = serde_json::from_str(&text).context("its manifest.json is damaged")?;
    ensure!(
        manifest.format_version == FORMAT_VERSION,
        "it has format version {}, this program reads version {FORMAT_VERSION}",
        manifest.format_version
    );
    let path = folder.join("state.safetensors");
    ensure!(hash(&path)? == manifest.sha256, "its tensors are not those that were written (another hash)");
    let file = File::open(&path)?;
    let mut params = BTreeMap::new();
    let mut average = BTreeMap::new();
    let mut arrays = Vec::new();
    for name in file.names() {
        let tensor = file.tensor(name)?;
        match name.split_once('.') {
            Some(("param", name)) => drop(params.insert(name.to_string(), tensor.to_f32()?)),
            Some(("ema", name)) => drop(average.insert(name.to_string(), tensor.to_f32()?)),
            Some(("optimizer", name)) if tensor.dtype == DType::U8 => arrays.push((name.to_string(), Array::U8(tensor.bytes.to_vec()))),
            Some(("optimizer", name)) => arrays.push((name.to_string(), Array::F32(tensor.to_f32()?))),
            _ => bail!("it holds the tensor {name}, which is no part of a state"),
        }
    }
    let optimizer = optim::State::from_parts(file.metadata(), arrays)?;
    let ema = manifest.ema_updates.map(|updates| (updates, average));
    Ok(State { manifest, params, ema, optimizer })
}

/// Removes the states of all but the newest `keep` steps, and left-over temporary folders.
pub fn prune(root: &Path, keep: usize) -> Result<()> {
    let states = list(root);
    for (_, folder) in &states[..states.len().saturating_sub(keep)] {
        remove(folder)?;
    }
    parts(root).iter().try_for_each(|(_, part)| remove(part))
}

fn remove(folder: &Path) -> Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    std::fs::remove_dir_all(folder).with_context(|| format!("can't remove {}", folder.display()))
}

fn hash(path: &Path) -> Result<String> {
    let mut file = std::fs::File::open(path).with_context(|| format!("can't open {}", path.display()))?;
    let mut hasher = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut block).with_context(|| format!("can't read {}", path.display()))?;
        if n == 0 {
            return Ok(hasher.finalize().iter().map(|b| format!("{b:02x}")).collect());
        }
        hasher.update(&block[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(step: u64) -> State {
        let manifest = Manifest {
            format_version: FORMAT_VERSION,
            step,
            total_steps: 9,
            course: Some(Course::straight(9)),
            lr: 1e-4,
            seed: 3,
            sha256: String::new(),
            data: "d".into(),
            ema_updates: Some(step),
            loss_scale: Some(Standing { scale: 1234.567, good_steps: step }),
            settings: BTreeMap::new(),
            contents: Some(Contents::default()),
        };
        let mut optimizer = optim::State::new("adamw", 1, step);
        optimizer.params.entry("unet.a.lora_up".into()).or_default().insert("m".into(), Array::F32(vec![0.25, step as f32]));
        optimizer.params.entry("unet.a.lora_up".into()).or_default().insert("v".into(), Array::U8(vec![0, 255, 3]));
        let params = BTreeMap::from([("unet.a.lora_up".to_string(), vec![1.5, -0.0])]);
        State { manifest, ema: Some((step, params.clone())), params, optimizer }
    }

    #[test]
    fn a_state_reads_back_as_it_was_and_pruning_keeps_the_newest_by_number() {
        let dir = tempfile::tempdir().unwrap();
        for step in [1, 2, 10] {
            write(dir.path(), state(step)).unwrap();
        }
        let (newest, damaged) = newest(dir.path()).unwrap();
        let newest = newest.unwrap();
        assert!(damaged.is_empty());
        assert_eq!((newest.manifest.step, &newest.params, &newest.optimizer), (10, &state(10).params, &state(10).optimizer));
        assert_eq!((newest.ema, newest.manifest.loss_scale), (state(10).ema, state(10).manifest.loss_scale));
        std::fs::create_dir(dir.path().join(".000000011.part")).unwrap();
        std::fs::create_dir(dir.path().join("mine")).unwrap();
        prune(dir.path(), 2).unwrap();
        let mut left: Vec<String> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        assert_eq!(left, ["000000002", "000000010", "mine"]);
    }

    #[test]
    fn a_state_whose_renaming_was_cut_off_is_found_and_half_a_state_is_not() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), state(4)).unwrap();
        let folder = write(dir.path(), state(5)).unwrap();
        std::fs::rename(folder, dir.path().join(".000000005.part")).unwrap();
        std::fs::create_dir(dir.path().join(".000000006.part")).unwrap();
        std::fs::write(dir.path().join(".000000006.part/state.safetensors"), "half").unwrap();
        let (found, damaged) = newest(dir.path()).unwrap();
        assert_eq!((found.unwrap().manifest.step, damaged.len()), (5, 0));
        assert!(!dir.path().join("000000006").exists());
    }

    #[test]
    fn a_damaged_state_is_passed_over_for_the_one_before_and_none_whole_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), state(4)).unwrap();
        let folder = write(dir.path(), state(5)).unwrap();
        let file = folder.join("state.safetensors");
        let mut bytes = std::fs::read(&file).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let (found, damaged) = newest(dir.path()).unwrap();
        assert_eq!(found.unwrap().manifest.step, 4);
        assert!(damaged.len() == 1 && damaged[0].contains("hash"), "{damaged:?}");
        std::fs::remove_file(dir.path().join("000000004/manifest.json")).unwrap();
        assert!(newest(dir.path()).unwrap_err().to_string().contains("no saved state is whole"));
        assert!(newest(&dir.path().join("nowhere")).unwrap().0.is_none());
    }
}
