//! All datasets of a run as one list of items: a picture, at a resolution, with its bucket and caption.

use crate::bucket::{self, Bucket, Fit, Resolution, Scheme, fit};
use crate::caption::{self, Caption, CaptionSource, Hints, Written};
use crate::decode::{self, Rgb};
use crate::draw::{CaptionOptions, Moment};
use crate::gather::{Candidate, gather};
use crate::kohya::FolderNames;
use crate::mask::{self, Mask, MaskOptions, MaskSource, Masks};
use crate::pixels::{self, Look};
use crate::scan::{Picture, Rejected, all_listed, listed};
use crate::tags;
use crate::text::Pages;
use crate::validation;
use anyhow::{Context, Result, bail, ensure};
use base::{counted, some_of};
use rayon::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// What a file that can't be used does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBadImage {
    /// It is listed and left out.
    Skip,
    /// Building the dataset fails, with all of them in the error.
    Stop,
}

/// What a picture without a caption does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingCaptions {
    /// The default caption, else the trigger word, else the empty text fills in.
    #[default]
    Fill,
    /// The picture is listed and left out.
    Skip,
    /// Building the dataset fails, with all of them in the error.
    Stop,
}

/// What the pictures of a dataset are for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Purpose {
    /// To be learned, but for a share of them (0 to 1) that only measures how well.
    Train { validation: f64 },
    /// To show the model what it should keep drawing as it does: `ratio` of them for each picture to be learned.
    Regularise { ratio: f64 },
}

/// What a picture is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Train,
    Regularise,
    /// It is never trained on.
    Validate,
}

#[derive(Clone, Debug, PartialEq)]
pub struct DatasetOptions {
    /// A folder, or a list of pictures.
    pub folder: PathBuf,
    pub recursive: bool,
    pub on_bad_image: OnBadImage,
    pub missing_captions: MissingCaptions,
    pub folder_names: FolderNames,
    pub caption: CaptionOptions,
    /// Each picture is an item at each of these.
    pub resolutions: Vec<Resolution>,
    pub scheme: Scheme,
    /// Sides of buckets are multiples of this; the model knows it.
    pub step: u32,
    /// How often each item occurs in an epoch.
    pub repeats: u32,
    /// May items be mirrored?
    pub flip: bool,
    /// What transparent pictures are laid over.
    pub background: [u8; 3],
    pub purpose: Purpose,
    /// How much each part of a picture counts; `None`: all of it the same.
    pub mask: Option<MaskOptions>,
}

impl DatasetOptions {
    /// A folder (or list) with `.txt` captions, at one resolution, as it stands.
    pub fn new(folder: &Path, resolution: impl Into<Resolution>, step: u32) -> DatasetOptions {
        DatasetOptions {
            folder: folder.to_path_buf(),
            recursive: true,
            on_bad_image: OnBadImage::Skip,
            missing_captions: MissingCaptions::Fill,
            folder_names: FolderNames::Auto,
            caption: CaptionOptions { extensions: vec!["txt".into()], ..CaptionOptions::default() },
            resolutions: vec![resolution.into()],
            scheme: Scheme::Ratio,
            step,
            repeats: 1,
            flip: false,
            background: decode::WHITE,
            purpose: Purpose::Train { validation: 0.0 },
            mask: None,
        }
    }

    /// What a picture of `size` (width, height) is brought to, and at which resolution first: a small one may come to the same bucket at
    /// several, and once is enough.
    fn buckets(&self, size: (u32, u32)) -> Vec<(Resolution, Bucket)> {
        let mut buckets: Vec<(Resolution, Bucket)> = Vec::new();
        for resolution in &self.resolutions {
            let bucket = bucket::bucket(self.scheme, size, *resolution, self.step);
            if buckets.iter().all(|(_, other)| *other != bucket) {
                buckets.push((*resolution, bucket));
            }
        }
        buckets
    }
}

/// A picture of a dataset, with its caption.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub dataset: usize,
    pub picture: Picture,
    pub caption: Caption,
    /// What the name of its folder multiplies its repeats by.
    pub folder_repeats: u32,
    pub role: Role,
    pub mask: Option<Mask>,
}

/// A picture at one resolution: the unit that epochs are made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Index into [`Dataset::entries`].
    pub entry: usize,
    pub dataset: usize,
    pub resolution: Resolution,
    pub bucket: Bucket,
    pub fit: Fit,
    pub repeats: u32,
    pub flip: bool,
    pub role: Role,
}

/// An item, mirrored or not.
pub type View = (usize, bool);

#[derive(Clone, Debug)]
pub struct Dataset {
    pub options: Vec<DatasetOptions>,
    pub entries: Vec<Entry>,
    pub items: Vec<Item>,
    /// Dataset index, file and reason.
    pub rejected: Vec<(usize, Rejected)>,
    /// How the datasets were read, where that may surprise.
    pub notes: Vec<String>,
}

impl Dataset {
    /// Scans every folder, reads every caption, and gives every picture its buckets.
    pub fn build(options: &[DatasetOptions]) -> Result<Dataset> {
        ensure!(!options.is_empty(), "there is no dataset");
        let mut dataset =
            Dataset { options: options.to_vec(), entries: Vec::new(), items: Vec::new(), rejected: Vec::new(), notes: Vec::new() };
        for (index, options) in options.iter().enumerate() {
            dataset.add(index, options).with_context(|| format!("datasets[{index}] can't be used"))?;
        }
        let held_out = validation::hold_out(&mut dataset.entries);
        ensure!(
            dataset.entries.iter().any(|entry| entry.role == Role::Train),
            "there is nothing to learn: every picture is for regularisation (is_reg) or validation{}",
            held_out.iter().map(|note| format!("; {note}")).collect::<String>()
        );
        dataset.notes.extend(held_out);
        dataset.add_items();
        Ok(dataset)
    }

    /// Gives every picture its buckets.
    fn add_items(&mut self) {
        for (number, entry) in self.entries.iter().enumerate() {
            let (options, size) = (&self.options[entry.dataset], (entry.picture.width, entry.picture.height));
            for (resolution, bucket) in options.buckets(size) {
                self.items.push(Item {
                    entry: number,
                    dataset: entry.dataset,
                    resolution,
                    bucket,
                    fit: fit(size, bucket),
                    repeats: options.repeats * entry.folder_repeats,
                    flip: options.flip,
                    role: entry.role,
                });
            }
        }
    }

    fn add(&mut self, index: usize, options: &DatasetOptions) -> Result<()> {
        ensure!(options.repeats > 0, "repeats is 0: its pictures would never be used");
        ensure!(!options.resolutions.is_empty(), "no resolution is given");
        let found = gather(options)?;
        let mut rejected = found.rejected;
        self.notes.extend(found.notes);
        let before = self.entries.len();
        let mut masks = match options.mask.as_ref().map(|mask| &mask.source) {
            Some(MaskSource::Folder(folder)) => Some(Masks::read(folder)?),
            Some(MaskSource::Alpha) | None => None,
        };
        let written = caption::written(found.candidates.iter().map(|candidate| candidate.picture.path.as_path()), &options.caption);
        let pages = caption::pages(&written, &options.caption);
        for (candidate, written) in found.candidates.into_iter().zip(written) {
            let file = candidate.picture.file.clone();
            match entry(index, (candidate, written), (options, pages), masks.as_mut()) {
                Ok(entry) => self.entries.push(entry),
                Err(error) => rejected.push(Rejected { file, reason: format!("{error:#}") }),
            }
        }
        self.check_captions(before, options)?;
        check_masks(&self.entries[before..], options, masks.as_ref())?;
        rejected.extend(self.drop_empty_masks(before, options));
        if options.on_bad_image == OnBadImage::Stop && !rejected.is_empty() {
            bail!("{} can't be used, and bad_images is `stop`: {}", counted(rejected.len(), "file"), all_listed(&rejected));
        }
        if self.entries.len() == before {
            bail!("none of its pictures can be used: {}", listed(&rejected));
        }
        validation::choose(&mut self.entries[before..], options.purpose);
        self.note_masks(before, options, masks.as_ref());
        self.rejected.extend(rejected.into_iter().map(|r| (index, r)));
        Ok(())
    }

    /// Leaves out the entries from `before` on whose mask leaves nothing of them: a step of such pictures would be empty.
    fn drop_empty_masks(&mut self, before: usize, options: &DatasetOptions) -> Vec<Rejected> {
        let Some(mask) = options.mask.as_ref().filter(|mask| mask.min_value == 0.0) else { return Vec::new() };
        let fault = |entry: &Entry| {
            let own = entry.mask.as_ref()?;
            let buckets = options.buckets((entry.picture.width, entry.picture.height));
            buckets.into_iter().map(|(_, bucket)| mask::weights(&entry.picture, own, mask, bucket)).find_map(Result::err)
        };
        let faults: Vec<Option<anyhow::Error>> = self.entries[before..].par_iter().map(fault).collect();
        let added = self.entries.split_off(before);
        let mut rejected = Vec::new();
        for (entry, fault) in added.into_iter().zip(faults) {
            match fault {
                Some(error) => rejected.push(Rejected { file: entry.picture.file, reason: format!("{error:#}") }),
                None => self.entries.push(entry),
            }
        }
        rejected
    }

    /// Names the pictures without a mask, and the masks without a picture.
    fn note_masks(&mut self, before: usize, options: &DatasetOptions, masks: Option<&Masks>) {
        if options.mask.is_none() {
            return;
        }
        let folder = options.folder.display();
        let without = self.entries[before..].iter().filter(|entry| entry.mask.is_none());
        let without: Vec<&str> = without.map(|entry| entry.picture.file.as_str()).collect();
        let left_over = masks.map(Masks::left_over).unwrap_or_default();
        let mut notes = Vec::new();
        if !without.is_empty() {
            notes.push(format!("{folder}: {} without a mask, used whole: {}", counted(without.len(), "picture"), some_of(&without)));
        }
        if !left_over.is_empty() {
            notes.push(format!("{folder}: {} without a picture: {}", counted(left_over.len(), "mask"), some_of(&left_over)));
        }
        self.notes.extend(notes);
    }

    /// Stops where a dataset wants a caption for every picture: its entries are those from `before` on.
    fn check_captions(&self, before: usize, options: &DatasetOptions) -> Result<()> {
        let without = self.entries[before..].iter().filter(|entry| entry.caption.source.is_filled());
        let without: Vec<&str> = without.map(|entry| entry.picture.file.as_str()).collect();
        if options.missing_captions == MissingCaptions::Stop && !without.is_empty() {
            bail!("{} without a caption, and missing_captions is `stop`: {}", counted(without.len(), "picture"), some_of(&without));
        }
        Ok(())
    }

    pub fn entry(&self, item: usize) -> &Entry {
        &self.entries[self.items[item].entry]
    }

    pub fn caption_options(&self, item: usize) -> &CaptionOptions {
        &self.options[self.items[item].dataset].caption
    }

    /// The text of one occurrence of an item in an epoch.
    pub fn caption(&self, item: usize, seed: u64, epoch: u64, occurrence: u32) -> String {
        self.caption_options(item).draw(&self.entry(item).caption.text, Moment { seed, epoch, item, occurrence })
    }

    /// Every text that a run can meet, sorted; `None` if captions are drawn from too many to list.
    pub fn texts(&self) -> Option<Vec<String>> {
        let items = 0..self.items.len();
        if items.clone().any(|item| self.caption_options(item).is_random()) {
            return None;
        }
        let texts: BTreeSet<String> = items.flat_map(|item| self.texts_of(item)).collect();
        Some(texts.into_iter().collect())
    }

    /// The texts of one item as long as nothing is drawn but whether the caption is dropped.
    pub fn texts_of(&self, item: usize) -> Vec<String> {
        let options = self.caption_options(item);
        let dropped = (options.caption_dropout_rate > 0.0).then(|| options.dropped());
        [options.whole(&self.entry(item).caption.text)].into_iter().chain(dropped).collect()
    }

    /// Every picture that a run can meet: item and whether it is mirrored.
    pub fn views(&self) -> Vec<View> {
        let flips = |item: &Item| item.flip && item.role != Role::Validate;
        let both = |(i, item): (usize, &Item)| if flips(item) { vec![(i, false), (i, true)] } else { vec![(i, false)] };
        self.items.iter().enumerate().flat_map(both).collect()
    }

    /// How an item is brought to its bucket.
    pub fn look(&self, item: usize, flip: bool) -> Look {
        let Item { bucket, dataset, .. } = self.items[item];
        Look { bucket, flip, background: self.options[dataset].background }
    }

    /// What an item is weighed by, and how; none counts whole.
    pub fn mask(&self, item: usize) -> Option<(&Mask, &MaskOptions)> {
        self.entry(item).mask.as_ref().zip(self.options[self.items[item].dataset].mask.as_ref())
    }

    /// Decodes an item to the exact RGB of its bucket. A file that changed since the scan is an error.
    pub fn pixels(&self, item: usize, flip: bool) -> Result<Rgb> {
        let decoded = self.decoded(item)?;
        self.cut(&decoded, (item, flip))
    }

    /// The same for several views of one picture, whose file is decoded once.
    pub fn pixels_of(&self, views: &[View]) -> Result<Vec<Rgb>> {
        let Some((first, _)) = views.first() else { return Ok(Vec::new()) };
        let decoded = self.decoded(*first)?;
        views.iter().map(|view| self.cut(&decoded, *view)).collect()
    }

    fn cut(&self, decoded: &Rgb, (item, flip): View) -> Result<Rgb> {
        let cut = pixels::to_bucket(decoded, self.items[item].bucket, flip);
        cut.with_context(|| self.entry(item).picture.path.display().to_string())
    }

    fn decoded(&self, item: usize) -> Result<Rgb> {
        let picture = &self.entry(item).picture;
        let bytes = picture.read().context("a picture was usable when it was scanned and is no longer")?;
        let decoded = decode::decode(&bytes, self.options[self.items[item].dataset].background);
        Ok(decoded.with_context(|| picture.path.display().to_string())?.rgb)
    }

    /// Items to be learned (with repeats) per bucket.
    pub fn bucket_counts(&self) -> BTreeMap<Bucket, u64> {
        let mut counts = BTreeMap::new();
        self.items
            .iter()
            .filter(|item| item.role == Role::Train)
            .for_each(|item| *counts.entry(item.bucket).or_default() += u64::from(item.repeats));
        counts
    }

    /// Pictures per source of their caption.
    pub fn caption_counts(&self) -> BTreeMap<CaptionSource, u64> {
        let mut counts = BTreeMap::new();
        self.entries.iter().for_each(|entry| *counts.entry(entry.caption.source).or_default() += 1);
        counts
    }

    /// The most frequent tags of one dataset.
    pub fn tag_frequency(&self, dataset: usize, most: usize) -> Vec<(String, u64)> {
        let options = &self.options[dataset].caption;
        let texts: Vec<String> = self.entries.iter().filter(|e| e.dataset == dataset).map(|e| options.whole(&e.caption.text)).collect();
        tags::frequency(texts.iter().map(String::as_str), most)
    }
}

/// A folder of masks none of which belongs to a picture is another folder than was meant.
fn check_masks(entries: &[Entry], options: &DatasetOptions, masks: Option<&Masks>) -> Result<()> {
    let Some((masks, MaskSource::Folder(folder))) = masks.zip(options.mask.as_ref().map(|mask| &mask.source)) else { return Ok(()) };
    let wanted: Vec<String> = entries.iter().map(|entry| mask::wanted(&entry.picture)).collect();
    let wanted: Vec<&str> = wanted.iter().map(String::as_str).collect();
    let there = masks.left_over();
    ensure!(
        masks.fit() || wanted.is_empty(),
        "mask_path: no mask in {} belongs to a picture; looked for {}; there {} {}",
        folder.display(),
        some_of(&wanted),
        if there.len() == 1 { "is" } else { "are" },
        some_of(&there)
    );
    Ok(())
}

/// A candidate with its caption.
fn entry(
    dataset: usize,
    (candidate, written): (Candidate, Option<Written>),
    (options, pages): (&DatasetOptions, Pages),
    masks: Option<&mut Masks>,
) -> Result<Entry> {
    let Candidate { picture, listed, folder } = candidate;
    let name = folder.as_ref().map(|folder| folder.name.as_str()).filter(|name| !name.is_empty());
    let caption = caption::read(written, Hints { listed: listed.as_deref(), folder: name }, &options.caption, pages)?;
    ensure!(
        options.missing_captions != MissingCaptions::Skip || !caption.source.is_filled(),
        "it has no caption, and missing_captions is `skip`"
    );
    let folder_repeats = folder.map_or(1, |folder| folder.repeats);
    ensure!((1..=100_000).contains(&folder_repeats), "the number in front of its folder's name asks for {folder_repeats} repeats");
    let mask = match (&options.mask, masks) {
        (Some(_), Some(masks)) => masks.of(&picture)?,
        (Some(_), None) => picture.has_alpha.then_some(Mask::Alpha),
        (None, _) => None,
    };
    let role = if matches!(options.purpose, Purpose::Regularise { .. }) { Role::Regularise } else { Role::Train };
    Ok(Entry { dataset, picture, caption, folder_repeats, role, mask })
}
