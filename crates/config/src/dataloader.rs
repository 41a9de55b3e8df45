//! `dataloader:` how data is brought to the steps.

use crate::findings::Findings;
use crate::scalar::{Flag, Whole};
use crate::section::section;
use anyhow::{Result, ensure};
use serde::Serialize;

section! {
    RawDataloader {
        /// Threads that fetch cached latents (or decode pictures that are not cached) and draw noise ahead of the steps; 0: the
        /// training thread does it itself.
        num_workers: Whole,
        /// Batches that each worker prepares ahead.
        prefetch_factor: Whole,
        /// Pictures of one size that the VAE encodes at once when latents are cached: more take more memory.
        vae_batch_size: Whole,
        /// For every dataset that doesn't say otherwise.
        cache_latents: Flag,
        /// The same, for the cache on disk.
        cache_latents_to_disk: Flag,
    }
    no effect {
        pin_memory: Flag => "batches stay in the memory that the steps read",
        persistent_workers: Flag => "workers live as long as the run",
        shuffle: Flag => "batches are composed anew in each epoch",
        drop_last: Flag => "nothing is dropped: short batches are run short",
    }
    not yet {}
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DataloaderConfig {
    pub num_workers: usize,
    pub prefetch_factor: usize,
    pub vae_batch_size: usize,
}

/// The section, and what it says for all datasets of `cache_latents` and `cache_latents_to_disk`.
pub(crate) fn resolve(raw: RawDataloader, findings: &mut Findings) -> (DataloaderConfig, [Option<Flag>; 2]) {
    raw.check_foreign("dataloader", findings);
    let config = DataloaderConfig {
        num_workers: findings.or(workers(raw.num_workers), 2),
        prefetch_factor: findings.or(within("prefetch_factor", raw.prefetch_factor, 2, 1024), 2),
        vae_batch_size: findings.or(within("vae_batch_size", raw.vae_batch_size, 1, 256), 1),
    };
    (config, [raw.cache_latents, raw.cache_latents_to_disk])
}

fn workers(number: Option<Whole>) -> Result<usize> {
    let number = number.map_or(2, |n| n.0);
    ensure!(number <= 256, "dataloader.num_workers: {number} is beyond any machine; 2 to 8 are usual");
    Ok(number as usize)
}

fn within(key: &str, number: Option<Whole>, default: u64, most: u64) -> Result<usize> {
    let number = number.map_or(default, |n| n.0);
    ensure!((1..=most).contains(&number), "dataloader.{key}: {number} is not between 1 and {most}");
    Ok(number as usize)
}
