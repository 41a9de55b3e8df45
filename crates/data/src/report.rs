//! A dataset in rows and sentences: what `plan` prints before anything is trained.

use crate::bucket::{Bucket, Resolution};
use crate::caption::CaptionSource;
use crate::dataset::{Dataset, DatasetOptions, Entry, Purpose, Role};
use crate::mask::Mask;
use base::counted;
use serde::Serialize;

/// One item, or one file that is not used.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImageRow {
    /// Relative to the folder of its dataset.
    pub file: String,
    pub used: bool,
    /// Why it is not used; or a warning about one that is.
    pub reason: Option<String>,
    /// Decoded, with the trigger word, before anything is drawn.
    pub caption: Option<String>,
    pub caption_source: Option<CaptionSource>,
    pub bucket: Option<Bucket>,
    pub repeats: u32,
    /// To be learned, for regularisation, or to measure with.
    pub role: Option<Role>,
    pub dataset: usize,
    pub resolution: Option<Resolution>,
    /// What it is weighed by: `alpha`, or the file of its mask; absent: all of it counts.
    pub mask: Option<String>,
    /// Of the upright picture.
    pub size: Option<[u32; 2]>,
    /// Bucket pixels per picture pixel.
    pub scale: Option<f64>,
    /// Left, top, width, height of the part that is used.
    pub crop: Option<[f64; 4]>,
    /// Share of the picture that the crop cuts off.
    pub lost: Option<f64>,
    /// Names of what is made of it below `dump_pixels`, where that is asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dumped: Vec<String>,
}

impl Dataset {
    /// All items and then all rejected files, dataset by dataset.
    pub fn rows(&self) -> Vec<ImageRow> {
        let used = (0..self.items.len()).map(|i| self.used_row(i));
        let unused = self.rejected.iter().map(|(dataset, rejected)| ImageRow {
            file: rejected.file.clone(),
            used: false,
            reason: Some(rejected.reason.clone()),
            caption: None,
            caption_source: None,
            bucket: None,
            repeats: 0,
            role: None,
            dataset: *dataset,
            resolution: None,
            mask: None,
            size: None,
            scale: None,
            crop: None,
            lost: None,
            dumped: Vec::new(),
        });
        let mut rows: Vec<ImageRow> = used.chain(unused).collect();
        rows.sort_by_key(|row| (row.dataset, !row.used));
        rows
    }

    fn used_row(&self, index: usize) -> ImageRow {
        let (item, entry) = (&self.items[index], self.entry(index));
        ImageRow {
            file: entry.picture.file.clone(),
            used: true,
            reason: warnings(entry),
            caption: Some(self.options[item.dataset].caption.whole(&entry.caption.text)),
            caption_source: Some(entry.caption.source),
            bucket: Some(item.bucket),
            repeats: item.repeats,
            role: Some(item.role),
            dataset: item.dataset,
            resolution: Some(item.resolution),
            mask: entry.mask.as_ref().map(mask_name),
            size: Some([entry.picture.width, entry.picture.height]),
            scale: Some(item.fit.scale),
            crop: Some(item.fit.crop),
            lost: Some(item.fit.lost((entry.picture.width, entry.picture.height))),
            dumped: Vec::new(),
        }
    }

    /// The counts, and each file that is odd or not used. One line each.
    pub fn summary(&self) -> Vec<String> {
        let mut lines = self.counts();
        lines.extend(self.entries.iter().filter_map(|e| warnings(e).map(|w| format!("{}: {w}", e.picture.file))));
        lines.extend(self.rejected.iter().map(|(_, r)| format!("not used: {}: {}", r.file, r.reason)));
        lines
    }

    /// Counts in sentences: pictures, captions, losses. One line each.
    pub fn counts(&self) -> Vec<String> {
        let unused = if self.rejected.is_empty() { String::new() } else { format!("; {} not used", counted(self.rejected.len(), "file")) };
        let mut lines = vec![format!(
            "{} in {}, {} an epoch{unused}",
            counted(self.entries.len(), "picture"),
            counted(self.bucket_counts().len(), "bucket"),
            counted(self.bucket_counts().values().sum::<u64>(), "occurrence")
        )];
        lines.extend(self.set_lines());
        let captions = self.caption_counts();
        let count = |source| captions.get(&source).copied().unwrap_or(0);
        let (missing, empty) = (count(CaptionSource::Missing), count(CaptionSource::EmptyFile));
        let (listed, named) = (count(CaptionSource::Metadata), count(CaptionSource::Folder));
        if missing + empty + listed + named > 0 {
            let read = count(CaptionSource::File);
            lines.push(format!("captions: {read} from files, {listed} from lists, {named} from the names of folders"));
        }
        if missing + empty > 0 {
            lines.push(format!("captions: {missing} missing and {empty} empty (default caption, else trigger word, else nothing)"));
        }
        lines.extend(self.notes.iter().cloned());
        let enlarged = self.items.iter().filter(|item| item.fit.scale > 1.0).count();
        if enlarged > 0 {
            let (are, their) = if enlarged == 1 { ("is", "its") } else { ("are", "their") };
            lines.push(format!("{enlarged} {are} enlarged to fill {their} bucket"));
        }
        let cropped = (0..self.items.len())
            .filter(|i| self.items[*i].fit.lost((self.entry(*i).picture.width, self.entry(*i).picture.height)) > 0.2)
            .count();
        if cropped > 0 {
            let (lose, their) = if cropped == 1 { ("loses", "its") } else { ("lose", "their") };
            lines.push(format!("{cropped} {lose} more than a fifth of {their} area to the crop"));
        }
        lines
    }
}

impl Dataset {
    /// A line for each dataset where there are several, or where not all pictures are for learning.
    fn set_lines(&self) -> Vec<String> {
        if self.options.len() == 1 && self.entries.iter().all(|entry| entry.role == Role::Train) {
            return Vec::new();
        }
        let line = |(index, options): (usize, &DatasetOptions)| {
            let count = |role| self.entries.iter().filter(|entry| entry.dataset == index && entry.role == role).count();
            let counts = [(Role::Train, "to learn"), (Role::Regularise, "for regularisation"), (Role::Validate, "for validation")];
            let counts = counts.map(|(role, what)| (count(role), what)).into_iter().filter(|(count, _)| *count > 0);
            let counts: Vec<String> = counts.map(|(count, what)| format!("{} {what}", counted(count, "picture"))).collect();
            let ratio = match options.purpose {
                Purpose::Regularise { ratio } => format!(", {ratio} for each picture to learn"),
                Purpose::Train { .. } => String::new(),
            };
            format!("datasets[{index}] {}: {}{ratio}", options.folder.display(), counts.join(", "))
        };
        self.options.iter().enumerate().map(line).collect()
    }
}

fn mask_name(mask: &Mask) -> String {
    match mask {
        Mask::Alpha => "alpha".to_string(),
        Mask::File(mask) => mask.path.display().to_string(),
    }
}

/// What is odd about a picture that is used, or its caption.
fn warnings(entry: &Entry) -> Option<String> {
    let warnings: Vec<&str> = [&entry.picture.warning, &entry.caption.warning].into_iter().flatten().map(String::as_str).collect();
    (!warnings.is_empty()).then(|| warnings.join("; "))
}
