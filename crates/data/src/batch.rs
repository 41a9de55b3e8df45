//! The batches of any epoch and any step, as pure functions of the seed.
//!
//! Every item occurs exactly as often in an epoch as its repeats say. Which items share a batch, the order of the batches and
//! which pictures are mirrored are drawn anew in each epoch. A batch holds pictures of one bucket; the last batch of a bucket may
//! be short and is run short, never filled up. An optimizer step takes `accumulation` batches; the last step of an epoch may take
//! fewer, and no step takes batches of two epochs.

use crate::bucket::Bucket;
use crate::dataset::{Dataset, Item};
use base::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// One occurrence of an item in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchItem {
    /// Index into [`Dataset::items`].
    pub item: usize,
    /// Which of its repeats.
    pub occurrence: u32,
    pub flip: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub bucket: Bucket,
    pub items: Vec<BatchItem>,
}

/// What one optimizer step works on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub epoch: u64,
    pub batches: Vec<Batch>,
}

impl Step {
    /// Pictures in all batches: what the mean gradient is a mean over.
    pub fn pictures(&self) -> usize {
        self.batches.iter().map(|b| b.items.len()).sum()
    }
}

/// Where an item may occur.
#[derive(Clone, Copy, Debug)]
struct Occurrence {
    item: usize,
    occurrence: u32,
    may_flip: bool,
}

/// The plan of all epochs.
#[derive(Debug)]
pub struct Schedule {
    buckets: Vec<(Bucket, Vec<Occurrence>)>,
    seed: u64,
    batch_size: usize,
    accumulation: usize,
    batches_per_epoch: u64,
    /// The epoch that was asked for last: steps ask for the same one again and again.
    latest: Mutex<Option<(u64, Arc<Vec<Batch>>)>>,
}

impl Schedule {
    pub fn new(dataset: &Dataset, seed: u64, batch_size: usize, accumulation: usize) -> Schedule {
        Schedule::of_items(&dataset.items, seed, batch_size, accumulation)
    }

    pub fn of_items(items: &[Item], seed: u64, batch_size: usize, accumulation: usize) -> Schedule {
        let mut buckets: BTreeMap<Bucket, Vec<Occurrence>> = BTreeMap::new();
        for (item, Item { bucket, repeats, flip, .. }) in items.iter().enumerate() {
            let occurrences = (0..*repeats).map(|occurrence| Occurrence { item, occurrence, may_flip: *flip });
            buckets.entry(*bucket).or_default().extend(occurrences);
        }
        let (batch_size, accumulation) = (batch_size.max(1), accumulation.max(1));
        let batches_per_epoch = buckets.values().map(|b| b.len().div_ceil(batch_size) as u64).sum();
        let buckets = buckets.into_iter().collect();
        Schedule { buckets, seed, batch_size, accumulation, batches_per_epoch, latest: Mutex::new(None) }
    }

    pub fn batches_per_epoch(&self) -> u64 {
        self.batches_per_epoch
    }

    /// Optimizer steps in an epoch.
    pub fn steps_per_epoch(&self) -> u64 {
        self.batches_per_epoch.div_ceil(self.accumulation as u64)
    }

    /// Pictures in an epoch, repeats included.
    pub fn pictures_per_epoch(&self) -> u64 {
        self.buckets.iter().map(|(_, b)| b.len() as u64).sum()
    }

    /// Mean number of pictures in a batch; under half of what was asked for, buckets are too many for the batch size.
    pub fn mean_batch_size(&self) -> f64 {
        self.pictures_per_epoch() as f64 / self.batches_per_epoch.max(1) as f64
    }

    /// Bucket and largest batch of each shape that occurs: what memory is planned for.
    pub fn shapes(&self) -> Vec<(Bucket, Vec<usize>)> {
        let sizes = |n: usize| {
            let mut sizes = Vec::new();
            if n >= self.batch_size {
                sizes.push(self.batch_size);
            }
            if !n.is_multiple_of(self.batch_size) {
                sizes.push(n % self.batch_size);
            }
            sizes
        };
        self.buckets.iter().map(|(bucket, occurrences)| (*bucket, sizes(occurrences.len()))).collect()
    }

    /// All batches of an epoch, in order.
    pub fn epoch(&self, epoch: u64) -> Arc<Vec<Batch>> {
        let mut latest = self.latest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match &*latest {
            Some((number, batches)) if *number == epoch => batches.clone(),
            _ => {
                let batches = Arc::new(self.compose(epoch));
                *latest = Some((epoch, batches.clone()));
                batches
            }
        }
    }

    fn compose(&self, epoch: u64) -> Vec<Batch> {
        let mut batches = Vec::new();
        for (number, (bucket, occurrences)) in self.buckets.iter().enumerate() {
            let mut order = occurrences.clone();
            Rng::new(self.seed, "batch members", &[epoch, number as u64]).shuffle(&mut order);
            let members = order.chunks(self.batch_size);
            batches.extend(members.map(|m| Batch { bucket: *bucket, items: m.iter().map(|o| self.draw(o, epoch)).collect() }));
        }
        Rng::new(self.seed, "batch order", &[epoch]).shuffle(&mut batches);
        batches
    }

    fn draw(&self, o: &Occurrence, epoch: u64) -> BatchItem {
        let heads = || Rng::new(self.seed, "flip", &[epoch, o.item as u64, u64::from(o.occurrence)]).below(2) == 1;
        BatchItem { item: o.item, occurrence: o.occurrence, flip: o.may_flip && heads() }
    }

    /// The epoch and batches of an optimizer step, counted from 0. There must be at least one item.
    pub fn step(&self, step: u64) -> Step {
        let epoch = step / self.steps_per_epoch().max(1);
        let within = (step % self.steps_per_epoch().max(1)) as usize;
        let batches = self.epoch(epoch);
        let from = (within * self.accumulation).min(batches.len());
        let to = (from + self.accumulation).min(batches.len());
        Step { epoch, batches: batches[from..to].to_vec() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn items(buckets: &[(u32, usize)], repeats: u32, flip: bool) -> Vec<Item> {
        let fit = crate::bucket::fit((64, 64), Bucket::new(64, 64));
        let item = |width| Item { entry: 0, dataset: 0, resolution: 64, bucket: Bucket::new(width, 64), fit, repeats, flip };
        buckets.iter().flat_map(|(width, n)| std::iter::repeat_with(move || item(*width)).take(*n)).collect()
    }

    /// 63 pictures over 9 buckets with batches of 4: 25 epochs take exactly as many steps as planned, and drop or repeat nothing.
    #[test]
    fn every_occurrence_is_in_every_epoch_exactly_once() {
        let list = items(&[(64, 20), (72, 1), (80, 2), (88, 3), (96, 4), (104, 5), (112, 6), (120, 7), (128, 15)], 3, true);
        let schedule = Schedule::of_items(&list, 9, 4, 2);
        let mut steps = 0;
        for epoch in 0..25 {
            let mut seen = BTreeSet::new();
            for _ in 0..schedule.steps_per_epoch() {
                let step = schedule.step(steps);
                assert_eq!(step.epoch, epoch);
                assert!(!step.batches.is_empty() && step.batches.len() <= 2);
                for batch in step.batches {
                    assert!(!batch.items.is_empty() && batch.items.len() <= 4);
                    for member in batch.items {
                        assert_eq!(list[member.item].bucket, batch.bucket);
                        assert!(seen.insert((member.item, member.occurrence)), "{member:?} twice in epoch {epoch}");
                    }
                }
                steps += 1;
            }
            assert_eq!(seen.len() as u64, schedule.pictures_per_epoch());
        }
        assert_eq!((schedule.pictures_per_epoch(), schedule.batches_per_epoch()), (63 * 3, 15 + 1 + 2 + 3 + 3 + 4 + 5 + 6 + 12));
    }

    #[test]
    fn batches_are_composed_anew_in_each_epoch_and_again_alike_for_the_same_seed() {
        let list = items(&[(64, 12)], 1, false);
        let schedule = |seed| Schedule::of_items(&list, seed, 4, 1);
        let members = |s: &Schedule, epoch| {
            s.epoch(epoch).iter().map(|b| b.items.iter().map(|i| i.item).collect::<BTreeSet<_>>()).collect::<BTreeSet<_>>()
        };
        assert_ne!(members(&schedule(1), 0), members(&schedule(1), 1));
        assert_ne!(members(&schedule(1), 0), members(&schedule(2), 0));
        assert_eq!(schedule(1).epoch(5), schedule(1).epoch(5));
        let resumed = schedule(1);
        let straight: Vec<Step> = (0..30).map(|i| schedule(1).step(i)).collect();
        assert_eq!(straight[17], resumed.step(17));
    }

    #[test]
    fn both_orientations_occur_where_flipping_is_on_and_only_there() {
        let orientations = |flip| {
            let schedule = Schedule::of_items(&items(&[(64, 3)], 1, flip), 4, 2, 1);
            (0..20)
                .flat_map(|e| schedule.epoch(e).iter().flat_map(|b| b.items.clone()).collect::<Vec<_>>())
                .map(|i| (i.item, i.flip))
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(orientations(true).len(), 6);
        assert_eq!(orientations(false).len(), 3);
    }

    #[test]
    fn shapes_list_the_full_and_the_short_batch_of_each_bucket() {
        let schedule = Schedule::of_items(&items(&[(64, 9), (72, 4), (80, 1)], 1, false), 1, 4, 1);
        assert_eq!(schedule.shapes(), [(Bucket::new(64, 64), vec![4, 1]), (Bucket::new(72, 64), vec![4]), (Bucket::new(80, 64), vec![1])]);
        assert_eq!(schedule.mean_batch_size(), 14.0 / 5.0);
    }
}
