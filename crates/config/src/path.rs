//! Paths as people write them: trimmed, with `~` and `$HOME` at the start expanded. Relative ones stay relative. What looks like another
//! variable is refused: nobody means a folder of that name, unless there is one.

use anyhow::{Result, bail, ensure};
use std::path::{Path, PathBuf};

/// Reads the path that `key` gives; `key` is only for the error.
pub(crate) fn read(key: &str, text: &str) -> Result<PathBuf> {
    read_text(key, text).map(PathBuf::from)
}

/// Like [`read`], for values that may be something else than a path (a Hugging Face id).
pub(crate) fn read_text(key: &str, text: &str) -> Result<String> {
    let text = text.trim();
    ensure!(!text.is_empty(), "{key} is empty; give a path");
    if let Some(bad) = text.chars().find(|c| c.is_control()) {
        bail!("{key} holds the control character `{}`; write the path without it", bad.escape_default());
    }
    let home = std::env::var("HOME").or_else(|_| std::env::var("USERPROFILE"));
    for prefix in ["~", "$HOME", "${HOME}"] {
        let Some(rest) = text.strip_prefix(prefix) else { continue };
        if rest.is_empty() || rest.starts_with(['/', '\\']) {
            let home = home.map_err(|_| anyhow::anyhow!("{key}: can't expand {prefix}, because HOME is not set"))?;
            check_variables(key, &home, rest)?;
            return Ok(format!("{home}{rest}"));
        }
    }
    check_variables(key, "", text)?;
    Ok(text.to_string())
}

/// `base` is what stands in front of the text.
fn check_variables(key: &str, base: &str, text: &str) -> Result<()> {
    for (start, _) in text.match_indices(['$', '%', '~']) {
        let Some(shown) = variable(&text[start..]).filter(|_| start == 0 || !text[start..].starts_with('~')) else { continue };
        let end = text[start..].find(['/', '\\']).map_or(text.len(), |length| start + length);
        ensure!(
            Path::new(&format!("{base}{}", &text[..end])).exists(),
            "{key}: {shown} is not expanded (only `~` and `$HOME` in front of a path are); write the path itself"
        );
    }
    Ok(())
}

/// The variable that a text begins with: `$NAME`, `${NAME}`, `%NAME%`, or another user's `~name`.
pub(crate) fn variable(text: &str) -> Option<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word = |from: usize| from + text[from..].find(|c: char| !is_part(c)).unwrap_or(text.len() - from);
    let (from, end) = match text.chars().next()? {
        '$' if text[1..].starts_with('{') => return Some(text.find('}').map_or(text, |end| &text[..=end])),
        '$' | '~' => (1, word(1)),
        '%' => (1, word(1) + usize::from(text[word(1)..].starts_with('%'))),
        _ => return None,
    };
    let name = &text[from..end];
    let is_name = match text.as_bytes()[0] {
        b'%' => name.len() > 2 && name.ends_with('%') && !name.contains(|c: char| c.is_ascii_lowercase()),
        _ => name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_'),
    };
    is_name.then_some(&text[..end])
}
