//! Which pictures are set aside for validation: a share of each dataset, and whatever has their content in the others.

use crate::dataset::{Entry, Purpose, Role};
use base::{counted, some_of};
use std::collections::{BTreeMap, BTreeSet};

/// Sets a share of a dataset's pictures aside: those whose content has the smallest hash, so that the choice stays when others come
/// and go.
pub fn choose(entries: &mut [Entry], purpose: Purpose) {
    let Purpose::Train { validation } = purpose else { return };
    let count = entries.len();
    let chosen = match validation {
        share if share <= 0.0 => 0,
        share if share >= 1.0 => count,
        share => ((share * count as f64).round() as usize).clamp(1, count.max(2) - 1).min(count.saturating_sub(1)),
    };
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|entry| entries[*entry].picture.content);
    order.iter().take(chosen).for_each(|entry| entries[*entry].role = Role::Validate);
}

/// A file that is set aside in one place is in all: learned at another resolution or under another name, it would measure nothing any
/// more. Gives a note for each dataset that loses pictures so.
pub fn hold_out(entries: &mut [Entry]) -> Vec<String> {
    let aside: BTreeSet<[u8; 32]> =
        entries.iter().filter(|entry| entry.role == Role::Validate).map(|entry| entry.picture.content).collect();
    let mut held: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for entry in entries.iter_mut().filter(|entry| entry.role != Role::Validate && aside.contains(&entry.picture.content)) {
        entry.role = Role::Validate;
        held.entry(entry.dataset).or_default().push(entry.picture.file.clone());
    }
    let note = |(dataset, files): (usize, Vec<String>)| {
        let names: Vec<&str> = files.iter().map(String::as_str).collect();
        let (is, their) = if files.len() == 1 { ("is", "its") } else { ("are", "their") };
        format!(
            "datasets[{dataset}]: {} {is} for validation too and never trained on, as {their} content is set aside in another place: {}",
            counted(files.len(), "picture"),
            some_of(&names)
        )
    };
    held.into_iter().map(note).collect()
}
