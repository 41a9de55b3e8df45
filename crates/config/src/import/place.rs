//! Where a source lies, and so where the files are that it names: as they are (from the working folder, as in sd-scripts), else beside it.

use crate::{LARGEST_FILE, path, text};
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default)]
pub(super) struct Place {
    folder: PathBuf,
    /// The source itself, if it is a file: one under two names is the same.
    file: Option<PathBuf>,
}

impl Place {
    pub fn of(file: &Path) -> Place {
        Place { folder: file.parent().map(Path::to_path_buf).unwrap_or_default(), file: file.canonicalize().ok() }
    }

    pub fn is_file_of(&self, other: &Place) -> bool {
        self.file.is_some() && self.file == other.file
    }

    pub fn find(&self, name: &str) -> Result<PathBuf> {
        let path = path::read("the path", name)?;
        let beside = self.folder.join(&path);
        let found = [path.clone(), beside.clone()].into_iter().find(|path| path.is_file());
        match found {
            Some(found) => Ok(found),
            None if path.is_absolute() => bail!("{} is not a file", path.display()),
            None if path == beside => bail!("{} is not a file in the working folder", path.display()),
            None => bail!("{} is not a file, neither in the working folder nor beside the file that names it", path.display()),
        }
    }
}

pub(super) fn content(file: &Path) -> Result<String> {
    text::decode(&base::fs::read(file, LARGEST_FILE)?, &file.display().to_string())
}
