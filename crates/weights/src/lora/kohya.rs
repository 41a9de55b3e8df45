//! The layout of kohya's sd-scripts: `<name>.lora_down.weight`, `<name>.lora_up.weight`, `<name>.alpha`, where `<name>` is
//! `lora_unet_` or `lora_te_` and the module's path with `_` for `.`.

use super::names;
use super::read::Factor;

const SUFFIXES: &[(&str, Factor)] = &[(".lora_down.weight", Factor::Down), (".lora_up.weight", Factor::Up), (".alpha", Factor::Alpha)];

/// Whether a key is meant to be of this layout.
pub(super) fn is_key(key: &str) -> bool {
    key.starts_with("lora_unet_") || key.starts_with("lora_te_") || key.starts_with("lora_te1_")
}

/// Module and factor of a key.
pub(super) fn decode(key: &str) -> Option<(String, Factor)> {
    let (name, factor) = SUFFIXES.iter().find_map(|(suffix, factor)| Some((key.strip_suffix(suffix)?, *factor)))?;
    Some((names::from_kohya(name)?, factor))
}

/// The key of a module's factor; `None` for a module that can't be adapted.
pub(super) fn encode(module: &str, factor: Factor) -> Option<String> {
    let (suffix, _) = SUFFIXES.iter().find(|(_, f)| *f == factor)?;
    Some(format!("{}{suffix}", names::to_kohya(module)?))
}
