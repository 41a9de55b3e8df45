//! Everything that a run has to say, as values: the terminal, a log and the tests read the same stream.

use crate::metrics::Row;
use crate::usage::Usage;
use std::path::Path;

/// What happens in a run.
#[derive(Debug)]
pub enum Event<'a> {
    /// Good to know.
    Notice(String),
    /// Something that the user may want to change.
    Warning(String),
    /// A stretch of work of `total` units begins (encoding latents, sampling, …).
    Begin {
        what: &'a str,
        total: u64,
    },
    /// `done` of the units of the stretch that began last.
    Done {
        done: u64,
    },
    /// The stretch is over.
    End,
    /// Training starts at this step, out of so many.
    Training {
        first: u64,
        total: u64,
    },
    Step(&'a Row),
    Saved(&'a Path),
    Sampled(&'a Path),
    /// A stretch of work is over, and took this.
    Memory(&'a str, Usage),
}

/// Who listens.
pub trait Reporter {
    fn report(&mut self, event: Event);
}

/// Listens to nothing.
pub struct Silent;

impl Reporter for Silent {
    fn report(&mut self, _: Event) {}
}
