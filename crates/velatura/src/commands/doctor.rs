//! `velatura doctor DATASET`

use crate::output;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use data::doctor::{Diagnosis, Questions};
use data::{Dataset, DatasetOptions};
use models::ClipTokenizer;
use models::clip::{ClipConfig, Padding};
use serde_json::json;
use std::path::PathBuf;

/// Sides of buckets for Stable Diffusion: its VAE's factor, and three halvings in the UNet.
const BUCKET_STEP: u32 = 64;

#[derive(Args)]
pub struct Arguments {
    /// A folder of pictures, or a list of them (.jsonl, .json, .csv, .tsv).
    dataset: PathBuf,
    /// Side of the square whose area the pictures would be fitted to.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(64..=16384))]
    resolution: u32,
    /// Extensions of caption files; the first file that exists counts.
    #[arg(long, default_value = "txt", value_delimiter = ',')]
    caption_ext: Vec<String>,
    /// Encoding of caption files that are neither UTF-8 nor UTF-16, such as gbk or windows-1251; default: guessed.
    #[arg(long)]
    caption_encoding: Option<String>,
    /// The word that stands for what is to be learned.
    #[arg(long)]
    trigger: Option<String>,
    /// Everything as JSON, on standard output.
    #[arg(long)]
    json: bool,
}

/// What is odd is told; only what can't be read at all is an error.
pub fn run(arguments: Arguments) -> Result<()> {
    let mut options = DatasetOptions::new(&arguments.dataset, arguments.resolution, BUCKET_STEP);
    options.caption.extensions = arguments.caption_ext.iter().map(|ext| ext.trim().trim_start_matches('.').to_string()).collect();
    let encoding = arguments.caption_encoding.as_deref().map(|name| {
        base::code_page::named(name)
            .with_context(|| format!("--caption-encoding {name}: it is gbk, big5, shift_jis, windows-1251 or the like"))
    });
    options.caption.encoding = encoding.transpose()?;
    options.caption.trigger_word = arguments.trigger;
    // Where there is no config there is no `datasets[0]` either.
    let dataset = Dataset::build(&[options])
        .map_err(|error| anyhow!("{}", error.chain().skip(1).map(ToString::to_string).collect::<Vec<_>>().join(": ")))?;
    let tokenizer = clip()?;
    let tokens = |text: &str| tokenizer.encode(text, usize::MAX).map_or(0, |encoded| encoded.tokens);
    let diagnosis = Diagnosis::new(&dataset, &Questions { tokens: &tokens, token_limit: tokenizer.room() })?;
    if arguments.json { output::json(&diagnosis) } else { output::print(diagnosis.to_string().trim_end()) }
}

/// The tokenizer of Stable Diffusion 1.x, whatever will be trained: every CLIP counts alike.
fn clip() -> Result<ClipTokenizer> {
    let config = json!({
        "vocab_size": 49408, "max_position_embeddings": 77, "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12,
    });
    ClipTokenizer::embedded(Padding::End, &ClipConfig::from_json(&config)?)
}
