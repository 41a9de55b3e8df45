//! What a run takes of the host's memory beside its sessions. Copies that are made and dropped again count where they meet the peak.

use crate::encode::{DECODE_AHEAD, MOST_WAITING_GROUPS};
use crate::latents;
use crate::prepare::Prepared;
use crate::sample::Request;
use anyhow::Result;
use data::{Bucket, decode, mask};
use std::collections::BTreeSet;

/// A picture of a sample on its way from the decoder to a file, by pixel: as tile and as a whole in f32, as bytes, and packed.
const DRAWN_PIXEL_BYTES: u64 = 2 * 3 * 4 + 3 + 3;
/// A picture on its way to the encoder, by pixel: as bytes, and as whole and tile in f32.
const ENCODED_PIXEL_BYTES: u64 = 3 + 2 * 3 * 4;

impl Prepared {
    /// Adapters, their gradients, the optimizer's state and the host's copies.
    pub fn adapter_bytes(&self) -> Result<u64> {
        Ok(2 * 4 * self.adapter_elements() + self.optimizer_bytes()? + self.host_bytes()?)
    }

    /// The optimizer's state.
    pub fn optimizer_bytes(&self) -> Result<u64> {
        Ok(self.chosen()?.held_bytes(&self.layout()?))
    }

    /// The host's copies: adapters, gradients, and averages of the adapters.
    pub fn host_bytes(&self) -> Result<u64> {
        let copies = 2 + u64::from(self.chosen()?.averages()) + u64::from(self.config.train.ema_config.use_ema);
        Ok(copies * 4 * self.adapter_elements())
    }

    /// What is made and dropped again between steps: saving a checkpoint or drawing a sample, whichever takes more.
    pub fn between_steps_bytes(&self) -> Result<u64> {
        Ok(self.saving_bytes()?.max(self.drawing_bytes()))
    }

    fn saving_bytes(&self) -> Result<u64> {
        let (elements, stored) = (self.adapter_elements(), self.config.save.dtype.bytes() as u64);
        // The factors as they are, as they are stored, mapped from the file again, and widened out of it to be compared.
        let lora = elements * (4 + stored + stored + 4);
        let state = elements * 4 * (1 + u64::from(self.config.train.ema_config.use_ema)) + self.optimizer_bytes()?;
        Ok(lora.max(state))
    }

    fn drawing_bytes(&self) -> u64 {
        if self.samples_on() { drawing_bytes(&self.samples) } else { 0 }
    }

    /// Latents and embeddings that stay in the process's memory, where the config wants no files.
    pub fn cached_bytes(&self) -> u64 {
        if self.caches_on_disk() {
            return 0;
        }
        let moments = |bucket: Bucket| 2 * 4 * latents::latent_size(&self.model, bucket).iter().product::<usize>() * self.channels();
        let views = self.cached_views().into_iter().map(|(item, _)| moments(self.dataset.items[item].bucket) as u64);
        let texts: BTreeSet<String> = self.cached_texts().into_iter().flatten().collect();
        let prompts = if self.samples_on() { self.samples.iter().map(|request| 3 * request.chunks).sum() } else { 0 };
        let chunks = texts.len() * self.text.chunks() + prompts;
        let encoder = &self.model.parts.text_encoder;
        let sizes = self.dataset.items.iter().map(|item| latents::latent_size(&self.model, item.bucket));
        let masks = sizes.enumerate().filter(|(item, _)| self.dataset.mask(*item).is_some()).map(|(_, [h, w])| 4 * (h * w) as u64);
        views.sum::<u64>() + masks.sum::<u64>() + (chunks * encoder.max_positions * encoder.hidden_size * 4) as u64
    }

    fn channels(&self) -> usize {
        self.model.parts.vae.latent_channels
    }

    /// What is decoded before training: pictures on all threads, those that wait for the encoder, and the one that it is given; or
    /// masks, which come before them.
    pub fn picture_bytes(&self) -> u64 {
        let masks = self.dataset.entries.iter().filter_map(|e| e.mask.as_ref().map(|mask| mask::bytes(&e.picture, mask)));
        let masks: u64 = largest(masks.collect(), rayon::current_num_threads()).iter().sum();
        let threads = rayon::current_num_threads().min(DECODE_AHEAD);
        let decoding = self.dataset.entries.iter().map(|e| e.picture.decoding_bytes);
        let decoding = largest(decoding.collect(), threads);
        let most = decoding.first().copied().unwrap_or(0).max(decode::MOST_BYTES);
        let at_once = decoding.iter().sum::<u64>().min(most);
        let pixels = self.dataset.items.iter().map(|i| u64::from(i.bucket.width) * u64::from(i.bucket.height)).max().unwrap_or(0);
        let batch = self.config.dataloader.vae_batch_size;
        let waiting = DECODE_AHEAD + MOST_WAITING_GROUPS * batch;
        masks.max(at_once + pixels * (3 * waiting as u64 + ENCODED_PIXEL_BYTES * batch as u64))
    }
}

/// The largest so many, in falling order.
fn largest(mut bytes: Vec<u64>, count: usize) -> Vec<u64> {
    bytes.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
    bytes.truncate(count);
    bytes
}

/// The largest of the pictures to draw, on its way to its file.
pub fn drawing_bytes(requests: &[Request]) -> u64 {
    let pixels = |request: &Request| u64::from(request.prompt.width) * u64::from(request.prompt.height);
    requests.iter().map(pixels).max().unwrap_or(0) * DRAWN_PIXEL_BYTES
}
