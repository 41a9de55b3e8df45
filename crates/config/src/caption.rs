//! The keys of a dataset that make captions: where they come from, and what is drawn from them in each epoch.

use crate::dataset::{RawDataset, rate};
use crate::findings::Findings;
use crate::run;
use crate::scalar::Texts;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

/// What a picture without a caption does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingCaptions {
    /// The default caption, else the trigger word, else the empty text fills in.
    Fill,
    Skip,
    Stop,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaptionConfig {
    /// Without the dot; the first file that exists counts.
    pub caption_ext: Vec<String>,
    /// Of files that are neither UTF-8 nor UTF-16; `None`: guessed.
    pub caption_encoding: Option<String>,
    /// Column of metadata lists; `None`: the usual names.
    pub caption_column: Option<String>,
    pub missing_captions: MissingCaptions,
    /// Whether folder names such as `10_name` mean repeats and captions; `None`: if every picture lies in such a folder.
    pub kohya_folders: Option<bool>,
    pub trigger_word: Option<String>,
    pub default_caption: Option<String>,
    pub caption_dropout_rate: f64,
    pub shuffle_tokens: bool,
    pub keep_tokens: usize,
    pub keep_tokens_separator: Option<String>,
    pub caption_separator: String,
    pub token_dropout_rate: f64,
    pub enable_wildcard: bool,
    pub caption_prefix: String,
    pub caption_suffix: String,
    /// `from|to`, or `from|one|other`, of which one is drawn.
    pub replacements: Vec<String>,
    pub random_triggers: Vec<String>,
    pub random_triggers_max: usize,
}

impl CaptionConfig {
    /// The key that makes a picture's text differ from epoch to epoch, with its value. Being dropped doesn't count.
    pub fn random_key(&self) -> Option<String> {
        let drawn = self.replacements.iter().any(|r| r.matches('|').count() > 1);
        let rows = [
            (self.shuffle_tokens, "shuffle_tokens: true".to_string()),
            (self.token_dropout_rate > 0.0, format!("token_dropout_rate: {}", self.token_dropout_rate)),
            (self.enable_wildcard, "enable_wildcard: true".to_string()),
            (drawn, "replacements (with several choices)".to_string()),
            (!self.random_triggers.is_empty() && self.random_triggers_max > 0, "random_triggers".to_string()),
        ];
        rows.into_iter().find(|(random, _)| *random).map(|(_, key)| key)
    }
}

/// `section` names the dataset, `trigger` is the run's trigger word.
pub(crate) fn resolve(raw: &RawDataset, section: &str, trigger: Option<&str>, findings: &mut Findings) -> CaptionConfig {
    let key = |name: &str| format!("{section}.{name}");
    let flag = |flag: Option<crate::scalar::Flag>| flag.is_some_and(|f| f.0);
    let texts = |texts: &Option<Texts>| texts.as_ref().map(|t| t.0.clone()).unwrap_or_default();
    let replacements = texts(&raw.replacements);
    replacements.iter().for_each(|pair| findings.check(check_replacement(&key("replacements"), pair)));
    let separator = raw.caption_separator.clone().unwrap_or_else(|| ",".to_string());
    if separator.trim().is_empty() {
        findings.wrong(format!("{}: tags can't be told apart by nothing", key("caption_separator")));
    }
    CaptionConfig {
        caption_ext: findings.or(extensions(&key("caption_ext"), raw.caption_ext.clone()), Vec::new()),
        caption_encoding: findings.or(encoding(&key("caption_encoding"), raw.caption_encoding.as_deref()), None),
        caption_column: run::text(raw.caption_column.clone()),
        missing_captions: findings
            .or(missing(&key("missing_captions"), raw.missing_captions.as_deref().unwrap_or("fill")), MissingCaptions::Fill),
        kohya_folders: raw.kohya_folders.map(|f| f.0),
        trigger_word: findings.or(run::read_trigger(&key("trigger_word"), raw.trigger_word.clone()), None).or(trigger.map(str::to_string)),
        default_caption: run::text(raw.default_caption.clone().map(|t| t.0)),
        caption_dropout_rate: findings.or(rate(&key("caption_dropout_rate"), raw.caption_dropout_rate), 0.0),
        shuffle_tokens: flag(raw.shuffle_tokens),
        keep_tokens: raw.keep_tokens.map_or(0, |n| n.0) as usize,
        keep_tokens_separator: run::text(raw.keep_tokens_separator.clone()),
        caption_separator: separator,
        token_dropout_rate: findings.or(rate(&key("token_dropout_rate"), raw.token_dropout_rate), 0.0),
        enable_wildcard: flag(raw.enable_wildcard),
        caption_prefix: raw.caption_prefix.clone().unwrap_or_default(),
        caption_suffix: raw.caption_suffix.clone().unwrap_or_default(),
        replacements,
        random_triggers: texts(&raw.random_triggers),
        random_triggers_max: raw.random_triggers_max.map_or(1, |n| n.0.min(100)) as usize,
    }
}

fn extensions(key: &str, given: Option<Texts>) -> Result<Vec<String>> {
    let given = given.map_or_else(|| vec!["txt".to_string()], |texts| texts.0);
    ensure!(!given.is_empty(), "{key} is an empty list");
    given.iter().map(|ext| extension(key, ext)).collect()
}

/// The name that resolved configs use.
fn encoding(key: &str, name: Option<&str>) -> Result<Option<String>> {
    let name = name.map(str::trim).filter(|name| !name.is_empty() && !name.eq_ignore_ascii_case("auto"));
    let known = |name| {
        base::code_page::named(name).with_context(|| {
            format!("{key}: {name} is no encoding that is known here; it is auto, or gbk, big5, shift_jis, euc-jp, euc-kr, windows-1251 or the like")
        })
    };
    Ok(name.map(known).transpose()?.map(|page| page.name().to_ascii_lowercase()))
}

fn extension(key: &str, ext: &str) -> Result<String> {
    let ext = ext.trim().trim_start_matches('.');
    ensure!(!ext.is_empty() && !ext.contains(['/', '\\']), "{key}: `{ext}` is not a file extension");
    Ok(ext.to_string())
}

fn check_replacement(key: &str, pair: &str) -> Result<()> {
    let (from, _) = pair.split_once('|').with_context(|| format!("{key}: `{pair}` lacks a `|`; write `from|to`"))?;
    ensure!(!from.is_empty(), "{key}: `{pair}` has nothing in front of its `|` to be replaced");
    Ok(())
}

fn missing(key: &str, name: &str) -> Result<MissingCaptions> {
    match name {
        "fill" => Ok(MissingCaptions::Fill),
        "skip" => Ok(MissingCaptions::Skip),
        "stop" => Ok(MissingCaptions::Stop),
        other => bail!("{key}: {other} is unknown; it is fill, skip or stop"),
    }
}
