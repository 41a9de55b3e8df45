//! What pictures look like at the size that they are trained at: how sharp they are, and which ones look alike.

use super::{Finding, Kind};
use crate::bucket::{Bucket, Scheme};
use crate::dataset::{Dataset, DatasetOptions, Role};
use crate::decode::Rgb;
use crate::pixels::to_bucket;
use anyhow::Result;
use base::counted;
use serde::Serialize;
use std::collections::BTreeMap;

/// Side of the little picture that likeness is judged by.
const THUMBNAIL: u32 = 8;

/// Bits in which the hashes of pictures that look alike may differ, and levels by which their colours may.
const ALIKE_BITS: u32 = 5;
const ALIKE_LEVELS: u64 = 10;

/// Variance of the Laplacian, in 8-bit luma, below which a picture is soft whatever the others are; and the share of the set's median.
/// Photographs in focus are above 100; 100 is also the usual limit in the literature (Pech-Pacheco et al., "Diatom autofocusing in
/// brightfield microscopy", 2000, is where the measure comes from), taken lower here, since drawings are smooth by design.
const SOFT: f64 = 20.0;
const SOFT_SHARE: f64 = 0.08;

/// A side more than this many times the other is hardly seen by a model.
const LONG: f64 = 3.0;

/// Share of a picture that a crop may take before it is worth a look.
const CROPPED: f64 = 0.2;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Look {
    /// Index of the item.
    #[serde(skip)]
    pub item: usize,
    pub file: String,
    /// Variance of the Laplacian of the luma, at the size that is trained.
    pub sharpness: f64,
    /// A bit for each place of an 8×8 picture where luma rises to the right.
    pub hash: u64,
    #[serde(skip)]
    thumbnail: Vec<u8>,
}

impl Look {
    pub fn of(dataset: &Dataset, item: usize) -> Result<Look> {
        let picture = dataset.pixels(item, false)?;
        let thumbnail = to_bucket(&picture, Bucket::new(THUMBNAIL + 1, THUMBNAIL), false)?;
        let grey = luma(&thumbnail);
        let rises = grey.chunks_exact(THUMBNAIL as usize + 1).flat_map(|row| row.windows(2)).map(|pair| pair[1] > pair[0]);
        let hash = rises.fold(0, |hash, rise| hash << 1 | u64::from(rise));
        let sharpness = laplacian_variance(&luma(&picture), picture.width as usize);
        Ok(Look { item, file: dataset.entry(item).picture.file.clone(), sharpness, hash, thumbnail: thumbnail.pixels })
    }

    /// A hash of rises says nothing about flat pictures, colours nothing about what is on them: both must agree.
    fn is_like(&self, other: &Look) -> bool {
        let levels = || self.thumbnail.iter().zip(&other.thumbnail).map(|(a, b)| u64::from(a.abs_diff(*b))).sum::<u64>();
        (self.hash ^ other.hash).count_ones() <= ALIKE_BITS && levels() <= ALIKE_LEVELS * self.thumbnail.len() as u64
    }
}

/// Luma of Rec. 601.
fn luma(picture: &Rgb) -> Vec<f32> {
    picture.pixels.chunks_exact(3).map(|p| 0.299 * f32::from(p[0]) + 0.587 * f32::from(p[1]) + 0.114 * f32::from(p[2])).collect()
}

/// Variance of 4x − left − right − above − below over the inner pixels.
fn laplacian_variance(grey: &[f32], width: usize) -> f64 {
    let rows: Vec<&[f32]> = grey.chunks_exact(width).collect();
    let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
    for three in rows.windows(3) {
        for x in 1..width.saturating_sub(1) {
            let value = f64::from(4.0 * three[1][x] - three[1][x - 1] - three[1][x + 1] - three[0][x] - three[2][x]);
            (count, sum, squares) = (count + 1.0, sum + value, squares + value * value);
        }
    }
    if count == 0.0 { 0.0 } else { squares / count - (sum / count) * (sum / count) }
}

pub fn findings(dataset: &Dataset, looks: &[Look]) -> Vec<Finding> {
    // A picture at several resolutions is looked at once.
    let mut seen = std::collections::BTreeSet::new();
    let looks: Vec<&Look> = looks.iter().filter(|look| seen.insert(dataset.items[look.item].entry)).collect();
    let mut findings = duplicates(dataset);
    findings.extend(near_duplicates(dataset, &looks));
    findings.extend(soft(&looks));
    findings.extend(sizes(dataset));
    findings
}

fn duplicates(dataset: &Dataset) -> Vec<Finding> {
    let mut by_content: BTreeMap<[u8; 32], Vec<String>> = BTreeMap::new();
    for entry in &dataset.entries {
        by_content.entry(entry.picture.content).or_default().push(entry.picture.file.clone());
    }
    let same = by_content.into_values().filter(|files| files.len() > 1);
    let advice = "keep one of them, unless it should be learned more often (num_repeats says that more plainly)";
    same.map(|files| Finding::new(Kind::Duplicate, files.clone(), format!("{} files have the same content", files.len()), advice)).collect()
}

/// Groups of pictures that look alike and aren't the same file.
fn near_duplicates(dataset: &Dataset, looks: &[&Look]) -> Vec<Finding> {
    let content = |look: &Look| dataset.entry(look.item).picture.content;
    let mut group: Vec<usize> = (0..looks.len()).collect();
    for (i, look) in looks.iter().enumerate() {
        for (j, other) in looks.iter().enumerate().take(i) {
            if look.is_like(other) && content(look) != content(other) {
                let (from, to) = (group[i], group[j]);
                group.iter_mut().filter(|g| **g == from).for_each(|g| *g = to);
            }
        }
    }
    let mut groups: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    group.iter().zip(looks).for_each(|(group, look)| groups.entry(*group).or_default().push(look.file.clone()));
    let advice = "keep the best of them: what many pictures share is learned first, and a repeated picture is learned by heart";
    let alike = groups.into_values().filter(|files| files.len() > 1);
    alike.map(|files| Finding::new(Kind::NearDuplicate, files.clone(), format!("{} pictures look alike", files.len()), advice)).collect()
}

fn soft(looks: &[&Look]) -> Option<Finding> {
    let mut sharpness: Vec<f64> = looks.iter().map(|look| look.sharpness).collect();
    sharpness.sort_by(f64::total_cmp);
    let median = sharpness.get(sharpness.len() / 2).copied().unwrap_or_default();
    let limit = SOFT.max(median * SOFT_SHARE);
    let files: Vec<String> = looks.iter().filter(|look| look.sharpness < limit).map(|look| look.file.clone()).collect();
    let what =
        format!("{} blurred, or nearly flat (sharpness below {limit:.0}; the median is {median:.0})", counted(files.len(), "picture"));
    let advice = "replace them by sharper ones, unless that softness is what should be learned";
    (!files.is_empty()).then(|| Finding::new(Kind::Blurred, files, what, advice))
}

/// Pictures that are too small, enlarged, or cut.
fn sizes(dataset: &Dataset) -> Vec<Finding> {
    let (mut small, mut enlarged, mut cut) = (Vec::new(), Vec::new(), Vec::new());
    for item in dataset.items.iter().filter(|item| item.role != Role::Validate) {
        let picture = &dataset.entries[item.entry].picture;
        let (w, h) = (f64::from(picture.width), f64::from(picture.height));
        let wanted = f64::from(item.resolution.width) * f64::from(item.resolution.height);
        let lost = item.fit.lost((picture.width, picture.height));
        if w * h * 4.0 < wanted {
            small.push(format!("{} ({}×{} at {})", picture.file, picture.width, picture.height, item.bucket));
        } else if item.fit.scale > 1.1 {
            enlarged.push(format!("{} ({:.2} times)", picture.file, item.fit.scale));
        }
        if lost > CROPPED || w.max(h) > LONG * w.min(h) {
            cut.push(format!("{} ({}×{}, {:.0} % cut off)", picture.file, picture.width, picture.height, lost * 100.0));
        }
    }
    let lower = "find larger versions, or train at a lower resolution".to_string();
    let cropped = "crop them by hand to what matters".to_string();
    let rows = [
        (Kind::Small, small, "with less than a quarter of the pixels of the resolution", lower),
        (Kind::Enlarged, enlarged, "enlarged to fill a bucket", against_enlarging(dataset)),
        (Kind::Cropped, cut, "very long, or losing much to the crop", cropped),
    ];
    let filled = rows.into_iter().filter(|(_, files, ..)| !files.is_empty());
    filled
        .map(|(kind, files, what, advice)| Finding::new(kind, files.clone(), format!("{} {what}", counted(files.len(), "picture")), advice))
        .collect()
}

/// What leaves pictures as small as they are, where it is not chosen already.
fn against_enlarging(dataset: &Dataset) -> String {
    let small_stay_small = |scheme: Scheme| matches!(scheme, Scheme::Ratio | Scheme::OwnSize);
    match dataset.options.iter().find(|options| !small_stay_small(options.scheme)) {
        Some(DatasetOptions { scheme: Scheme::Fixed, .. }) => {
            "find larger versions, or use buckets: true, which leaves small pictures small (with bucket_scheme: ratio)".to_string()
        }
        Some(_) => "find larger versions, or use bucket_scheme: ratio, which leaves small pictures small".to_string(),
        None => {
            let step = dataset.options.iter().map(|options| options.step).max().unwrap_or_default();
            format!("they have a side below the smallest of a bucket ({step}, bucket_step): find larger versions, or take them out")
        }
    }
}
