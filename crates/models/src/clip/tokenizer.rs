//! Captions to token ids, as transformers' `CLIPTokenizer` makes them; long captions to several chunks.
//!
//! A chunk is what the text encoder reads at once: start, up to `max_positions` − 2 tokens, end, padding.

use super::ClipConfig;
use super::vocabulary::{self, END, START, WORD_END};
use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::Value;
use std::path::Path;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::normalizers::{Lowercase, NFC, Replace, Sequence as Normalizers, replace::ReplacePattern};
use tokenizers::pre_tokenizers::{
    PreTokenizerWrapper, byte_level::ByteLevel, sequence::Sequence as PreTokenizers, split::Split, split::SplitPattern,
};
use tokenizers::{AddedToken, SplitDelimiterBehavior, Tokenizer};

/// How CLIP cuts a text before the byte pairs: special tokens, contractions, words, single digits, runs of anything else.
const WORDS: &str = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";

/// Which token fills a chunk behind the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Padding {
    /// The end token again: SD 1.x.
    End,
    /// Token 0, "!": SD 2.x.
    Zero,
}

pub struct ClipTokenizer {
    inner: Tokenizer,
    start: u32,
    end: u32,
    pad: u32,
    /// Ids in a chunk.
    length: usize,
}

/// A caption's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// At least one; all of the text encoder's full length.
    pub chunks: Vec<Vec<u32>>,
    /// Tokens of the whole caption, without start and end.
    pub tokens: usize,
    /// How many of them found no room.
    pub dropped: usize,
    /// The end of the caption that found no room; empty if all did.
    pub dropped_text: String,
}

impl ClipTokenizer {
    /// From a model folder's `tokenizer/`: `tokenizer.json`, or `vocab.json` and `merges.txt`. `config` is the text encoder's.
    pub fn from_dir(dir: &Path, config: &ClipConfig) -> Result<ClipTokenizer> {
        let whole = dir.join("tokenizer.json");
        let inner = if whole.is_file() {
            Tokenizer::from_bytes(base::fs::read_text(&whole)?).map_err(|e| anyhow!("{} is no tokenizer: {e}", whole.display()))?
        } else {
            from_vocabulary_files(dir)?
        };
        let special = SpecialTokens::read(dir)?;
        ClipTokenizer::new(inner, &special, config).with_context(|| format!("the tokenizer in {}", dir.display()))
    }

    /// With CLIP's own vocabulary, for checkpoints that bring none.
    pub fn embedded(padding: Padding, config: &ClipConfig) -> Result<ClipTokenizer> {
        let vocabulary = vocabulary::embedded()?;
        let vocab: Vocab = vocabulary.tokens.into_iter().zip(0..).collect();
        let mut special = SpecialTokens::default();
        if padding == Padding::Zero {
            special.pad = "!".into();
        }
        ClipTokenizer::new(clip_pipeline(vocab, vocabulary.merges)?, &special, config)
            .context("the model brings no tokenizer, and CLIP's own does not fit its text encoder")
    }

    fn new(mut inner: Tokenizer, special: &SpecialTokens, config: &ClipConfig) -> Result<ClipTokenizer> {
        inner.with_padding(None);
        inner.with_truncation(None).map_err(|e| anyhow!("{e}"))?;
        let id = |token: &str| inner.token_to_id(token).with_context(|| format!("lacks the token {token}"));
        let (start, end, pad) = (id(&special.start)?, id(&special.end)?, id(&special.pad)?);
        // As transformers does: a caption that holds a special token, even the padding "!" of SD 2.x, is cut there.
        inner.add_special_tokens(&[&special.start, &special.end, &special.pad].map(|token| AddedToken::from(token.as_str(), true)));
        let largest = inner.get_vocab(true).into_values().max().unwrap_or(0) as usize;
        ensure!(largest < config.vocab_size, "has token ids up to {largest}, but the text encoder has only {} tokens", config.vocab_size);
        Ok(ClipTokenizer { inner, start, end, pad, length: config.max_positions })
    }

    /// Tokens that fit in one chunk beside start and end.
    pub fn room(&self) -> usize {
        self.length - 2
    }

    /// At most `max_chunks` chunks of a caption; what is beyond is counted and named, not encoded.
    pub fn encode(&self, text: &str, max_chunks: usize) -> Result<Encoded> {
        let encoding = self.inner.encode_fast(text, false);
        let encoding = encoding.map_err(|e| anyhow!("can't make tokens of the caption \"{text}\": {e}"))?;
        let ids = encoding.get_ids();
        let kept = ids.len().min(max_chunks.max(1).saturating_mul(self.room()));
        let chunks = match kept {
            0 => vec![self.chunk(&[])],
            _ => ids[..kept].chunks(self.room()).map(|part| self.chunk(part)).collect(),
        };
        let dropped_text = if kept < ids.len() { self.text_from(text, kept)? } else { String::new() };
        Ok(Encoded { chunks, tokens: ids.len(), dropped: ids.len() - kept, dropped_text })
    }

    /// The chunk of an empty caption: fills up the shorter captions of a batch.
    pub fn empty_chunk(&self) -> Vec<u32> {
        self.chunk(&[])
    }

    fn chunk(&self, tokens: &[u32]) -> Vec<u32> {
        let mut chunk = vec![self.start];
        chunk.extend(tokens);
        chunk.push(self.end);
        chunk.resize(self.length, self.pad);
        chunk
    }

    /// The text from token number `token` on.
    fn text_from(&self, text: &str, token: usize) -> Result<String> {
        let encoding = self.inner.encode(text, false).map_err(|e| anyhow!("{e}"))?;
        let start = encoding.get_offsets().get(token).map_or(text.len(), |(start, _)| *start);
        Ok(text.get(start..).unwrap_or_default().trim().to_owned())
    }
}

/// Names of the special tokens.
struct SpecialTokens {
    start: String,
    end: String,
    pad: String,
}

impl Default for SpecialTokens {
    fn default() -> SpecialTokens {
        SpecialTokens { start: START.into(), end: END.into(), pad: END.into() }
    }
}

impl SpecialTokens {
    /// From `tokenizer_config.json`, then `special_tokens_map.json`, which has the last word (SD 2.x states its padding there).
    fn read(dir: &Path) -> Result<SpecialTokens> {
        let mut special = SpecialTokens::default();
        for file in ["tokenizer_config.json", "special_tokens_map.json"] {
            let path = dir.join(file);
            if !path.is_file() {
                continue;
            }
            let json = read_json(&path)?;
            for (key, place) in [("bos_token", &mut special.start), ("eos_token", &mut special.end), ("pad_token", &mut special.pad)] {
                let value = json.get(key).filter(|v| !v.is_null());
                if let Some(value) = value {
                    let text = value.as_str().or_else(|| value.get("content")?.as_str());
                    *place = text.with_context(|| format!("{}: {key} is {value}, which is no token", path.display()))?.to_owned();
                }
            }
        }
        Ok(special)
    }
}

fn read_json(path: &Path) -> Result<Value> {
    serde_json::from_str(&base::fs::read_text(path)?).with_context(|| format!("{} is no JSON", path.display()))
}

fn from_vocabulary_files(dir: &Path) -> Result<Tokenizer> {
    let (vocab_path, merges_path) = (dir.join("vocab.json"), dir.join("merges.txt"));
    let mut vocab: Vocab = read_vocab(&vocab_path)?;
    let added_path = dir.join("added_tokens.json");
    let added = if added_path.is_file() { read_vocab(&added_path)? } else { Vocab::default() };
    vocab.extend(added.clone());
    let merges = vocabulary::parse_merges(&base::fs::read_text(&merges_path)?).with_context(|| merges_path.display().to_string())?;
    let tokenizer = clip_pipeline(vocab, merges).with_context(|| format!("{} and {}", vocab_path.display(), merges_path.display()));
    let mut tokenizer = tokenizer?;
    // They are no result of merges: a text that holds one is cut there (textual inversion puts its words here).
    let added: Vec<AddedToken> = added.into_keys().map(|token| AddedToken::from(token, false)).collect();
    tokenizer.add_tokens(&added);
    Ok(tokenizer)
}

fn read_vocab(path: &Path) -> Result<Vocab> {
    let json = read_json(path)?;
    let Some(map) = json.as_object() else { bail!("{} holds no table of tokens", path.display()) };
    let id = |v: &Value| v.as_u64().and_then(|v| u32::try_from(v).ok());
    map.iter()
        .map(|(token, value)| Ok((token.clone(), id(value).with_context(|| format!("{}: {token} has no id", path.display()))?)))
        .collect()
}

/// NFC, white space to one space, lower case; words; bytes; byte pairs with a mark at the end of a word.
fn clip_pipeline(vocab: Vocab, merges: Vec<(String, String)>) -> Result<Tokenizer> {
    let problem = |e: tokenizers::Error| anyhow!("no byte-pair vocabulary: {e}");
    let model = BPE::builder()
        .vocab_and_merges(vocab, merges)
        .unk_token(END.into())
        .end_of_word_suffix(WORD_END.into())
        .build()
        .map_err(problem)?;
    let spaces = Replace::new(ReplacePattern::Regex(r"\s+".into()), " ").map_err(problem)?;
    let words = Split::new(SplitPattern::Regex(WORDS.into()), SplitDelimiterBehavior::Removed, true).map_err(problem)?;
    let steps = vec![PreTokenizerWrapper::Split(words), PreTokenizerWrapper::ByteLevel(ByteLevel::new(false, true, true))];
    let mut tokenizer = Tokenizer::new(model);
    tokenizer
        .with_normalizer(Some(Normalizers::new(vec![NFC.into(), spaces.into(), Lowercase.into()])))
        .with_pre_tokenizer(Some(PreTokenizers::new(steps)));
    Ok(tokenizer)
}
