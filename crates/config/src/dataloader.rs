//! `dataloader:` how data is brought to the steps.

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
        pin_memory: "batches stay in the memory that the steps read",
        persistent_workers: "workers live as long as the run",
        shuffle: "batches are composed anew in each epoch",
        drop_last: "nothing is dropped: short batches are run short",
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
pub(crate) fn resolve(raw: RawDataloader, notices: &mut Vec<String>) -> Result<(DataloaderConfig, [Option<Flag>; 2])> {
    raw.check_foreign("dataloader", notices)?;
    let (workers, ahead) = (raw.num_workers.map_or(2, |n| n.0), raw.prefetch_factor.map_or(2, |n| n.0));
    ensure!(workers <= 256, "dataloader.num_workers: {workers} is beyond any machine; 2 to 8 are usual");
    ensure!((1..=1024).contains(&ahead), "dataloader.prefetch_factor: {ahead} is not between 1 and 1024");
    let encoded = raw.vae_batch_size.map_or(1, |n| n.0);
    ensure!((1..=256).contains(&encoded), "dataloader.vae_batch_size: {encoded} is not between 1 and 256");
    let config = DataloaderConfig { num_workers: workers as usize, prefetch_factor: ahead as usize, vae_batch_size: encoded as usize };
    Ok((config, [raw.cache_latents, raw.cache_latents_to_disk]))
}
