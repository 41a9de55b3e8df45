//! The run's folder: names of its files, a lock against two runs at once, and the rule for a folder that holds a run already.

use anyhow::{Context, Result, bail};
use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

/// How a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// A new run; a folder that holds one already is an error.
    New,
    /// Goes on from the newest state; without one it begins.
    Resume,
    /// A new run; what the folder held is moved aside.
    Over,
}

pub struct RunFolder {
    path: PathBuf,
    name: String,
    /// Held while the run lives.
    _lock: File,
}

impl RunFolder {
    pub fn open(path: &Path, name: &str, start: Start) -> Result<RunFolder> {
        if start != Start::Resume && has_run(path) {
            // A run that is still training there must not lose its folder, nor be offered to.
            let _own = lock(path)?;
            if start == Start::New {
                bail!(
                    "{} already holds a run: add --resume to go on with it, --over to move it aside and begin anew, or change `name`",
                    path.display()
                );
            }
            move_aside(path)?;
        }
        base::fs::create_dir(path)?;
        let lock = lock(path)?;
        base::fs::sweep_parts(path);
        Ok(RunFolder { path: path.into(), name: name.into(), _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn states(&self) -> PathBuf {
        self.path.join("state")
    }

    pub fn metrics(&self) -> PathBuf {
        self.path.join("metrics.jsonl")
    }

    pub fn tensorboard(&self) -> PathBuf {
        self.path.join("tensorboard")
    }

    pub fn samples(&self) -> PathBuf {
        self.path.join("samples")
    }

    /// The LoRA of the finished run.
    pub fn final_lora(&self) -> PathBuf {
        self.path.join(format!("{}.safetensors", self.name))
    }

    /// The LoRA as it was after `step` steps.
    pub fn step_lora(&self, step: u64) -> PathBuf {
        self.path.join(format!("{}_{step:09}.safetensors", self.name))
    }

    /// Keeps the LoRA of a finished run of `step` steps, which is to be trained on, beside what will take its name. Returns its new file,
    /// unless there is nothing to keep.
    pub fn keep_finished(&self, step: u64) -> Result<Option<PathBuf>> {
        let (finished, kept) = (self.final_lora(), self.step_lora(step));
        if !finished.exists() || kept.exists() {
            return Ok(None);
        }
        let mut from = File::open(&finished).with_context(|| format!("can't open {}", finished.display()))?;
        base::fs::write_atomic_with(&kept, |to| Ok(std::io::copy(&mut from, to).map(drop)?))?;
        Ok(Some(kept))
    }

    /// Whether a run has left LoRA files here.
    pub fn has_loras(&self) -> bool {
        self.final_lora().exists() || !self.steps().is_empty()
    }

    /// Steps of which a LoRA file is here, in order.
    fn steps(&self) -> Vec<u64> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().flatten();
        let mut steps: Vec<u64> = entries.filter_map(|e| self.step_of(&e.file_name().to_string_lossy())).collect();
        steps.sort_unstable();
        steps
    }

    /// Bytes of the LoRA files that the run has left here so far.
    pub fn lora_bytes(&self) -> u64 {
        let files = self.steps().into_iter().map(|step| self.step_lora(step)).chain([self.final_lora()]);
        files.filter_map(|file| file.metadata().ok()).map(|about| about.len()).sum()
    }

    /// Removes the LoRA files of all but the newest `keep` steps. Only names that this run writes are touched.
    pub fn prune_loras(&self, keep: usize) -> Result<()> {
        let steps = self.steps();
        for step in &steps[..steps.len().saturating_sub(keep)] {
            let path = self.step_lora(*step);
            std::fs::remove_file(&path).with_context(|| format!("can't remove {}", path.display()))?;
        }
        Ok(())
    }

    fn step_of(&self, file: &str) -> Option<u64> {
        let digits = file.strip_prefix(&self.name)?.strip_prefix('_')?.strip_suffix(".safetensors")?;
        (digits.len() == 9 && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
    }
}

/// The lock of a run's folder, which is held while a run trains there.
fn lock(path: &Path) -> Result<File> {
    let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(".lock"));
    let lock = lock.with_context(|| format!("{} can't be written", path.display()))?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => bail!("another velatura is training in {}; wait for it or change `name`", path.display()),
        // Some network file systems have no locks; a run must not fail for it.
        Err(TryLockError::Error(_)) => {}
    }
    Ok(lock)
}

/// Whether a run has left anything that must not be lost.
fn has_run(path: &Path) -> bool {
    !crate::state::list(&path.join("state")).is_empty() || path.join("metrics.jsonl").exists()
}

fn move_aside(path: &Path) -> Result<()> {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let free = (1..).map(|i| path.with_file_name(format!("{name}.old-{i}"))).find(|p| !p.exists());
    base::fs::rename(path, &free.context("no name is left to move the old run to")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pruning_goes_by_number_and_leaves_foreign_files() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(dir.path(), "a.b", Start::New).unwrap();
        for step in [5, 10, 100] {
            std::fs::write(folder.step_lora(step), "x").unwrap();
        }
        for foreign in ["a.b.safetensors", "a.b_12.safetensors", "other_000000001.safetensors", "a.b_000000001.txt"] {
            std::fs::write(dir.path().join(foreign), "x").unwrap();
        }
        folder.prune_loras(1).unwrap();
        assert!(!folder.step_lora(5).exists() && !folder.step_lora(10).exists() && folder.step_lora(100).exists());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1 + 4 + 1);
    }

    #[test]
    fn a_folder_with_a_run_is_kept_and_a_running_one_is_locked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run");
        let folder = RunFolder::open(&path, "run", Start::New).unwrap();
        std::fs::write(folder.metrics(), "").unwrap();
        let error = |start| RunFolder::open(&path, "run", start).map(|_| ()).unwrap_err().to_string();
        for start in [Start::New, Start::Resume, Start::Over] {
            assert!(error(start).contains("another velatura"), "{start:?}");
        }
        drop(folder);
        assert!(error(Start::New).contains("--resume"));
        RunFolder::open(&path, "run", Start::Resume).unwrap();
        RunFolder::open(&path, "run", Start::Over).unwrap();
        assert!(dir.path().join("run.old-1/metrics.jsonl").exists() && !path.join("metrics.jsonl").exists());
    }
}
