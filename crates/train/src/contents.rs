//! What the pictures of a run, their masks and captions hold, in a word each: so a resumed run can name what has changed.

use crate::prepare::Prepared;
use base::some_of;
use data::Mask;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// By dataset and file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Contents(BTreeMap<String, Content>);

/// Words of a picture, its mask and its caption.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Content {
    picture: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mask: Option<String>,
    caption: String,
}

/// The first of several datasets needs no name.
fn name(dataset: usize, file: &str) -> String {
    if dataset == 0 { file.to_string() } else { format!("datasets[{dataset}] {file}") }
}

fn word(content: &[u8; 32]) -> String {
    content[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl Contents {
    pub fn of(run: &Prepared) -> Contents {
        let content = |entry: &data::dataset::Entry| Content {
            picture: word(&entry.picture.content),
            mask: entry.mask.as_ref().map(|mask| match mask {
                Mask::Alpha => "alpha".to_string(),
                Mask::File(mask) => word(&mask.content),
            }),
            caption: format!("{:016x}", base::rng::name_word(&entry.caption.text)),
        };
        let entries = run.dataset.entries.iter();
        Contents(entries.map(|entry| (name(entry.dataset, &entry.picture.file), content(entry))).collect())
    }

    /// What is other than in the saved run, one line for each kind of change.
    pub fn changes(&self, saved: &Contents) -> Vec<String> {
        let both = || self.0.iter().filter_map(|(file, now)| Some((file.as_str(), now, saved.0.get(file)?)));
        let only = |here: &Contents, there: &Contents| -> Vec<String> {
            here.0.keys().filter(|file| !there.0.contains_key(*file)).cloned().collect()
        };
        let picked = |pick: &dyn Fn(&Content, &Content) -> bool| -> Vec<String> {
            both().filter(|(_, now, saved)| pick(now, saved)).map(|(file, ..)| file.to_string()).collect()
        };
        let lines = [
            line("picture", Change::Differs, &picked(&|now, saved| now.picture != saved.picture)),
            line("picture", Change::Comes, &only(self, saved)),
            line("picture", Change::Goes, &only(saved, self)),
            line("mask", Change::Differs, &picked(&|now, saved| now.mask.is_some() && saved.mask.is_some() && now.mask != saved.mask)),
            line("mask", Change::Comes, &picked(&|now, saved| now.mask.is_some() && saved.mask.is_none())),
            line("mask", Change::Goes, &picked(&|now, saved| now.mask.is_none() && saved.mask.is_some())),
            line("caption", Change::Differs, &picked(&|now, saved| now.caption != saved.caption)),
        ];
        lines.into_iter().flatten().collect()
    }
}

enum Change {
    Differs,
    Comes,
    Goes,
}

fn line(noun: &str, change: Change, files: &[String]) -> Option<String> {
    let names: Vec<&str> = files.iter().map(String::as_str).collect();
    let (count, is_one) = (base::counted(files.len(), noun), files.len() == 1);
    let what = match (change, is_one) {
        (Change::Differs, true) => format!("{count} differs from the saved run's"),
        (Change::Differs, false) => format!("{count} differ from the saved run's"),
        (Change::Comes, true) => format!("{count} is not in the saved run"),
        (Change::Comes, false) => format!("{count} are not in the saved run"),
        (Change::Goes, true) => format!("{count} of the saved run is gone"),
        (Change::Goes, false) => format!("{count} of the saved run are gone"),
    };
    (!files.is_empty()).then(|| format!("{what}: {}", some_of(&names)))
}
