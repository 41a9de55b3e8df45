//! The text of a picture, and what is drawn from it anew in each epoch.
//!
//! The text is the whole file beside the picture with the last extension exchanged (`a.b.png` → `a.b.txt`), trimmed. If there is
//! no such file, or nothing in it: the default caption; without one, the trigger word; without that, the empty text.
//!
//! In each epoch, in this order: the caption may be dropped (then only the trigger word is left); its tags, separated by commas,
//! are dropped one by one and shuffled, the first `keep_tokens` of them never; `[trigger]` and `[name]` become the trigger word,
//! and a text that still lacks it gets it in front. Without tag dropout and shuffling a text keeps every letter as it is.

use anyhow::{Context, Result, bail};
use base::Rng;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// Files beyond this are no captions.
const LARGEST_FILE: u64 = 1_000_000;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptionOptions {
    /// Without the dot.
    pub extension: String,
    pub default_caption: Option<String>,
    pub trigger_word: Option<String>,
    pub shuffle_tokens: bool,
    pub keep_tokens: usize,
    pub token_dropout_rate: f64,
    pub caption_dropout_rate: f64,
}

/// Where a caption came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptionSource {
    File,
    /// The file holds no text; the rule for missing captions filled in.
    EmptyFile,
    /// There is no file; the rule for missing captions filled in.
    Missing,
}

/// A caption before anything is drawn, with its placeholders.
#[derive(Clone, Debug, PartialEq)]
pub struct Caption {
    pub text: String,
    pub source: CaptionSource,
}

/// The caption file of a picture.
pub fn path_for(picture: &Path, extension: &str) -> PathBuf {
    picture.with_extension(extension)
}

/// Reads the caption of a picture by the rules above. A file in an unknown encoding is an error that names it.
pub fn read(picture: &Path, options: &CaptionOptions) -> Result<Caption> {
    let path = path_for(picture, &options.extension);
    let (text, source) = match std::fs::symlink_metadata(&path) {
        Err(_) => (String::new(), CaptionSource::Missing),
        Ok(_) => {
            let bytes = base::fs::read(&path, LARGEST_FILE)?;
            let text = decode(&bytes).with_context(|| format!("the caption file {}", path.display()))?;
            let source = if text.is_empty() { CaptionSource::EmptyFile } else { CaptionSource::File };
            (text, source)
        }
    };
    let text = if source == CaptionSource::File { text } else { options.default_caption.clone().unwrap_or_default() };
    Ok(Caption { text, source })
}

/// UTF-8, with or without byte-order mark, or UTF-16 with one; line ends become `\n`, the ends are trimmed.
pub fn decode(bytes: &[u8]) -> Result<String> {
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => utf16(rest, u16::from_le_bytes)?,
        [0xFE, 0xFF, rest @ ..] => utf16(rest, u16::from_be_bytes)?,
        [0xEF, 0xBB, 0xBF, rest @ ..] => utf8(rest)?,
        _ => utf8(bytes)?,
    };
    if text.contains('\0') {
        bail!("is not text (it holds zero bytes)");
    }
    Ok(text.replace("\r\n", "\n").replace('\r', "\n").trim().to_string())
}

fn utf8(bytes: &[u8]) -> Result<String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_string()),
        Err(error) => {
            let at = error.valid_up_to();
            let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
            bail!("is not UTF-8 (byte 0x{:02X} in line {line}); save it as UTF-8", bytes[at])
        }
    }
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String> {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    let whole = bytes.len().is_multiple_of(2);
    String::from_utf16(&units).ok().filter(|_| whole).context("begins like UTF-16 but is not; save it as UTF-8")
}

impl CaptionOptions {
    /// Can the text of one picture differ between epochs, beyond being dropped?
    pub fn is_random(&self) -> bool {
        self.shuffle_tokens || self.token_dropout_rate > 0.0
    }

    /// The caption with nothing drawn: what `plan` shows.
    pub fn whole(&self, caption: &str) -> String {
        self.with_trigger(caption)
    }

    /// What is left of a dropped caption.
    pub fn dropped(&self) -> String {
        self.with_trigger("")
    }

    /// The text of one occurrence of an item in an epoch: a pure function of its arguments.
    pub fn draw(&self, caption: &str, seed: u64, epoch: u64, item: usize, occurrence: u32) -> String {
        let mut rng = Rng::new(seed, "caption", &[epoch, item as u64, u64::from(occurrence)]);
        if happens(&mut rng, self.caption_dropout_rate) {
            return self.dropped();
        }
        if !self.is_random() {
            return self.whole(caption);
        }
        let mut kept: Vec<&str> = caption.split(',').map(str::trim).filter(|tag| !tag.is_empty()).collect();
        let mut drawn = kept.split_off(self.keep_tokens.min(kept.len()));
        drawn.retain(|_| !happens(&mut rng, self.token_dropout_rate));
        if self.shuffle_tokens {
            rng.shuffle(&mut drawn);
        }
        kept.append(&mut drawn);
        self.with_trigger(&kept.join(", "))
    }

    fn with_trigger(&self, text: &str) -> String {
        let trigger = self.trigger_word.as_deref().unwrap_or_default();
        let text = text.replace("[trigger]", trigger).replace("[name]", trigger).trim().to_string();
        if trigger.is_empty() || text.contains(trigger) {
            text
        } else if text.is_empty() {
            trigger.to_string()
        } else {
            format!("{trigger} {text}")
        }
    }
}

/// Draws once whatever the rate, so that changing one rate doesn't shift the draws of another.
fn happens(rng: &mut Rng, rate: f64) -> bool {
    f64::from(rng.uniform()) < rate
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> CaptionOptions {
        CaptionOptions { extension: "txt".into(), ..CaptionOptions::default() }
    }

    #[test]
    fn encodings_with_a_mark_are_decoded_and_others_are_refused() {
        let le: Vec<u8> = [0xFEFF_u16].into_iter().chain("猫 café".encode_utf16()).flat_map(u16::to_le_bytes).collect();
        let be: Vec<u8> = [0xFEFF_u16].into_iter().chain("猫 café".encode_utf16()).flat_map(u16::to_be_bytes).collect();
        assert_eq!((decode(&le).unwrap(), decode(&be).unwrap()), ("猫 café".to_string(), "猫 café".to_string()));
        assert_eq!(decode(b"\xEF\xBB\xBF a\r\n\r\nb \n").unwrap(), "a\n\nb");
        assert!(decode(b"a\ncaf\xE9").unwrap_err().to_string().contains("0xE9 in line 2"));
        assert!(decode(b"\xFF\xFEa").is_err());
    }

    #[test]
    fn only_the_last_extension_is_exchanged_and_the_whole_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.b.txt"), "one\n\ntwo\n\nthree\n").unwrap();
        let caption = read(&dir.path().join("a.b.png"), &options()).unwrap();
        assert_eq!((caption.text.as_str(), caption.source), ("one\n\ntwo\n\nthree", CaptionSource::File));
    }

    #[test]
    fn a_missing_or_empty_caption_becomes_the_default_then_the_trigger_then_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("empty.txt"), " \n").unwrap();
        let with = |default: Option<&str>, trigger: Option<&str>| {
            let options = CaptionOptions { default_caption: default.map(Into::into), trigger_word: trigger.map(Into::into), ..options() };
            let missing = read(&dir.path().join("missing.png"), &options).unwrap();
            let empty = read(&dir.path().join("empty.png"), &options).unwrap();
            assert_eq!((missing.source, empty.source), (CaptionSource::Missing, CaptionSource::EmptyFile));
            assert_eq!(missing.text, empty.text);
            options.whole(&missing.text)
        };
        assert_eq!(with(Some("photo of [trigger]"), Some("sks")), "photo of sks");
        assert_eq!(with(Some("photo"), Some("sks")), "sks photo");
        assert_eq!(with(None, Some("sks")), "sks");
        assert_eq!(with(None, None), "");
        assert_eq!(with(Some("photo of [trigger]"), None), "photo of");
    }

    #[test]
    fn tags_are_drawn_anew_each_epoch_and_the_first_ones_stay() {
        let options = CaptionOptions { shuffle_tokens: true, keep_tokens: 1, token_dropout_rate: 0.3, ..options() };
        let draw = |epoch| options.draw("hc, a, b,c , d", 7, epoch, 3, 0);
        assert_eq!(draw(1), draw(1));
        let texts: std::collections::BTreeSet<String> = (0..200).map(draw).collect();
        assert!(texts.len() > 20, "only {} different texts", texts.len());
        assert!(texts.iter().all(|t| t.starts_with("hc")), "{texts:?}");
        let kept: usize = (0..2000).map(|e| draw(e).matches(", ").count()).sum();
        assert!((kept as f64 / 8000.0 - 0.7).abs() < 0.03, "{kept} of 8000 tags kept");
    }

    #[test]
    fn captions_are_dropped_at_their_rate_and_leave_the_trigger_word() {
        let options = CaptionOptions { caption_dropout_rate: 0.1, trigger_word: Some("sks".into()), ..options() };
        let texts: Vec<String> = (0..4000).map(|item| options.draw("a  cat,dog", 7, 0, item, 0)).collect();
        let dropped = texts.iter().filter(|t| *t == "sks").count();
        assert!((dropped as f64 / 4000.0 - 0.1).abs() < 0.02, "{dropped} of 4000 dropped");
        assert_eq!(texts.iter().find(|t| *t != "sks").unwrap(), "sks a  cat,dog");
    }
}
