//! From bytes to text: UTF-8, with or without a byte-order mark; anything else is refused in words.

use anyhow::{Result, bail};

pub(crate) fn decode(bytes: &[u8], origin: &str) -> Result<String> {
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        bail!("{origin} is UTF-16 text; save it as UTF-8");
    }
    let bytes = bytes.strip_prefix(&[0xEF, 0xBB, 0xBF]).unwrap_or(bytes);
    match std::str::from_utf8(bytes) {
        Ok(text) if text.contains('\0') => bail!("{origin} is not a text file (it holds zero bytes)"),
        Ok(text) => Ok(text.to_string()),
        Err(error) => {
            let line = 1 + bytes[..error.valid_up_to()].iter().filter(|b| **b == b'\n').count();
            bail!("{origin}:{line}: this line is not UTF-8 text (another encoding?); save the file as UTF-8")
        }
    }
}
