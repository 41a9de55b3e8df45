//! The batches of any epoch and any step, as pure functions of the seed.
//!
//! Every item occurs exactly as often in an epoch as its repeats say. Which items share a batch, the order of the batches and
//! which pictures are mirrored are drawn anew in each epoch. A batch holds pictures of one bucket; the last batch of a bucket may
//! be short and is run short, never filled up. An optimizer step takes `accumulation` batches; the last step of an epoch may take
//! fewer, and no step takes batches of two epochs.
//!
//! Pictures for regularisation come on top, in batches of their own that are spread evenly over an epoch's steps: the number of steps,
//! and how often each picture to be learned is seen, don't change. Each set gives as many pictures an epoch as its ratio says, going
//! through all of its pictures, in an order that is drawn anew each time, before it repeats one.

use crate::bucket::Bucket;
use crate::dataset::{Dataset, Item, Purpose, Role};
use base::Rng;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Each with a number that no other batch of the run has.
    pub batches: Vec<(u64, Batch)>,
}

/// Numbers of regularisation batches begin here; each step has room for so many.
const REGULARISATION: u64 = 1 << 62;
const MOST_REGULARISATION: u64 = 1 << 20;

impl Step {
    /// Pictures in all batches: what the mean gradient is a mean over.
    pub fn pictures(&self) -> usize {
        self.batches.iter().map(|(_, b)| b.items.len()).sum()
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
    regularisation: Vec<Pool>,
    /// The two epochs that were asked for last: at an epoch's end the next one is asked for ahead.
    latest: Mutex<Vec<(u64, Arc<Epoch>)>>,
}

/// The batches of an epoch: those that are learned, in order, and those for regularisation.
#[derive(Debug, Default)]
struct Epoch {
    learned: Vec<Batch>,
    regularisation: Vec<Batch>,
}

/// The pictures of a regularisation set, and how many of them an epoch takes.
#[derive(Debug)]
struct Pool {
    dataset: u64,
    occurrences: Vec<(Bucket, Occurrence)>,
    each_epoch: f64,
}

impl Pool {
    /// The most pictures that an epoch takes.
    fn most(&self) -> usize {
        self.each_epoch.ceil() as usize
    }

    /// The next `each_epoch` of an endless row of shuffled rounds through the pool; what is not whole is made up for by later epochs.
    fn draw(&self, seed: u64, epoch: u64) -> Vec<(Bucket, Occurrence)> {
        let size = self.occurrences.len() as u64;
        // A little more, so that rounding doesn't put off what is due.
        let before = |epoch: u64| (epoch as f64 * self.each_epoch + 1e-6) as u64;
        let mut round = (u64::MAX, Vec::new());
        let pick = |place: u64| {
            if round.0 != place / size {
                round = (place / size, (0..self.occurrences.len()).collect());
                Rng::new(seed, "regularisation", &[self.dataset, round.0]).shuffle(&mut round.1);
            }
            self.occurrences[round.1[(place % size) as usize]]
        };
        (before(epoch)..before(epoch + 1)).map(pick).collect()
    }
}

impl Schedule {
    pub fn new(dataset: &Dataset, seed: u64, batch_size: usize, accumulation: usize) -> Schedule {
        let schedule = Schedule::of_items(&dataset.items, seed, batch_size, accumulation);
        let ratios = dataset.options.iter().enumerate().filter_map(|(index, options)| match options.purpose {
            Purpose::Regularise { ratio } => Some((index, ratio)),
            Purpose::Train { .. } => None,
        });
        schedule.with_regularisation(&dataset.items, ratios)
    }

    pub fn of_items(items: &[Item], seed: u64, batch_size: usize, accumulation: usize) -> Schedule {
        let mut buckets: BTreeMap<Bucket, Vec<Occurrence>> = BTreeMap::new();
        for (number, item) in items.iter().enumerate().filter(|(_, item)| item.role == Role::Train) {
            buckets.entry(item.bucket).or_default().extend(occurrences(number, item));
        }
        let (batch_size, accumulation) = (batch_size.max(1), accumulation.max(1));
        let batches_per_epoch = buckets.values().map(|b| b.len().div_ceil(batch_size) as u64).sum();
        let buckets = buckets.into_iter().collect();
        Schedule { buckets, seed, batch_size, accumulation, batches_per_epoch, regularisation: Vec::new(), latest: Mutex::default() }
    }

    /// Adds the regularisation sets: dataset and pictures for each one that is learned.
    fn with_regularisation(mut self, items: &[Item], ratios: impl Iterator<Item = (usize, f64)>) -> Schedule {
        for (dataset, ratio) in ratios {
            let own = items.iter().enumerate().filter(|(_, item)| item.dataset == dataset && item.role == Role::Regularise);
            let occurrences: Vec<_> = own.flat_map(|(n, item)| occurrences(n, item).map(move |o| (item.bucket, o))).collect();
            let each_epoch = ratio * self.pictures_per_epoch() as f64;
            if !occurrences.is_empty() && each_epoch > 0.0 {
                self.regularisation.push(Pool { dataset: dataset as u64, occurrences, each_epoch });
            }
        }
        self
    }

    /// The most batches that a step may take.
    pub fn most_batches_per_step(&self) -> u64 {
        let pictures: usize = self.regularisation.iter().map(Pool::most).sum();
        let buckets: BTreeSet<Bucket> = self.regularisation.iter().flat_map(|pool| pool.occurrences.iter().map(|(b, _)| *b)).collect();
        // Each bucket may end in a short batch.
        let batches = (pictures / self.batch_size + buckets.len()).min(pictures) as u64;
        self.accumulation as u64 + batches.div_ceil(self.steps_per_epoch().max(1))
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

    /// Pictures for regularisation in an epoch, on average, by bucket.
    pub fn regularisation(&self) -> BTreeMap<Bucket, f64> {
        let mut counts = BTreeMap::new();
        for pool in &self.regularisation {
            let each = pool.each_epoch / pool.occurrences.len() as f64;
            pool.occurrences.iter().for_each(|(bucket, _)| *counts.entry(*bucket).or_default() += each);
        }
        counts
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
        let mut shapes: BTreeMap<Bucket, BTreeSet<usize>> = BTreeMap::new();
        for (bucket, occurrences) in &self.buckets {
            shapes.entry(*bucket).or_default().extend(sizes(occurrences.len()));
        }
        // How many pictures of a bucket an epoch draws for regularisation differs from epoch to epoch: any size may come.
        for pool in &self.regularisation {
            for (bucket, _) in &pool.occurrences {
                shapes.entry(*bucket).or_default().extend(1..=self.batch_size.min(pool.most()));
            }
        }
        shapes.into_iter().map(|(bucket, sizes)| (bucket, sizes.into_iter().rev().collect())).collect()
    }

    /// All batches of an epoch.
    fn epoch(&self, epoch: u64) -> Arc<Epoch> {
        let mut latest = self.latest.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, batches)) = latest.iter().find(|(number, _)| *number == epoch) {
            return batches.clone();
        }
        let batches = Arc::new(self.compose(epoch));
        if latest.len() == 2 {
            latest.remove(0);
        }
        latest.push((epoch, batches.clone()));
        batches
    }

    fn compose(&self, epoch: u64) -> Epoch {
        let mut learned = Vec::new();
        for (number, (bucket, occurrences)) in self.buckets.iter().enumerate() {
            let mut order = occurrences.clone();
            Rng::new(self.seed, "batch members", &[epoch, number as u64]).shuffle(&mut order);
            learned.extend(self.cut(*bucket, &order, epoch));
        }
        Rng::new(self.seed, "batch order", &[epoch]).shuffle(&mut learned);
        let mut drawn: BTreeMap<Bucket, Vec<Occurrence>> = BTreeMap::new();
        for (bucket, occurrence) in self.regularisation.iter().flat_map(|pool| pool.draw(self.seed, epoch)) {
            drawn.entry(bucket).or_default().push(occurrence);
        }
        let mut regularisation: Vec<Batch> = drawn.iter().flat_map(|(bucket, all)| self.cut(*bucket, all, epoch)).collect();
        Rng::new(self.seed, "regularisation order", &[epoch]).shuffle(&mut regularisation);
        Epoch { learned, regularisation }
    }

    /// Batches of one bucket.
    fn cut(&self, bucket: Bucket, order: &[Occurrence], epoch: u64) -> Vec<Batch> {
        order.chunks(self.batch_size).map(|m| Batch { bucket, items: m.iter().map(|o| self.draw(o, epoch)).collect() }).collect()
    }

    fn draw(&self, o: &Occurrence, epoch: u64) -> BatchItem {
        let heads = || Rng::new(self.seed, "flip", &[epoch, o.item as u64, u64::from(o.occurrence)]).below(2) == 1;
        BatchItem { item: o.item, occurrence: o.occurrence, flip: o.may_flip && heads() }
    }

    /// The epoch and batches of an optimizer step, counted from 0. There must be at least one item.
    pub fn step(&self, step: u64) -> Step {
        let steps = self.steps_per_epoch().max(1);
        let (epoch, within) = (step / steps, (step % steps) as usize);
        let batches = self.epoch(epoch);
        let learned = batches.learned.iter().skip(within * self.accumulation).take(self.accumulation);
        let spread = |place: usize| place * batches.regularisation.len() / steps as usize;
        let regularisation = &batches.regularisation[spread(within)..spread(within + 1)];
        let learned = (step * self.accumulation as u64..).zip(learned);
        let regularisation = (REGULARISATION + step * MOST_REGULARISATION..).zip(regularisation);
        Step { epoch, batches: learned.chain(regularisation).map(|(number, batch)| (number, batch.clone())).collect() }
    }
}

/// Where an item may occur in an epoch.
fn occurrences(number: usize, item: &Item) -> impl Iterator<Item = Occurrence> + use<> {
    let may_flip = item.flip;
    (0..item.repeats).map(move |occurrence| Occurrence { item: number, occurrence, may_flip })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn items(buckets: &[(u32, usize)], repeats: u32, flip: bool) -> Vec<Item> {
        let fit = crate::bucket::fit((64, 64), Bucket::new(64, 64));
        let item = |width| Item {
            entry: 0,
            dataset: 0,
            resolution: 64.into(),
            bucket: Bucket::new(width, 64),
            fit,
            repeats,
            flip,
            role: Role::Train,
        };
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
                for (_, batch) in step.batches {
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
            s.epoch(epoch).learned.iter().map(|b| b.items.iter().map(|i| i.item).collect::<BTreeSet<_>>()).collect::<BTreeSet<_>>()
        };
        assert_ne!(members(&schedule(1), 0), members(&schedule(1), 1));
        assert_ne!(members(&schedule(1), 0), members(&schedule(2), 0));
        assert_eq!(schedule(1).epoch(5).learned, schedule(1).epoch(5).learned);
        let resumed = schedule(1);
        let straight: Vec<Step> = (0..30).map(|i| schedule(1).step(i)).collect();
        assert_eq!(straight[17], resumed.step(17));
    }

    #[test]
    fn both_orientations_occur_where_flipping_is_on_and_only_there() {
        let orientations = |flip| {
            let schedule = Schedule::of_items(&items(&[(64, 3)], 1, flip), 4, 2, 1);
            (0..20)
                .flat_map(|e| schedule.epoch(e).learned.iter().flat_map(|b| b.items.clone()).collect::<Vec<_>>())
                .map(|i| (i.item, i.flip))
                .collect::<BTreeSet<_>>()
        };
        assert_eq!(orientations(true).len(), 6);
        assert_eq!(orientations(false).len(), 3);
    }

    /// Ten pictures to be learned and a thousand others, one of these for each of those: as many steps as without them.
    #[test]
    fn regularisation_comes_on_top_in_its_ratio_and_goes_through_all_of_its_pictures() {
        let mut list = items(&[(64, 10)], 2, false);
        let learned = Schedule::of_items(&list, 3, 4, 2);
        let others = items(&[(64, 500), (72, 500)], 1, false);
        list.extend(others.into_iter().map(|item| Item { dataset: 1, role: Role::Regularise, ..item }));
        let schedule = Schedule::of_items(&list, 3, 4, 2).with_regularisation(&list, [(1, 1.0)].into_iter());
        assert_eq!((schedule.steps_per_epoch(), schedule.pictures_per_epoch()), (learned.steps_per_epoch(), 20));
        assert_eq!(schedule.mean_batch_size(), learned.mean_batch_size());
        assert_eq!(schedule.shapes(), [(Bucket::new(64, 64), vec![4, 3, 2, 1]), (Bucket::new(72, 64), vec![4, 3, 2, 1])]);
        let each_epoch: Vec<f64> = schedule.regularisation().into_values().collect();
        assert!(each_epoch.len() == 2 && each_epoch.iter().all(|count| (count - 10.0).abs() < 1e-9), "{each_epoch:?}");
        let (mut numbers, mut seen, mut fewest) = (BTreeSet::new(), BTreeMap::new(), usize::MAX);
        for step in 0..schedule.steps_per_epoch() * 50 {
            let (found, alone) = (schedule.step(step), learned.step(step));
            assert_eq!(found.batches[..alone.batches.len()], alone.batches);
            let others: Vec<_> = found.batches[alone.batches.len()..].iter().collect();
            fewest = fewest.min(others.len());
            assert!(found.batches.len() as u64 <= schedule.most_batches_per_step());
            for (_, batch) in &others {
                batch.items.iter().for_each(|i| *seen.entry((i.item, list[i.item].bucket == batch.bucket)).or_insert(0) += 1);
            }
            assert!(found.batches.iter().all(|(number, _)| numbers.insert(*number)), "two batches have one number");
        }
        assert!(fewest > 0, "a step had none");
        assert_eq!(seen, (10..1010).map(|item| ((item, true), 1)).collect());
    }

    /// A third of a picture for each of ten: 3, 3, 4, 3, … of them, and over three epochs exactly ten.
    #[test]
    fn a_ratio_that_is_not_whole_in_an_epoch_is_met_over_several() {
        let mut list = items(&[(64, 10)], 1, false);
        list.extend(items(&[(64, 4)], 1, false).into_iter().map(|item| Item { dataset: 1, role: Role::Regularise, ..item }));
        let schedule = Schedule::of_items(&list, 3, 2, 1).with_regularisation(&list, [(1, 1.0 / 3.0)].into_iter());
        let drawn = |epoch| schedule.epoch(epoch).regularisation.iter().map(|batch| batch.items.len()).sum::<usize>();
        assert_eq!((0..30).map(drawn).sum::<usize>(), 100);
        assert!((0..30).map(drawn).all(|n| n == 3 || n == 4));
        let rare = Schedule::of_items(&list, 3, 2, 1).with_regularisation(&list, [(1, 0.01)].into_iter());
        assert_eq!((0..30).map(|epoch| rare.epoch(epoch).regularisation.len()).sum::<usize>(), 3);
    }

    #[test]
    fn shapes_list_the_full_and_the_short_batch_of_each_bucket() {
        let schedule = Schedule::of_items(&items(&[(64, 9), (72, 4), (80, 1)], 1, false), 1, 4, 1);
        assert_eq!(schedule.shapes(), [(Bucket::new(64, 64), vec![4, 1]), (Bucket::new(72, 64), vec![4]), (Bucket::new(80, 64), vec![1])]);
        assert_eq!(schedule.mean_batch_size(), 14.0 / 5.0);
    }
}
