//! Token ids against transformers' `CLIPTokenizer` (the fixture is made by `tools/golden/clip_tokenizer.py`).
#![allow(clippy::unwrap_used)]

use graph::ops::ActivationKind;
use serde_json::Value;
use std::path::{Path, PathBuf};
use velatura_models::clip::{ClipTokenizer, Padding};
use velatura_models::{ClipConfig, clip::Encoded};

fn config(vocab_size: usize, max_positions: usize) -> ClipConfig {
    let (hidden_size, intermediate_size) = (8, 8);
    ClipConfig {
        vocab_size,
        max_positions,
        hidden_size,
        intermediate_size,
        layers: 1,
        heads: 1,
        activation: ActivationKind::Gelu,
        eps: 1e-5,
    }
}

fn small_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets/tiny-emoji/tokenizer")
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

/// Compares every text of one set: the first chunk, and the ids of all chunks together.
fn check(set: &str, tokenizer: &ClipTokenizer) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tokenizer.json");
    let fixture: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let cases = fixture[set].as_array().unwrap();
    assert!(cases.len() >= 60);
    let wrong: Vec<&str> = cases.iter().filter(|case| !is_equal(case, tokenizer)).map(|case| case["text"].as_str().unwrap()).collect();
    assert!(wrong.is_empty(), "{set}: other ids for {wrong:?}");
}

fn is_equal(case: &Value, tokenizer: &ClipTokenizer) -> bool {
    let text = case["text"].as_str().unwrap();
    let Encoded { chunks, tokens, dropped, .. } = tokenizer.encode(text, usize::MAX).unwrap();
    let all = ids(&case["ids"]);
    let parts: Vec<u32> =
        chunks.iter().enumerate().flat_map(|(i, c)| c[1..=tokenizer.room().min(all.len() - i * tokenizer.room())].to_vec()).collect();
    let cut = tokenizer.encode(text, 1).unwrap();
    parts == all
        && tokens == all.len()
        && dropped == 0
        && cut.chunks == [ids(&case["chunk"])]
        && cut.dropped == tokens.saturating_sub(tokenizer.room())
}

#[test]
fn a_model_folders_tokenizer_gives_the_ids_of_transformers() {
    check("tiny", &ClipTokenizer::from_dir(&small_folder(), &config(2000, 32)).unwrap());
}

#[test]
fn vocabulary_and_merges_alone_give_the_same_ids() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["vocab.json", "merges.txt"] {
        std::fs::copy(small_folder().join(name), dir.path().join(name)).unwrap();
    }
    check("tiny", &ClipTokenizer::from_dir(dir.path(), &config(2000, 32)).unwrap());
}

#[test]
fn the_embedded_vocabulary_gives_the_ids_of_transformers_with_either_padding() {
    check("sd1", &ClipTokenizer::embedded(Padding::End, &config(49408, 77)).unwrap());
    check("sd2", &ClipTokenizer::embedded(Padding::Zero, &config(49408, 77)).unwrap());
}

#[test]
fn long_captions_become_chunks_or_are_cut_and_the_lost_words_are_named() {
    let tokenizer = ClipTokenizer::embedded(Padding::End, &config(49408, 77)).unwrap();
    let caption = format!("{}zebra", "cat ".repeat(299));
    let whole = tokenizer.encode(&caption, 10).unwrap();
    assert_eq!((whole.chunks.len(), whole.tokens, whole.dropped), (4, 300, 0));
    assert!(whole.chunks.iter().all(|c| c.len() == 77 && c[0] == 49406 && c[76] == 49407));
    let cut = tokenizer.encode(&caption, 3).unwrap();
    assert_eq!((cut.chunks.len(), cut.dropped), (3, 75));
    assert!(cut.dropped_text.starts_with("cat cat") && cut.dropped_text.ends_with("zebra"), "{}", cut.dropped_text);
    assert_eq!(cut.dropped_text.split(' ').count(), 75);
    let chinese = tokenizer.encode(&"水墨画".repeat(40), 1).unwrap();
    assert!(chinese.dropped > 0 && chinese.dropped_text.ends_with('画'));
}

#[test]
fn a_tokenizer_that_does_not_fit_the_text_encoder_is_refused() {
    let problem = |result: anyhow::Result<ClipTokenizer>| format!("{:#}", result.err().unwrap());
    assert!(problem(ClipTokenizer::from_dir(&small_folder(), &config(1500, 32))).contains("only 1500 tokens"));
    assert!(problem(ClipTokenizer::embedded(Padding::End, &config(2000, 32))).contains("brings no tokenizer"));
    let dir = tempfile::tempdir().unwrap();
    assert!(problem(ClipTokenizer::from_dir(dir.path(), &config(2000, 32))).contains("vocab.json"));
    std::fs::write(dir.path().join("tokenizer.json"), "<html>").unwrap();
    assert!(problem(ClipTokenizer::from_dir(dir.path(), &config(2000, 32))).contains("tokenizer.json"));
}
