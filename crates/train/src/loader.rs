//! Micro-batches made ahead of the steps, on threads of their own: `dataloader.num_workers` and `prefetch_factor`.
//!
//! A worker makes all micro-batches of one optimizer step: it reads latents and embeddings from the cache (or decodes the pictures
//! whose latents are not cached) and draws noise, timesteps and captions. All of it is a function of the seed and the step's number,
//! so the steps see the same bits whatever the number of workers; and the first steps of an epoch are ready before the last ones of
//! the epoch before it are done.

use crate::encode::Caches;
use crate::feed::{self, Open};
use crate::prepare::Prepared;
use crate::step::Batch;
use anyhow::Result;
use config::RunConfig;
use data::ahead::Reach;

/// A micro-batch.
pub struct Loaded {
    /// No other micro-batch of the run has it.
    pub number: u64,
    pub picked: data::Batch,
    pub batch: Batch,
    /// What only the training thread can do about it.
    pub open: Open,
}

/// All micro-batches of a step.
pub fn step(run: &Prepared, caches: &Caches, step: u64) -> Result<Vec<Loaded>> {
    let data::Step { epoch, batches } = run.batches.step(step);
    let load = |(number, picked): (u64, data::Batch)| {
        let mut batch = feed::empty();
        let open = feed::fill(run, caches, epoch, number, &picked, &mut batch)?;
        Ok(Loaded { number, picked, batch, open })
    };
    batches.into_iter().map(load).collect()
}

/// How far ahead of the steps: `prefetch_factor` micro-batches for each worker, in whole steps.
pub fn reach(config: &RunConfig) -> Reach {
    let workers = config.dataloader.num_workers;
    let batches = workers * config.dataloader.prefetch_factor;
    Reach { workers, window: batches.div_ceil(config.train.gradient_accumulation).max(1) }
}
