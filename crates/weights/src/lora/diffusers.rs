//! The layouts of diffusers and PEFT: dotted module paths, and the spellings that came before them.

use super::names;
use super::read::Factor;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::collections::BTreeMap;

/// What follows the module's path. The rows with `_lora` follow a path whose last part is spelled as in [`OLD_ENDS`].
const SUFFIXES: &[(&str, Factor)] = &[
    (".lora_A.weight", Factor::Down),
    (".lora_B.weight", Factor::Up),
    (".lora_A.default.weight", Factor::Down),
    (".lora_B.default.weight", Factor::Up),
    (".lora.down.weight", Factor::Down),
    (".lora.up.weight", Factor::Up),
    (".lora_linear_layer.down.weight", Factor::Down),
    (".lora_linear_layer.up.weight", Factor::Up),
    ("_lora.down.weight", Factor::Down),
    ("_lora.up.weight", Factor::Up),
    (".alpha", Factor::Alpha),
];

/// Ends of module paths in attention-processor files: theirs | of the UNet | of the text encoder.
const OLD_ENDS: &[(&str, &str, &str)] =
    &[(".to_q", ".to_q", ".q_proj"), (".to_k", ".to_k", ".k_proj"), (".to_v", ".to_v", ".v_proj"), (".to_out", ".to_out.0", ".out_proj")];

/// Module and factor of a key.
pub(super) fn decode(key: &str) -> Option<(String, Factor)> {
    let key = key.strip_prefix("base_model.model.").unwrap_or(key);
    let (suffix, path, factor) = SUFFIXES.iter().find_map(|(suffix, factor)| Some((*suffix, key.strip_suffix(suffix)?, *factor)))?;
    let path = with_component(&path.replace(".processor.", "."))?;
    if suffix.starts_with('_') || path.ends_with(".to_out") {
        let (end, of_unet, of_text) = OLD_ENDS.iter().find(|(end, _, _)| path.ends_with(end))?;
        let start = path.strip_suffix(end)?;
        let end = if path.starts_with("unet.") { of_unet } else { of_text };
        return Some((names::from_dotted(&format!("{start}{end}"))?, factor));
    }
    Some((names::from_dotted(&path)?, factor))
}

/// The component in front; files of one component leave it out.
fn with_component(path: &str) -> Option<String> {
    if path.starts_with("unet.") || path.starts_with("text_encoder.") {
        return Some(path.to_owned());
    }
    let unet = ["down_blocks.", "mid_block.", "up_blocks.", "conv_in", "conv_out", "time_embedding."];
    let component = match path {
        _ if unet.iter().any(|start| path.starts_with(start)) => "unet",
        _ if path.starts_with("text_model.") => "text_encoder",
        _ => return None,
    };
    Some(format!("{component}.{path}"))
}

/// The key of a module's factor; there is none for alpha.
pub(super) fn encode(module: &str, factor: Factor) -> Option<String> {
    let suffix = match factor {
        Factor::Down => "lora_A",
        Factor::Up => "lora_B",
        Factor::Alpha => return None,
    };
    names::is_module(module).then(|| format!("{module}.{suffix}.weight"))
}

/// Where newer diffusers files keep the adapter's configuration, alpha among it: one JSON object for all components.
pub(super) const ADAPTER_CONFIG: &str = "lora_adapter_metadata";

/// Alphas by the adapter configuration in a file's metadata.
#[derive(Default)]
pub(super) struct AdapterConfig(Value);

impl AdapterConfig {
    pub(super) fn read(metadata: &BTreeMap<String, String>) -> Result<AdapterConfig> {
        let Some(text) = metadata.get(ADAPTER_CONFIG) else { return Ok(AdapterConfig::default()) };
        let config = serde_json::from_str(text).with_context(|| format!("its metadata {ADAPTER_CONFIG} is not valid JSON"))?;
        Ok(AdapterConfig(config))
    }

    /// The alpha that the configuration gives `module` (canonical) at `rank`; `None` if it says nothing.
    pub(super) fn alpha(&self, module: &str, rank: usize) -> Result<Option<f32>> {
        let Some((component, path)) = module.split_once('.') else { return Ok(None) };
        let field = |name: &str| self.0.get(format!("{component}.{name}")).or_else(|| self.0.get(name)).filter(|v| !v.is_null());
        let is_set = |name: &str| field(name).and_then(Value::as_bool).unwrap_or(false);
        ensure!(!is_set("use_dora"), "its metadata says that it is a DoRA adapter; this version reads LoRA");
        let Some(alpha) = field("lora_alpha").and_then(Value::as_f64) else { return Ok(None) };
        let mut alpha = alpha;
        for (pattern, value) in field("alpha_pattern").and_then(Value::as_object).into_iter().flatten() {
            if pattern_matches(pattern, path)? {
                alpha = value.as_f64().with_context(|| format!("its metadata gives {pattern} an alpha that is no number"))?;
            }
        }
        // rank-stabilised LoRA scales by alpha/√rank, which is the plain scale of the alpha returned here
        let alpha = if is_set("use_rslora") { alpha * (rank as f64).sqrt() } else { alpha };
        Ok(Some(alpha as f32))
    }
}

/// PEFT's patterns are regular expressions for the end of a module path; those in files are plain paths, perhaps anchored.
fn pattern_matches(pattern: &str, path: &str) -> Result<bool> {
    let plain = pattern.strip_prefix('^').unwrap_or(pattern);
    if !plain.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.') {
        bail!("its metadata has the alpha pattern {pattern:?}, a regular expression; only module paths are understood");
    }
    let short = path.strip_prefix("text_model.").unwrap_or(path);
    let ends = |path: &str| path.strip_suffix(plain).is_some_and(|before| before.is_empty() || before.ends_with('.'));
    Ok(if pattern.starts_with('^') { path == plain || short == plain } else { ends(path) || ends(short) })
}
