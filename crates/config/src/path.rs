//! Paths as people write them: trimmed, with `~` and `$HOME` at the start expanded. Relative ones stay relative.

use anyhow::{Result, ensure};
use std::path::PathBuf;

/// Reads the path that `key` gives; `key` is only for the error.
pub(crate) fn read(key: &str, text: &str) -> Result<PathBuf> {
    read_text(key, text).map(PathBuf::from)
}

/// Like [`read`], for values that may be something else than a path (a Hugging Face id).
pub(crate) fn read_text(key: &str, text: &str) -> Result<String> {
    let text = text.trim();
    ensure!(!text.is_empty(), "{key} is empty; give a path");
    let home = std::env::var("HOME").or_else(|_| std::env::var("USERPROFILE"));
    for prefix in ["~", "$HOME", "${HOME}"] {
        let Some(rest) = text.strip_prefix(prefix) else { continue };
        if rest.is_empty() || rest.starts_with(['/', '\\']) {
            let home = home.map_err(|_| anyhow::anyhow!("{key}: can't expand {prefix}, because HOME is not set"))?;
            return Ok(format!("{home}{rest}"));
        }
    }
    Ok(text.to_string())
}
