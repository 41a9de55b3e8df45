//! Everything that is wrong with a config in one error: a line for each, with its place.

use crate::error::{Consequences, Wrong};
use crate::places::Places;
use crate::reader::MOST;
use crate::tree::Place;
use std::fmt;

/// Why a config can't be used. No error holds the end of a line, so that each is one.
#[derive(Debug)]
pub struct Refusal {
    origin: String,
    /// The first errors, as they stand in the file: `file:line:column: what is wrong`.
    pub errors: Vec<String>,
    /// Errors beside these.
    pub more: usize,
    /// Whether reading was given up with errors unseen.
    is_cut: bool,
}

impl Refusal {
    /// What can't be read, and what was read and can't be so (with the number of those that are not kept), unless that only follows from
    /// the other.
    pub(crate) fn of(unread: &[Wrong], judged: &[String], more: usize, places: &Places) -> Refusal {
        let is_cut = unread.len() >= MOST;
        let causes: Vec<Consequences> = unread.iter().filter_map(Wrong::consequences).collect();
        let judged = judged.iter().filter(|error| !is_cut && !causes.iter().any(|cause| cause.include(error)));
        let judged = judged.map(|error| (places.locate(error), error.clone()));
        let mut errors: Vec<(Place, String)> = unread.iter().map(|wrong| (wrong.place, wrong.text())).chain(judged).collect();
        errors.sort_by_key(|(place, _)| *place);
        let more = errors.len().saturating_sub(MOST) + if is_cut { 0 } else { more };
        let located = errors.iter().take(MOST).map(|(place, text)| base::visible(&format!("{}: {text}", places.show(*place))));
        Refusal { origin: base::visible(places.origin), errors: located.collect(), more, is_cut }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([error], 0, false) = (&self.errors[..], self.more, self.is_cut) {
            return f.write_str(error);
        }
        let least = if self.is_cut { "at least " } else { "" };
        write!(f, "{least}{} keys of {} can't be used as they are:", self.errors.len() + self.more, self.origin)?;
        self.errors.iter().try_for_each(|error| write!(f, "\n  {error}"))?;
        if self.more > 0 {
            write!(f, "\n  … and {} more", self.more)?;
        }
        Ok(())
    }
}

impl std::error::Error for Refusal {}
