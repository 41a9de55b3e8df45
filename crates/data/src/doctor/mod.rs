//! What is odd about a dataset, and what to do about it. Nothing here is an error: a person decides.
//!
//! `look` measures pictures as they would be trained on; `words` reads the captions. A finding has one kind, so that programs can pick.

mod look;
mod words;

pub use look::Look;
pub use words::CaptionStatistics;

use crate::bucket::Scheme;
use crate::dataset::{Dataset, Role};
use crate::report::ImageRow;
use anyhow::Result;
use base::{counted, visible};
use rayon::prelude::*;
use serde::Serialize;
use std::fmt;

/// Files that a finding names one by one for people; programs get all of them.
const MOST_SHOWN: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Unusable,
    Duplicate,
    NearDuplicate,
    Blurred,
    Small,
    Enlarged,
    Cropped,
    LonelyShapes,
    NoCaption,
    LongCaption,
    SameCaption,
    OddCaption,
    Trigger,
    Warning,
}

/// Files that share an oddity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub kind: Kind,
    pub files: Vec<String>,
    pub what: String,
    pub advice: String,
}

impl Finding {
    fn new(kind: Kind, files: Vec<String>, what: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { kind, files, what: what.into(), advice: advice.into() }
    }
}

/// What is asked of a dataset.
pub struct Questions<'a> {
    /// Tokens of a text, without start and end.
    pub tokens: &'a (dyn Fn(&str) -> usize + Sync),
    /// Tokens that a text encoder reads at once.
    pub token_limit: usize,
}

/// All that is known of a dataset without training on it.
#[derive(Clone, Debug, Serialize)]
pub struct Diagnosis {
    pub images: Vec<ImageRow>,
    /// What each usable picture looks like at its bucket's size, in the order of `images`.
    pub looks: Vec<Look>,
    pub captions: CaptionStatistics,
    pub summary: Vec<String>,
    pub findings: Vec<Finding>,
}

impl Diagnosis {
    /// Reads every picture once more. Pictures that went away in the meantime are findings.
    pub fn new(dataset: &Dataset, questions: &Questions) -> Result<Diagnosis> {
        let measured: Vec<Result<Look>> = (0..dataset.items.len()).into_par_iter().map(|item| Look::of(dataset, item)).collect();
        let mut findings: Vec<Finding> = unusable(dataset).into_iter().collect();
        let mut looks = Vec::new();
        for (item, look) in measured.into_iter().enumerate() {
            match look {
                Ok(look) => looks.push(look),
                Err(error) => {
                    let file = dataset.entry(item).picture.file.clone();
                    findings.push(Finding::new(Kind::Unusable, vec![file], format!("{error:#}"), "mend it, or take it out"));
                }
            }
        }
        findings.extend(look::findings(dataset, &looks));
        let captions = CaptionStatistics::new(dataset, questions);
        findings.extend(words::findings(dataset, questions));
        findings.extend(lonely(dataset));
        findings.extend(warned(dataset));
        findings.sort_by_key(|finding| finding.kind);
        Ok(Diagnosis { images: dataset.rows(), looks, captions, summary: dataset.counts(), findings })
    }
}

/// What the scan has left out.
fn unusable(dataset: &Dataset) -> Option<Finding> {
    let files: Vec<String> = dataset.rejected.iter().map(|(_, rejected)| format!("{}: {}", rejected.file, rejected.reason)).collect();
    let what = format!("{} that can't be used", counted(files.len(), "file"));
    (!files.is_empty()).then(|| Finding::new(Kind::Unusable, files, what, "mend or convert them, or take them out"))
}

/// What the scan has used and wondered about.
fn warned(dataset: &Dataset) -> Option<Finding> {
    let warned = dataset.entries.iter().filter_map(|entry| {
        let warnings: Vec<&str> = [&entry.picture.warning, &entry.caption.warning].into_iter().flatten().map(String::as_str).collect();
        (!warnings.is_empty()).then(|| format!("{}: {}", entry.picture.file, warnings.join("; ")))
    });
    let files: Vec<String> = warned.collect();
    let what = format!("{} read with reservations", counted(files.len(), "file"));
    (!files.is_empty()).then(|| Finding::new(Kind::Warning, files, what, "look at them: what is used may not be what was meant"))
}

/// Shapes that a single picture has: it is alone in its batches.
fn lonely(dataset: &Dataset) -> Option<Finding> {
    let counts = dataset.bucket_counts();
    let alone = |bucket| counts.get(bucket).copied() == Some(1);
    let learned = dataset.items.iter().filter(|item| item.role == Role::Train);
    let files: Vec<String> =
        learned.filter(|item| alone(&item.bucket)).map(|item| dataset.entries[item.entry].picture.file.clone()).collect();
    let what = format!("{} of {} sizes are those of one picture only: such a picture is alone in its batch", files.len(), counts.len());
    let coarser = match dataset.options.iter().map(|options| options.scheme).find(|scheme| !matches!(scheme, Scheme::List(_))) {
        Some(Scheme::OwnSize) => "bucket_no_upscale: false or ",
        Some(Scheme::Ratio) => "bucket_scheme: list or ",
        _ => "",
    };
    let advice = format!("at a batch size above 1: crop pictures to fewer shapes, or use {coarser}a larger bucket_step");
    (files.len() * 2 > counts.len() && counts.len() > 2).then(|| Finding::new(Kind::LonelyShapes, files, what, advice))
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", visible(&self.what))?;
        self.files.iter().take(MOST_SHOWN).try_for_each(|file| writeln!(f, "    {}", visible(file)))?;
        if self.files.len() > MOST_SHOWN {
            writeln!(f, "    and {} more (--json lists all)", self.files.len() - MOST_SHOWN)?;
        }
        writeln!(f, "  → {}", self.advice)
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.summary.iter().try_for_each(|line| writeln!(f, "{}", visible(line)))?;
        writeln!(f, "{}", self.captions)?;
        if self.findings.is_empty() {
            return writeln!(f, "nothing odd was found");
        }
        self.findings.iter().try_for_each(|finding| write!(f, "{finding}"))
    }
}
