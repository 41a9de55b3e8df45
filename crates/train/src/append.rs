//! A file that grows by a row a step. On a full disk the rows wait in memory: they are small, and no run ends for them.

use crate::space;
use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

pub struct Appended {
    path: PathBuf,
    file: File,
    /// Rows that a full disk has not taken yet.
    pending: Vec<u8>,
}

impl Appended {
    /// Goes on at the end of the file; makes it if it is not there.
    pub fn open(path: &Path) -> Result<Appended> {
        let file = OpenOptions::new().create(true).append(true).open(path).with_context(|| format!("can't open {}", path.display()))?;
        Ok(Appended { path: path.into(), file, pending: Vec::new() })
    }

    /// Adds a whole row.
    pub fn append(&mut self, row: &[u8]) -> Result<()> {
        self.pending.extend(row);
        match self.flush() {
            Err(error) if space::is_full(&error) => Ok(()),
            result => result,
        }
    }

    /// Writes the rows that still wait.
    pub fn flush(&mut self) -> Result<()> {
        let whole = self.file.metadata().map(|about| about.len());
        let result = self.file.write_all(&self.pending);
        match (&result, whole) {
            (Ok(()), _) => self.pending.clear(),
            // Half a row must not stand in the middle; if even this fails, reading finds it.
            (Err(_), Ok(whole)) => drop(self.file.set_len(whole)),
            (Err(_), Err(_)) => {}
        }
        result.with_context(|| format!("can't write {}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_wait_for_room_on_a_full_disk() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rows");
        let mut rows = Appended::open(Path::new("/dev/full")).unwrap();
        rows.append(b"one\n").unwrap();
        rows.append(b"two\n").unwrap();
        assert!(space::is_full(&rows.flush().unwrap_err()));
        rows.file = OpenOptions::new().create(true).append(true).open(&path).unwrap();
        rows.append(b"three\n").unwrap();
        rows.flush().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one\ntwo\nthree\n");
    }
}
