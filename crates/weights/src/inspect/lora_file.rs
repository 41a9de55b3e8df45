//! Summary of a LoRA file.

use crate::family::Family;
use crate::lora::{Layout, LoraModule, Opened};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Serialize)]
pub struct LoraSummary {
    pub path: PathBuf,
    pub layout: Layout,
    /// Of the base model, by the metadata or else by the width of the text that attention reads.
    pub family: Option<Family>,
    /// Rank → number of modules.
    pub ranks: BTreeMap<usize, usize>,
    /// Alpha (as text) → number of modules.
    pub alphas: BTreeMap<String, usize>,
    /// Component → kind of module → number.
    pub modules_by_kind: BTreeMap<String, BTreeMap<&'static str, usize>>,
    pub dtypes: Vec<&'static str>,
    pub parameters: usize,
    /// Share of factor values that are 0 (an untrained up factor is all zeros).
    pub zero_share: f64,
    pub not_finite: usize,
    /// Frobenius norm over all modules of ΔW = (alpha/rank)·up·down.
    pub delta_norm: f64,
    pub modules: Vec<ModuleSummary>,
    pub metadata: BTreeMap<String, String>,
}

/// Frobenius norms of one module's factors and of its ΔW.
#[derive(Clone, Debug, Serialize)]
pub struct ModuleSummary {
    pub module: String,
    pub rank: usize,
    pub alpha: f32,
    pub down_norm: f64,
    pub up_norm: f64,
    pub delta_norm: f64,
}

pub(super) fn summarise(path: &Path, opened: Opened) -> LoraSummary {
    let lora = opened.lora;
    let mut summary = LoraSummary {
        path: path.to_owned(),
        layout: opened.layout,
        family: family_of(&lora.metadata, &lora.modules),
        ranks: BTreeMap::new(),
        alphas: BTreeMap::new(),
        modules_by_kind: BTreeMap::new(),
        dtypes: opened.dtypes.iter().map(|dtype| dtype.name()).collect(),
        parameters: 0,
        zero_share: 0.0,
        not_finite: 0,
        delta_norm: 0.0,
        modules: lora.modules.iter().map(summarise_module).collect(),
        metadata: lora.metadata,
    };
    let mut zeros = 0;
    for module in &lora.modules {
        *summary.ranks.entry(module.rank()).or_default() += 1;
        *summary.alphas.entry(module.alpha.to_string()).or_default() += 1;
        let component = module.module.split('.').next().unwrap_or_default().to_owned();
        *summary.modules_by_kind.entry(component).or_default().entry(kind_of(module)).or_default() += 1;
        let values = || module.down.iter().chain(&module.up);
        summary.parameters += values().count();
        zeros += values().filter(|value| **value == 0.0).count();
        summary.not_finite += values().filter(|value| !value.is_finite()).count();
    }
    summary.zero_share = zeros as f64 / summary.parameters.max(1) as f64;
    summary.delta_norm = summary.modules.iter().map(|module| module.delta_norm.powi(2)).sum::<f64>().sqrt();
    summary
}

fn summarise_module(module: &LoraModule) -> ModuleSummary {
    let norm = |values: &[f32]| values.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt();
    ModuleSummary {
        module: module.module.clone(),
        rank: module.rank(),
        alpha: module.alpha,
        down_norm: norm(&module.down),
        up_norm: norm(&module.up),
        delta_norm: module.delta_norm(),
    }
}

fn kind_of(module: &LoraModule) -> &'static str {
    let name = &module.module;
    let has = |part: &str| name.contains(part);
    match () {
        () if has(".attn1.") || has(".attn2.") || has(".self_attn.") => "attention",
        () if has(".ff.") || has(".mlp.") => "feed-forward",
        () if has(".proj_in") || has(".proj_out") => "projection",
        () if has("time_") => "time embedding",
        () => "convolution",
    }
}

/// By what the metadata says, else by the columns of cross-attention's keys: 768 in SD 1, 1024 in SD 2.
fn family_of(metadata: &BTreeMap<String, String>, modules: &[LoraModule]) -> Option<Family> {
    match metadata.get("ss_base_model_version").map(String::as_str) {
        Some(version) if version.starts_with("sd_v1") => return Some(Family::Sd1),
        Some(version) if version.starts_with("sd_v2") => return Some(Family::Sd2),
        Some(version) if version.starts_with("sdxl") => return Some(Family::Sdxl),
        _ => {}
    }
    let width = modules.iter().find(|module| module.module.ends_with("attn2.to_k")).map(|module| module.down_shape.channels());
    match width {
        Some(768) => Some(Family::Sd1),
        Some(1024) => Some(Family::Sd2),
        _ => None,
    }
}

/// Longest metadata value that is printed whole.
const METADATA_WIDTH: usize = 100;

impl fmt::Display for LoraSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Some(Family::Sd1) => "SD 1.x",
            Some(Family::Sd2) => "SD 2.x",
            Some(Family::Sdxl) => "SDXL",
            _ => "a base model that it doesn't name",
        };
        writeln!(f, "{}: a LoRA for {family}, {} layout, {}", self.path.display(), self.layout.name(), self.dtypes.join(" and "))?;
        writeln!(f, "  rank         {}", counts(&self.ranks))?;
        writeln!(f, "  alpha        {}", counts(&self.alphas))?;
        writeln!(f, "  parameters   {}", self.parameters)?;
        for (component, kinds) in &self.modules_by_kind {
            let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            writeln!(f, "  {component:<12} {}", kinds.join(", "))?;
        }
        writeln!(f, "  zeros        {:.2} %", 100.0 * self.zero_share)?;
        if self.not_finite > 0 {
            writeln!(f, "  DAMAGED      {} values are not finite", self.not_finite)?;
        }
        writeln!(f, "  ‖ΔW‖         {:.4}", self.delta_norm)?;
        writeln!(f, "  {:<76} {:>4} {:>6} {:>9} {:>9} {:>9}", "module", "rank", "alpha", "‖down‖", "‖up‖", "‖ΔW‖")?;
        for m in &self.modules {
            writeln!(f, "  {:<76} {:>4} {:>6} {:>9.4} {:>9.4} {:>9.4}", m.module, m.rank, m.alpha, m.down_norm, m.up_norm, m.delta_norm)?;
        }
        write_metadata(f, &self.metadata)
    }
}

/// `16` if all modules share a value, else `16 (×96), 4 (×12)`.
fn counts<K: fmt::Display>(counts: &BTreeMap<K, usize>) -> String {
    match counts.len() {
        1 => counts.keys().map(K::to_string).collect(),
        _ => counts.iter().map(|(value, count)| format!("{value} (×{count})")).collect::<Vec<_>>().join(", "),
    }
}

pub(super) fn write_metadata(f: &mut fmt::Formatter<'_>, metadata: &BTreeMap<String, String>) -> fmt::Result {
    if metadata.is_empty() {
        return writeln!(f, "  no metadata");
    }
    writeln!(f, "  metadata")?;
    for (key, value) in metadata {
        let flat: String = value.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        let short: String = flat.chars().take(METADATA_WIDTH).collect();
        let rest = if short.len() < flat.len() { format!("… ({} characters)", flat.chars().count()) } else { String::new() };
        writeln!(f, "    {key} = {short}{rest}")?;
    }
    Ok(())
}
