//! From bytes to text: UTF-8, with or without a byte-order mark; anything else is refused in words.

use anyhow::{Result, bail};

pub(crate) fn decode(bytes: &[u8], origin: &str) -> Result<String> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) || is_bare_utf16(bytes) {
        bail!("{origin}:1: this is UTF-16 text; save the file as UTF-8");
    }
    let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) => match text.find('\0') {
            Some(at) => bail!("{origin}:{}: this is not a text file (it holds a zero byte)", line_of(&bytes[..at])),
            None => Ok(text.to_string()),
        },
        Err(error) => {
            let line = line_of(&bytes[..error.valid_up_to()]);
            bail!("{origin}:{line}: this line is not UTF-8 text (another encoding?); save the file as UTF-8")
        }
    }
}

/// The number of the line that follows `before`, from 1.
fn line_of(before: &[u8]) -> usize {
    1 + before.iter().filter(|b| **b == b'\n').count()
}

/// UTF-16 without a byte-order mark: a config begins with Latin letters, so every other byte is zero.
fn is_bare_utf16(bytes: &[u8]) -> bool {
    let pairs = bytes.get(..8).into_iter().flat_map(|start| start.chunks_exact(2));
    let zeros: Vec<[bool; 2]> = pairs.map(|pair| [pair[0] == 0, pair[1] == 0]).collect();
    !zeros.is_empty() && (zeros.iter().all(|z| *z == [true, false]) || zeros.iter().all(|z| *z == [false, true]))
}
