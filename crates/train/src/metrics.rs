//! `metrics.jsonl`: one row for each optimizer step. Rows beyond the step that a run resumes from are cut off first.

use crate::append::Appended;
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Wall time of a step by what it went into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Waiting for data: latents, embeddings, noise, captions and timesteps, which are made ahead of the step.
    pub data: f64,
    /// Forward and backward, and the VAE where latents are not cached.
    pub compute: f64,
    /// Reading gradients, clipping, the optimizer, writing parameters.
    pub optimizer: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Steps done after this one: the first row has 1.
    pub step: u64,
    /// Passes over the data, at the end of the step.
    pub epoch: f64,
    /// Mean over the step's items; null if it is not a finite number.
    pub loss: Option<f64>,
    /// Of the pictures that are set aside, where it was measured after this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// Mean loss against the frozen model's predictions; absent unless they are to be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preservation_loss: Option<f64>,
    /// The rate of this step's update (before the groups' own factors).
    pub lr: f64,
    /// What an adaptive optimizer has arrived at (`d`, `rate`), by name; absent for others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub adapted: BTreeMap<String, f64>,
    /// Norm of the gradient before clipping; null if it is not a finite number.
    pub grad_norm: Option<f64>,
    /// The pictures of this step, relative to their dataset's folder.
    pub files: Vec<String>,
    /// 1 if the update was not applied: the loss or a gradient was not finite, or all of the step's pictures have gone away.
    pub skipped: u64,
    /// What the loss was multiplied by in this step; only in fp16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// 1 if gradients overflowed fp16, so that the next step's scale is smaller; only in fp16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overflow: Option<u64>,
    pub seconds: Seconds,
    /// Peak resident memory of the process so far, in bytes.
    pub peak_bytes: u64,
}

/// A number, or nothing for NaN and infinities, which JSON can't say.
pub fn finite(value: f64) -> Option<f64> {
    value.is_finite().then_some(value)
}

pub struct Metrics {
    rows: Appended,
}

impl Metrics {
    /// Opens the file of a run that has done `step` steps: later rows, and a last row that was cut by a crash, are removed.
    pub fn open(path: &Path, step: u64) -> Result<Metrics> {
        if path.exists() {
            // Lines stay as they were written: a number read and written again could differ in its last digit.
            let kept = lines(path)?.into_iter().filter(|(row, _)| row.step <= step);
            let rows: Vec<String> = kept.map(|(_, line)| line + "\n").collect();
            base::fs::write_atomic(path, rows.concat().as_bytes())?;
        }
        Ok(Metrics { rows: Appended::open(path)? })
    }

    pub fn append(&mut self, row: &Row) -> Result<()> {
        self.rows.append(to_line(row)?.as_bytes())
    }

    /// Writes the rows that a full disk has not taken yet.
    pub fn flush(&mut self) -> Result<()> {
        self.rows.flush()
    }
}

fn to_line(row: &Row) -> Result<String> {
    Ok(serde_json::to_string(row)? + "\n")
}

/// All whole rows of a metrics file.
pub fn read(path: &Path) -> Result<Vec<Row>> {
    Ok(lines(path)?.into_iter().map(|(row, _)| row).collect())
}

/// All whole rows, each with its text.
fn lines(path: &Path) -> Result<Vec<(Row, String)>> {
    let text = base::fs::read_text(path)?;
    let count = text.lines().count();
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        match serde_json::from_str(line) {
            Ok(row) => rows.push((row, line.to_string())),
            // Only the last line can be half a row: the process died while writing it.
            Err(_) if number + 1 == count => {}
            Err(error) => return Err(error).with_context(|| format!("{} line {} is no metrics row", path.display(), number + 1)),
        }
    }
    Ok(rows)
}

/// Peak resident memory of this process (VmHWM), or 0 where the system does not say.
pub fn peak_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// Resident memory of this process now (VmRSS), or 0 where the system does not say.
pub fn resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

fn status_bytes(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kilobytes = status.lines().find_map(|l| l.strip_prefix(key)?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kilobytes.unwrap_or(0) * 1024
}

/// Seconds of processor time that all threads of this process have had, where the system says so (in hundredths).
pub fn processor_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The program's name stands in brackets and may hold anything; user and system time are the 12th and 13th words after it.
    let words: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |word: usize| words.get(word)?.parse::<u64>().ok();
    Some((ticks(11)? + ticks(12)?) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(step: u64) -> Row {
        Row {
            step,
            epoch: 0.5,
            loss: Some(0.1),
            validation_loss: None,
            preservation_loss: None,
            lr: 1e-4,
            adapted: BTreeMap::from([("d".to_string(), 0.5)]),
            grad_norm: None,
            files: vec!["a b.png".into()],
            skipped: 0,
            loss_scale: None,
            overflow: None,
            seconds: Seconds::default(),
            peak_bytes: 7,
        }
    }

    #[test]
    fn reopening_cuts_rows_after_the_resumed_step_and_a_torn_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let mut metrics = Metrics::open(&path, 0).unwrap();
        (1..=4).for_each(|step| metrics.append(&row(step)).unwrap());
        let torn = std::fs::read_to_string(&path).unwrap() + "{\"step\": 5, \"ep";
        std::fs::write(&path, torn).unwrap();
        let mut metrics = Metrics::open(&path, 2).unwrap();
        metrics.append(&row(3)).unwrap();
        assert_eq!(read(&path).unwrap(), [row(1), row(2), row(3)]);
    }

    #[test]
    fn a_bad_row_in_the_middle_is_an_error_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        std::fs::write(&path, "{}\n{}\n").unwrap();
        assert!(format!("{:#}", read(&path).unwrap_err()).contains("line 1"));
    }
}
