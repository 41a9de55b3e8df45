//! The only doors to the terminal: results to standard output, everything else to standard error.
//!
//! Whoever reads may be gone (a pipe to `head`, a closed window): that must never end a run, so nothing here panics. Texts from outside
//! (names of files, captions, values, metadata) must not steer the terminal: whatever is for people passes without control characters.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Words on standard error, of one line or several; if nobody can read them, they are lost.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", harmless(&text.to_string()));
}

/// The same of one line whatever it holds.
pub fn say_line(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{}", base::visible(&text.to_string()));
}

/// Refuses to replace a file that an option names.
pub fn ensure_new(option: &str, path: &Path) -> Result<()> {
    ensure!(!path.exists(), "{option}: {} exists already and is not overwritten; choose another name", path.display());
    Ok(())
}

/// The result of a command in words, on standard output.
pub fn print(text: impl Display) -> Result<()> {
    data(harmless(&text.to_string()))
}

/// The result of a command as JSON, on standard output.
pub fn json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)?;
    // JSON itself escapes only those below the space.
    let escaped = text.chars().map(|c| if matches!(c, '\u{7F}'..='\u{9F}') { format!("\\u{:04x}", c as u32) } else { c.to_string() });
    data(escaped.collect::<String>())
}

/// A file's content on standard output, as it is. A closed pipe is no error; a full disk is.
pub fn data(text: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("can't write to standard output"),
        _ => Ok(()),
    }
}

/// Each line made visible: the line ends of a text of several lines are its own.
fn harmless(text: &str) -> String {
    text.split('\n').map(base::visible).collect::<Vec<_>>().join("\n")
}
