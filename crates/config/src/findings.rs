//! What resolving a config finds: what a user should know of it, and everything that is wrong with it. Reading goes on behind a value
//! that is wrong, so that a file is mended in one go.

use anyhow::Result;
use std::collections::HashSet;

/// Letters of an error; without an endless value none has as many.
const LONGEST: usize = 800;

/// Errors that are kept; what is beyond is counted.
const MOST: usize = 1000;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub notices: Vec<String>,
    wrong: Vec<String>,
    told: HashSet<String>,
    /// Errors that are not kept.
    pub more: usize,
}

impl Findings {
    pub fn notice(&mut self, text: impl Into<String>) {
        self.notices.push(text.into());
    }

    /// The value; where it is wrong that is kept, and `stand_in` takes its place: one that gives no cause for other errors.
    pub fn or<T>(&mut self, value: Result<T>, stand_in: T) -> T {
        value.unwrap_or_else(|error| {
            self.wrong(format!("{error:#}"));
            stand_in
        })
    }

    /// Keeps what is wrong with settings that are read already.
    pub fn check(&mut self, checked: Result<()>) {
        self.or(checked, ());
    }

    /// Two sections may stumble over the same key: once is enough. A value that makes an error endless is cut.
    pub fn wrong(&mut self, text: String) {
        let text = base::excerpt(&text, LONGEST);
        if self.wrong.len() == MOST {
            self.more += usize::from(!self.told.contains(&text));
        } else if self.told.insert(text.clone()) {
            self.wrong.push(text);
        }
    }

    /// The notices, or everything that is wrong.
    pub fn finish(self) -> std::result::Result<Vec<String>, Vec<String>> {
        if self.wrong.is_empty() { Ok(self.notices) } else { Err(self.wrong) }
    }
}
