//! Texts of a run: tokens, chunks, and embeddings.

use crate::model::Model;
use anyhow::{Context, Result, ensure};
use base::{DType, Shape};
use config::{LongCaptions, TrainConfig};
use data::cache::{Cache, Entry, Key};
use engine::Session;
use engine::session::Data;

/// How captions become chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunking {
    /// Most chunks of a caption; what is beyond is cut off, and counted.
    pub most: usize,
}

/// Letters of a text that an error repeats.
const SHOWN: usize = 80;

/// No caption is cut into more chunks than this: 64 × 75 tokens are no caption any more.
const MOST_CHUNKS: usize = 64;

impl Chunking {
    pub fn of(config: &TrainConfig, room: usize) -> Chunking {
        let limit = config.max_token_length.map_or(MOST_CHUNKS, |tokens| tokens.div_ceil(room).clamp(1, MOST_CHUNKS));
        let most = if config.long_captions == LongCaptions::Truncate { 1 } else { limit };
        Chunking { most }
    }

    /// For prompts, which are never cut short of the hard limit.
    pub fn long() -> Chunking {
        Chunking { most: MOST_CHUNKS }
    }
}

/// What became of a run's texts when they were cut into chunks.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct TextReport {
    pub texts: usize,
    /// Chunks of the longest text: every text is filled up to it.
    pub chunks: usize,
    /// Texts of more than one chunk.
    pub chunked: usize,
    /// Texts whose end was cut off.
    pub truncated: usize,
    /// The cut-off ends of a few of them.
    pub dropped_ends: Vec<String>,
}

/// Counts chunks of all texts.
pub fn survey<'a>(model: &Model, texts: impl IntoIterator<Item = &'a str>, chunking: Chunking) -> Result<TextReport> {
    let mut report = TextReport { chunks: 1, ..TextReport::default() };
    for text in texts {
        let encoded = model.tokenizer.encode(text, chunking.most)?;
        report.texts += 1;
        report.chunks = report.chunks.max(encoded.chunks.len());
        report.chunked += usize::from(encoded.chunks.len() > 1);
        if encoded.dropped > 0 {
            report.truncated += 1;
            if report.dropped_ends.len() < 3 {
                report.dropped_ends.push(encoded.dropped_text);
            }
        }
    }
    Ok(report)
}

/// The ids of a text, filled up to `chunks` chunks with the empty text's; what is beyond is cut off.
pub fn ids(model: &Model, text: &str, chunks: usize, out: &mut Vec<u32>) -> Result<()> {
    let encoded = model.tokenizer.encode(text, chunks)?;
    let missing = chunks - encoded.chunks.len();
    encoded.chunks.iter().for_each(|chunk| out.extend(chunk));
    (0..missing).for_each(|_| out.extend(model.tokenizer.empty_chunk()));
    Ok(())
}

/// Embeddings of texts, from a cache that was filled before training.
pub struct Embeddings {
    pub cache: Cache,
    identity: String,
    chunking: Chunking,
    /// Elements of one chunk's embedding.
    chunk: usize,
}

impl Embeddings {
    /// `component` identifies the text encoder's weights.
    pub fn new(cache: Cache, model: &Model, component: &str, chunking: Chunking) -> Embeddings {
        let config = &model.parts.text_encoder;
        let sample = model.tokenizer.encode("the quick brown fox, 1 naïve café", 2).map(|e| e.chunks).unwrap_or_default();
        let identity = format!("{component} tokenizer {sample:?} clip_skip {} chunks {}", model.clip_skip, chunking.most);
        Embeddings { cache, identity, chunking, chunk: config.max_positions * config.hidden_size }
    }

    pub fn key(&self, text: &str) -> Key {
        Key::text(text, &self.identity, DType::F32)
    }

    /// Is the text's embedding there? Then it counts as reused.
    pub fn check(&self, text: &str) -> bool {
        self.cache.check(&self.key(text))
    }

    /// Encodes a text, chunk by chunk, with the session's program `program` (one chunk at a time).
    pub fn encode(&self, text: &str, model: &Model, session: &mut Session, program: usize) -> Result<()> {
        let mut states = Vec::new();
        for chunk in model.tokenizer.encode(text, self.chunking.most)?.chunks {
            session.run(program, &[("ids", Data::U32(&chunk))])?;
            states.extend(session.output(program, "states")?);
        }
        let width = model.parts.text_encoder.hidden_size;
        let entry = Entry { tensors: vec![("states".into(), Shape::from([states.len() / width, width]), states)] };
        let kept = self.cache.put(&self.key(text), entry);
        kept.with_context(|| format!("the embedding of \"{}\" can't be made", base::excerpt(text, SHOWN)))?;
        Ok(())
    }

    /// Appends the embedding of `text`, filled up to `chunks` chunks with the empty text's.
    pub fn append(&self, text: &str, chunks: usize, out: &mut Vec<f32>) -> Result<()> {
        let states = self.states(text)?;
        let have = states.len() / self.chunk;
        ensure!(have <= chunks, "the text \"{}\" has {have} chunks where {chunks} were planned", base::excerpt(text, SHOWN));
        out.extend(states);
        if have < chunks {
            let empty = self.states("")?;
            (have..chunks).for_each(|_| out.extend(&empty));
        }
        Ok(())
    }

    fn states(&self, text: &str) -> Result<Vec<f32>> {
        let entry = self.cache.get(&self.key(text));
        let states = entry.as_ref().and_then(|e| e.tensor("states")).map(|(_, values)| values.to_vec());
        anyhow::Context::with_context(states, || {
            format!("the embedding of \"{}\" is gone from the cache; start the run again to make it anew", base::excerpt(text, SHOWN))
        })
    }
}
