//! The only doors to the terminal: results to standard output, everything else to standard error.
//!
//! Whoever reads may be gone (a pipe to `head`, a closed window): that must never end a run, so nothing here panics.

use anyhow::{Context, Result, ensure};
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// A line on standard error; if nobody can read it, it is lost.
pub fn say(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Refuses to replace a file that an option names.
pub fn ensure_new(option: &str, path: &Path) -> Result<()> {
    ensure!(!path.exists(), "{option}: {} exists already and is not overwritten; choose another name", path.display());
    Ok(())
}

/// A line on standard output: the result of a command. A closed pipe is no error; a full disk is.
pub fn print(text: impl Display) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("can't write to standard output"),
        _ => Ok(()),
    }
}
