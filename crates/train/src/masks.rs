//! Weights of a run's pictures, pixel by pixel of their latents: made once before the steps, and cached beside the latents.
//!
//! They are made without any model. A picture that has no mask counts whole, also beside others that have one.

use crate::latents;
use crate::prepare::Prepared;
use anyhow::{Context, Result};
use base::Shape;
use data::cache::{Cache, Entry, Key};
use data::{View, mask};
use std::collections::BTreeMap;

/// Cached weights, by picture and bucket.
pub struct Masks {
    pub cache: Cache,
}

impl Masks {
    /// None if all of the item counts.
    pub fn key(&self, run: &Prepared, item: usize) -> Option<Key> {
        let (mask, options) = run.dataset.mask(item)?;
        Some(mask.key(&run.dataset.entry(item).picture, options, run.dataset.items[item].bucket))
    }

    /// Items whose weights have to be made, those that share them together.
    pub fn missing(&self, run: &Prepared, views: &[View]) -> Vec<(Key, Vec<usize>)> {
        let mut items: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (item, _) in views {
            if let Some(key) = self.key(run, *item) {
                items.entry(key).or_default().push(*item);
            }
        }
        items.into_iter().filter(|(key, _)| !self.cache.check(key)).collect()
    }

    pub fn make(&self, run: &Prepared, key: &Key, item: usize) -> Result<()> {
        let Some((mask, options)) = run.dataset.mask(item) else { return Ok(()) };
        let (picture, bucket) = (&run.dataset.entry(item).picture, run.dataset.items[item].bucket);
        let weights = mask::weights(picture, mask, options, bucket).with_context(|| picture.file.clone())?;
        let entry = Entry { tensors: vec![("weights".into(), Shape::from(latents::latent_size(&run.model, bucket)), weights)] };
        self.cache.put(key, entry).map(drop)
    }

    /// Writes the weights of a view `[h, w]` to `out`.
    pub fn weigh(&self, run: &Prepared, (item, flip): View, out: &mut [f32]) -> Result<()> {
        let Some(key) = self.key(run, item) else {
            out.fill(1.0);
            return Ok(());
        };
        let file =
            || format!("the mask of {} is gone from the cache; start the run again to make it anew", run.dataset.entry(item).picture.file);
        let entry = self.cache.get(&key).with_context(file)?;
        out.copy_from_slice(entry.tensor("weights").with_context(file)?.1);
        if flip {
            mask::mirror(out, latents::latent_size(&run.model, run.dataset.items[item].bucket)[1]);
        }
        Ok(())
    }
}
