//! Names of tensors: canonical (diffusers names with the component in front) ↔ the names in checkpoint files.
//!
//! The knowledge is rows in [`table`]; this module only expands them ([`rows`]) and looks keys up ([`Names`]). Every lookup
//! matches a whole key: a key that no row knows is reported, never guessed at. Block numbers that differ between the layouts
//! are computed from [`Blocks`], which is read off the keys themselves.

mod blocks;
mod pattern;
mod rows;
mod table;

pub use blocks::Blocks;
pub use pattern::Pattern;
pub use rows::{Row, Transform, diffusers_rows, module_patterns, original_rows};
pub use table::Role;

use std::collections::BTreeMap;

/// What a file's key means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// One canonical tensor, or several where the file fuses them (OpenCLIP's `in_proj`).
    Tensors(Vec<(String, Transform)>),
    /// Known, and rightly not part of a model that is trained or sampled (EMA copies, schedule buffers, …).
    Ignored,
    /// No row matches.
    Unknown,
}

/// The rows of one layout, indexed for lookup by file key.
pub struct Names {
    rows: Vec<Row>,
    blocks: Blocks,
    /// Row numbers by the text before a source pattern's first number.
    by_start: BTreeMap<String, Vec<usize>>,
}

impl Names {
    pub fn new(rows: Vec<Row>, blocks: Blocks) -> Names {
        let mut by_start: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (number, row) in rows.iter().enumerate() {
            by_start.entry(row.source.start().to_owned()).or_default().push(number);
        }
        Names { rows, blocks, by_start }
    }

    /// File key → canonical names.
    pub fn meaning(&self, key: &str) -> Meaning {
        if table::is_ignored(key) || self.is_unused_last_layer(key) {
            return Meaning::Ignored;
        }
        let mut found = Vec::new();
        for row in self.candidates(key) {
            if let Some(indices) = row.source.read(key, &self.blocks)
                && let Some(name) = row.ours.write(&indices, &self.blocks)
            {
                found.push((name, row.transform));
            }
        }
        if found.is_empty() { Meaning::Unknown } else { Meaning::Tensors(found) }
    }

    /// Canonical name → file key, by the first row that knows the name.
    pub fn source(&self, name: &str) -> Option<(String, Transform)> {
        self.rows.iter().find_map(|row| {
            let indices = row.ours.read(name, &self.blocks)?;
            Some((row.source.write(&indices, &self.blocks)?, row.transform))
        })
    }

    /// Rows whose literal start is a prefix of `key`.
    fn candidates(&self, key: &str) -> impl Iterator<Item = &Row> {
        let starts = (0..=key.len()).filter(|end| key.is_char_boundary(*end)).filter_map(|end| self.by_start.get(&key[..end]));
        starts.flatten().map(|number| &self.rows[*number])
    }

    /// Stable Diffusion 2 takes the hidden states before OpenCLIP's last block, so conversions (and we) leave that block out.
    fn is_unused_last_layer(&self, key: &str) -> bool {
        self.blocks
            .open_clip_layers
            .is_some_and(|layers| key.starts_with(&format!("{}{}.", table::OPEN_CLIP_LAYER, layers.saturating_sub(1))))
    }
}

#[cfg(test)]
mod tests;
