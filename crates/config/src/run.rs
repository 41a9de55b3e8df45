//! The whole config: top-level keys and the sections.

use crate::dataloader::{DataloaderConfig, RawDataloader};
use crate::dataset::{DatasetConfig, RawDataset};
use crate::findings::Findings;
use crate::logging::{LoggingConfig, RawLogging};
use crate::memory::{MemoryConfig, RawMemory};
use crate::model::{ModelConfig, RawModel};
use crate::network::{NetworkConfig, RawNetwork};
use crate::sample::{RawSample, SampleConfig};
use crate::save::{RawSave, SaveConfig};
use crate::scalar::{Flag, Whole};
use crate::section::section;
use crate::train::{RawTrain, TrainConfig};
use crate::{path, train};
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::path::PathBuf;

section! {
    RawRun {
        /// Name of the run: its folder and the stem of its files.
        name: String,
        /// Folder that the run's folder is made in.
        #[serde(alias = "output")]
        training_folder: String,
        /// `auto` or `cpu`.
        device: String,
        /// Seed of everything random.
        #[serde(alias = "training_seed")]
        seed: Whole,
        /// Word that stands for what is learned; replaces `[trigger]` in captions and prompts.
        trigger_word: String,
        /// Folder for cached latents and text embeddings; default: `cache` in the training folder.
        cache_dir: String,
        /// Folder for the exact picture of every item as the VAE gets it, one PNG each; absent: none.
        dump_pixels: String,
        model: RawModel,
        network: RawNetwork,
        datasets: Vec<RawDataset>,
        dataloader: RawDataloader,
        #[serde(alias = "training")]
        train: RawTrain,
        save: RawSave,
        sample: RawSample,
        logging: RawLogging,
        memory: RawMemory,
        /// Of job files: `sd_trainer`, `diffusion_trainer` or `ui_trainer`.
        #[serde(rename = "type")]
        kind: String,
    }
    no effect {
        performance_log_every: Whole => "every step's times are in metrics.jsonl",
        log_dir: String => "metrics.jsonl and TensorBoard's files (logging.tensorboard: true) are in the run's folder",
        sqlite_db_path: String => "there is no job database",
        torch_profiler: Flag => "there is no PyTorch in here",
        is_ui: Flag => "there is no such interface",
    }
    not yet {
        first_sample: "",
        guidance: "",
        embedding: "",
        decorator: "",
        adapter: "",
        slider: "",
    }
}

/// A resolved config: every value present, checked, and in its final unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunConfig {
    pub name: String,
    pub training_folder: PathBuf,
    /// `auto` or `cpu`.
    pub device: String,
    pub seed: u64,
    pub trigger_word: Option<String>,
    pub cache_dir: PathBuf,
    pub dump_pixels: Option<PathBuf>,
    pub model: ModelConfig,
    pub network: NetworkConfig,
    pub datasets: Vec<DatasetConfig>,
    pub dataloader: DataloaderConfig,
    pub train: TrainConfig,
    pub save: SaveConfig,
    pub sample: SampleConfig,
    pub logging: LoggingConfig,
    pub memory: MemoryConfig,
}

impl RunConfig {
    /// Folder of the run: `<training_folder>/<name>`.
    pub fn run_folder(&self) -> PathBuf {
        self.training_folder.join(&self.name)
    }

    /// The config as YAML that [`crate::load`] reads back to the identical value.
    pub fn to_yaml(&self) -> Result<String> {
        serde_saphyr::to_string(self).context("the resolved config can't be written as YAML")
    }

    pub fn to_json(&self) -> Result<serde_json::Value> {
        serde_json::to_value(self).context("the resolved config can't be written as JSON")
    }
}

/// Checks everything that can be checked without touching the machine, and fills defaults.
pub(crate) fn resolve(mut raw: RawRun, findings: &mut Findings) -> RunConfig {
    raw.check_foreign("", findings);
    translate_older(&mut raw, findings);
    findings.check(check_kind(raw.kind.as_deref()));
    let name = raw.name.as_deref().context("name is missing: it names the run's folder and files").and_then(check_name);
    let name = findings.or(name, String::new());
    put_name_into_paths(&mut raw);
    let training_folder = path::read("training_folder", raw.training_folder.as_deref().unwrap_or("output"));
    let training_folder = findings.or(training_folder, PathBuf::new());
    let cache_dir = raw.cache_dir.as_deref().map_or_else(|| Ok(training_folder.join("cache")), |folder| path::read("cache_dir", folder));
    let dump_pixels = text(raw.dump_pixels).map(|folder| path::read("dump_pixels", &folder)).transpose();
    let trigger_word = findings.or(read_trigger("trigger_word", raw.trigger_word), None);
    if raw.model.is_none() {
        findings.wrong("model is missing: give model.name_or_path".to_string());
    }
    let model = raw.model.map(|model| crate::model::resolve(model, findings));
    let network = crate::network::resolve(raw.network.unwrap_or_default(), findings);
    let (dataloader, caches) = crate::dataloader::resolve(raw.dataloader.unwrap_or_default(), findings);
    let datasets: Vec<RawDataset> = raw.datasets.unwrap_or_default().into_iter().map(|d| d.with_caches(caches)).collect();
    if datasets.is_empty() {
        findings.wrong("datasets is missing: give at least one entry with folder_path".to_string());
    }
    let text_cache: Vec<Option<bool>> = datasets.iter().map(|d| d.cache_text_embeddings.map(|f| f.0)).collect();
    let datasets: Vec<DatasetConfig> =
        datasets.into_iter().enumerate().map(|(i, d)| crate::dataset::resolve(d, i, trigger_word.as_deref(), findings)).collect();
    let (mut train, train_wish) = train::resolve(raw.train.unwrap_or_default(), findings);
    if train.loss.diff_output_preservation && datasets.iter().all(|d| d.caption.trigger_word.is_none()) {
        let why = "needs a trigger_word, whose place the class takes";
        findings.wrong(format!("train.diff_output_preservation: true {why}"));
    }
    findings.check(crate::text_cache::resolve(&mut train, train_wish, &text_cache, &datasets));
    RunConfig {
        name,
        cache_dir: findings.or(cache_dir, PathBuf::new()),
        dump_pixels: findings.or(dump_pixels, None),
        device: findings.or(check_device(raw.device.as_deref().unwrap_or("auto")), "auto".to_string()),
        seed: raw.seed.map_or(42, |s| s.0),
        model: model.unwrap_or_else(|| ModelConfig::named(String::new())),
        network,
        datasets,
        dataloader,
        save: crate::save::resolve(raw.save.unwrap_or_default(), findings),
        sample: crate::sample::resolve(raw.sample.unwrap_or_default(), trigger_word.as_deref(), findings),
        logging: crate::logging::resolve(raw.logging.unwrap_or_default(), findings),
        memory: crate::memory::resolve(raw.memory.unwrap_or_default(), findings),
        training_folder,
        trigger_word,
        train,
    }
}

/// Keys of older files that belong to other sections today.
fn translate_older(raw: &mut RawRun, findings: &mut Findings) {
    let eight_bit = [
        ("model", raw.model.as_mut().and_then(|model| model.use_8bit_optimizer.take())),
        ("train", raw.train.as_mut().and_then(|train| train.use_8bit_optimizer.take())),
    ];
    if eight_bit.iter().any(|(_, flag)| flag.is_some()) {
        let train = raw.train.get_or_insert_default();
        let older = crate::older::optimizer(eight_bit, train.optimizer.take(), findings);
        train.optimizer = findings.or(older, None);
    }
    if let Some(workers) = raw.train.as_mut().and_then(|train| train.num_workers.take()) {
        let dataloader = raw.dataloader.get_or_insert_default();
        let older = crate::older::num_workers(workers, dataloader.num_workers, findings);
        dataloader.num_workers = findings.or(older, None);
    }
}

/// `[name]` in a path stands for the run's name, as in ai-toolkit's files.
fn put_name_into_paths(raw: &mut RawRun) {
    let Some(name) = raw.name.as_deref().map(|name| name.trim().to_string()) else { return };
    let top = [&mut raw.training_folder, &mut raw.cache_dir, &mut raw.dump_pixels];
    let model = raw.model.iter_mut().flat_map(|model| [&mut model.name_or_path, &mut model.vae_path]);
    let network = raw.network.iter_mut().map(|network| &mut network.pretrained_lora_path);
    let datasets = raw.datasets.iter_mut().flatten().flat_map(|dataset| [&mut dataset.folder_path, &mut dataset.mask_path]);
    for path in top.into_iter().chain(model).chain(network).chain(datasets).flatten() {
        *path = path.replace("[name]", &name);
    }
}

/// A text that says something, trimmed; empty is the same as absent.
pub(crate) fn text(value: Option<String>) -> Option<String> {
    value.map(|t| t.trim().to_string()).filter(|t| !t.is_empty())
}

/// A trigger word, which may not be what it is put in place of.
pub(crate) fn read_trigger(key: &str, word: Option<String>) -> Result<Option<String>> {
    let word = text(word);
    if let Some(placeholder) = word.as_deref().and_then(base::placeholder::find) {
        bail!("{key}: {placeholder} stands for the trigger word in captions and prompts; write the word itself");
    }
    Ok(word)
}

fn check_kind(kind: Option<&str>) -> Result<()> {
    match kind {
        None | Some("sd_trainer" | "diffusion_trainer" | "ui_trainer") => Ok(()),
        Some(other) => bail!("type: {other} is not a kind of run that velatura does; `sd_trainer` (training a LoRA) is"),
    }
}

/// What every message about a GPU says.
pub(crate) const NO_GPU: &str = "this version has no GPU backend yet and trains on the CPU";

/// Whether a device is one that only GPU backends have, as any of its peers call it.
pub(crate) fn is_gpu(device: &str) -> bool {
    let kind = device.trim().split(':').next().unwrap_or_default().to_ascii_lowercase();
    ["cuda", "gpu", "mps", "metal", "xpu", "rocm", "hip", "vulkan", "dml", "directml"].contains(&kind.as_str())
}

fn check_device(device: &str) -> Result<String> {
    match device.trim() {
        name @ ("auto" | "cpu") => Ok(name.to_string()),
        gpu if is_gpu(gpu) => bail!("device: {gpu} can't be used: {NO_GPU}; write auto or cpu, or remove the key"),
        other => bail!("device: {other} is unknown; write auto or cpu"),
    }
}

/// The name becomes a folder and the stem of files on any system.
pub(crate) fn check_name(name: &str) -> Result<String> {
    const RESERVED: [&str; 4] = ["con", "prn", "aux", "nul"];
    let name = name.trim();
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let port = (stem.starts_with("com") || stem.starts_with("lpt")) && stem.len() == 4 && stem.ends_with(|c: char| c.is_ascii_digit());
    ensure!(!name.is_empty(), "name is empty");
    ensure!(name.len() <= 200, "name is {} bytes long; at most 200 fit into a file name with what is added to it", name.len());
    ensure!(!RESERVED.contains(&stem.as_str()) && !port, "name: `{name}` is a reserved file name on Windows; choose another");
    ensure!(!name.ends_with('.'), "name: `{name}` ends in a dot, which Windows drops from file names");
    ensure!(!name.starts_with('.'), "name: `{name}` starts with a dot, which would hide the run's folder");
    if let Some(bad) = name.chars().find(|c| c.is_control() || "/\\:*?\"<>|".contains(*c)) {
        bail!("name: `{}` can't be used in file names; put folders into training_folder", bad.escape_default());
    }
    let placeholder = base::placeholder::find(name);
    let variable = || name.match_indices('$').find_map(|(start, _)| path::variable(&name[start..]));
    if let Some(shown) = placeholder.or_else(variable) {
        bail!("name: {shown} can't stand in a name, because nothing is put in its place; write the name itself");
    }
    Ok(name.to_string())
}
