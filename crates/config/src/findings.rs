//! What resolving a config finds: what a user should know of it, and everything that is wrong with it. Reading goes on behind a value
//! that is wrong, so that a file is mended in one go.

use anyhow::Result;

/// Letters of an error; without an endless value none has as many.
const LONGEST: usize = 800;

#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub notices: Vec<String>,
    wrong: Vec<String>,
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
        if !self.wrong.contains(&text) {
            self.wrong.push(text);
        }
    }

    /// The notices, or everything that is wrong.
    pub fn finish(self) -> std::result::Result<Vec<String>, Vec<String>> {
        if self.wrong.is_empty() { Ok(self.notices) } else { Err(self.wrong) }
    }
}
