//! CLIP's own vocabulary, embedded: single-file checkpoints carry no tokenizer.
//!
//! Token ids follow from the list of merges: 256 byte symbols, the same at the end of a word, one token a merge, start and end.

use anyhow::{Context, Result};
use std::io::Read;

/// The file's notice is `assets/clip/LICENSE.md`.
const MERGES: &[u8] = include_bytes!("../../../../assets/clip/merges.txt.gz");

pub(super) const START: &str = "<|startoftext|>";
pub(super) const END: &str = "<|endoftext|>";
/// Marks the last symbol of a word.
pub(super) const WORD_END: &str = "</w>";

/// Tokens in the order of their ids, and the merges in the order of their rank.
pub(super) struct Vocabulary {
    pub tokens: Vec<String>,
    pub merges: Vec<(String, String)>,
}

pub(super) fn embedded() -> Result<Vocabulary> {
    let mut text = String::new();
    flate2::read::GzDecoder::new(MERGES).read_to_string(&mut text).context("the embedded CLIP vocabulary is damaged")?;
    let merges = parse_merges(&text).context("the embedded CLIP vocabulary is damaged")?;
    let symbols = byte_symbols();
    let last = symbols.iter().map(|s| format!("{s}{WORD_END}"));
    let mut tokens: Vec<String> = symbols.iter().map(char::to_string).chain(last).collect();
    tokens.extend(merges.iter().map(|(a, b)| format!("{a}{b}")));
    tokens.extend([START.to_owned(), END.to_owned()]);
    Ok(Vocabulary { tokens, merges })
}

/// Lines of two symbols, ranked by position; a first line `#version…` is no merge.
pub(super) fn parse_merges(text: &str) -> Result<Vec<(String, String)>> {
    let is_merge = |number: usize, line: &str| !(line.is_empty() || number == 0 && line.starts_with("#version"));
    let lines = text.lines().enumerate().filter(|(number, line)| is_merge(*number, line));
    lines
        .map(|(number, line)| {
            let (a, b) = line.split_once(' ').with_context(|| format!("line {} is no pair of symbols: {line}", number + 1))?;
            Ok((a.to_owned(), b.trim_end().to_owned()))
        })
        .collect()
}

/// A printable character for each byte, in CLIP's order: printable bytes stand for themselves and come first, the others follow from 256.
fn byte_symbols() -> Vec<char> {
    let printable = |b: &u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let own = (0..256).filter(printable).filter_map(char::from_u32);
    let others = (0..256).filter(|b| !printable(b)).count() as u32;
    own.chain((256..256 + others).filter_map(char::from_u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_vocabulary_is_the_published_one() {
        let vocabulary = embedded().unwrap();
        assert_eq!(vocabulary.tokens.len(), 49408);
        for (id, token) in [(0, "!"), (256, "!</w>"), (320, "a</w>"), (2368, "cat</w>"), (49406, START), (49407, END)] {
            assert_eq!(vocabulary.tokens[id], token);
        }
        let mut unique = vocabulary.tokens.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), 49408);
    }
}
