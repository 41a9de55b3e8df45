//! Room on the disk: what a run's checkpoints will take, and what to do when there is none left.

use crate::folder::RunFolder;
use crate::prepare::Prepared;
use anyhow::{Context, Result, bail};
use base::human;
use std::io::ErrorKind;
use std::path::Path;

/// Bytes of a run's checkpoints, from the shapes of what is saved; headers and metadata come on top and are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// One LoRA file.
    pub lora: u64,
    /// One state to go on from.
    pub state: u64,
    /// The most that the run's folder holds of both at once.
    pub whole: u64,
}

impl Space {
    pub fn of(run: &Prepared) -> Result<Space> {
        let (save, layout) = (&run.config.save, run.layout()?);
        let elements: u64 = layout.params().iter().map(|p| p.shape.elements() as u64).sum();
        let averages = 1 + u64::from(run.config.train.ema_config.use_ema);
        let state = 4 * elements * averages + run.chosen()?.held_bytes(&layout);
        let lora = elements * save.dtype.bytes() as u64;
        let checkpoints = run.steps.saturating_sub(1).checked_div(save.save_every).unwrap_or(0);
        let kept = save.max_step_saves_to_keep as u64;
        // A new one is whole before the oldest goes. States are also written at the start and at the end.
        let (loras, states) = (checkpoints.min(kept + 1) + 1, (checkpoints + 2).min(kept + 1));
        Ok(Space { lora, state, whole: loras * lora + states * state })
    }

    /// An error if not even one checkpoint fits, and a line for the user if the run will not fit as a whole.
    pub fn check(self, folder: &RunFolder) -> Result<Option<String>> {
        let Some(free) = base::fs::free_bytes(folder.path()) else { return Ok(None) };
        let one = self.lora + self.state;
        let here = folder.path().display();
        if free < one {
            bail!(
                "a checkpoint of this run takes {}, but only {} are free in {here}: make room, or set another training_folder",
                human(one),
                human(free)
            );
        }
        // What the run's own earlier checkpoints hold is given back as new ones are written.
        let held = bytes_under(&folder.states()) + folder.lora_bytes();
        Ok((free + held < self.whole).then(|| {
            format!(
                "the checkpoints of this run come to {}, but only {} are free in {here}: make room, or set save.max_step_saves_to_keep lower",
                human(self.whole),
                human(free + held)
            )
        }))
    }
}

/// Whether an error says that the disk, a quota or the largest allowed file is full.
pub fn is_full(error: &anyhow::Error) -> bool {
    let full = |kind| matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge);
    error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(|e| full(e.kind())))
}

/// Says how to go on after an error that a full disk made; other errors stay as they are.
pub fn explained<T>(result: Result<T>, folder: &Path) -> Result<T> {
    match result {
        Err(error) if is_full(&error) => Err(error).with_context(|| {
            format!(
                "no room is left in {}: make some, then the same command with --resume goes on from the newest saved state",
                folder.display()
            )
        }),
        other => other,
    }
}

fn bytes_under(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let bytes = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(about) if about.is_dir() => bytes_under(&entry.path()),
        Ok(about) => about.len(),
        Err(_) => 0,
    };
    entries.map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_from_other_errors_and_comes_with_the_way_on() {
        let full = || Err::<(), _>(std::io::Error::from(ErrorKind::StorageFull)).context("can't write a");
        let text = format!("{:#}", explained(full(), Path::new("here")).unwrap_err());
        assert!(text.contains("here") && text.contains("--resume") && text.contains("can't write a"), "{text}");
        let other = Err::<(), _>(std::io::Error::from(ErrorKind::PermissionDenied)).context("can't write a");
        assert_eq!(explained(other, Path::new("here")).unwrap_err().to_string(), "can't write a");
    }

    #[test]
    fn files_are_counted_through_all_folders() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/c"), [0; 5]).unwrap();
        std::fs::write(dir.path().join("d"), [0; 7]).unwrap();
        assert_eq!(bytes_under(dir.path()), 12);
    }
}
