//! Where the pictures of a dataset come from: a folder, with what lists in it and the names of its folders say, or a list alone.

use crate::dataset::DatasetOptions;
use crate::kohya::{self, FolderName};
use crate::list::{self, List, Row};
use crate::mask::MaskSource;
use crate::scan::{Picture, Rejected, Scan, examine_all, listed, scan};
use anyhow::{Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A picture, and what is known of it apart from its own files.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub picture: Picture,
    /// Its text in a list.
    pub listed: Option<String>,
    pub folder: Option<FolderName>,
}

#[derive(Clone, Debug, Default)]
pub struct Gathered {
    pub candidates: Vec<Candidate>,
    pub rejected: Vec<Rejected>,
    /// What the user should know of how the dataset was read.
    pub notes: Vec<String>,
}

/// Finds the pictures of a dataset. None at all is an error that says where it looked.
pub fn gather(options: &DatasetOptions) -> Result<Gathered> {
    if options.folder.is_file() && list::is_list(&options.folder) { from_list(options) } else { from_folder(options) }
}

fn from_list(options: &DatasetOptions) -> Result<Gathered> {
    let List { rows, mut bad } = list::read(&options.folder, options.caption.column.as_deref(), options.caption.encoding)?;
    let base = options.folder.parent().unwrap_or(Path::new("."));
    let files: Vec<(PathBuf, String)> = rows.iter().map(|row| (list::path_in(base, &row.file), row.file.clone())).collect();
    let mut gathered = Gathered::default();
    for (row, found) in rows.into_iter().zip(examine_all(&files)) {
        match found {
            Ok(picture) => gathered.candidates.push(Candidate { picture, listed: row.caption, folder: None }),
            Err(reason) => bad.push(Rejected { file: format!("{}: {}", row.place, row.file), reason }),
        }
    }
    gathered.rejected = bad;
    ensure!(
        !gathered.candidates.is_empty(),
        "no usable picture in the list {} (paths are relative to the list): {}",
        options.folder.display(),
        if gathered.rejected.is_empty() { "it is empty".to_string() } else { listed(&gathered.rejected) }
    );
    Ok(gathered)
}

fn from_folder(options: &DatasetOptions) -> Result<Gathered> {
    let Scan { mut pictures, mut rejected, .. } = scan(&options.folder, options.recursive)?;
    let mut notes = Vec::new();
    if let Some(masks) = masks_inside(options)? {
        pictures.retain(|picture| !Path::new(&picture.file).starts_with(&masks));
        rejected.retain(|rejected| !Path::new(&rejected.file).starts_with(&masks));
        ensure!(!pictures.is_empty(), "no usable picture in {} beside its masks in {}", options.folder.display(), masks.display());
    }
    let mut texts = Texts::read(options, &pictures, &mut rejected)?;
    let files: Vec<&str> = pictures.iter().map(|picture| picture.file.as_str()).collect();
    let folders = kohya::of_files(&files, options.folder_names);
    if folders.is_some() {
        notes.push(format!(
            "{}: its folders are named like `10_name`, so repeats and missing captions are taken from their names (kohya_folders: false \
             switches that off)",
            options.folder.display()
        ));
    }
    let mut folders = folders.unwrap_or_default().into_iter();
    let candidate = |picture: Picture| {
        let folder = folders.next().flatten();
        Candidate { listed: texts.take(&picture.path), picture, folder }
    };
    let candidates = pictures.into_iter().map(candidate).collect();
    rejected.extend(texts.left_over());
    Ok(Gathered { candidates, rejected, notes })
}

/// The part of a folder of pictures that holds their masks, as a path in it.
fn masks_inside(options: &DatasetOptions) -> Result<Option<PathBuf>> {
    let Some(MaskSource::Folder(masks)) = options.mask.as_ref().map(|mask| &mask.source) else { return Ok(None) };
    let (Ok(masks), Ok(folder)) = (masks.canonicalize(), options.folder.canonicalize()) else { return Ok(None) };
    ensure!(masks != folder, "mask_path is the folder of the pictures themselves; give the folder that their masks are in");
    Ok(masks.strip_prefix(&folder).map(Path::to_path_buf).ok())
}

/// What the lists inside a folder of pictures say, by the path of the picture.
struct Texts {
    rows: BTreeMap<PathBuf, Row>,
}

impl Texts {
    /// Reads the lists in the folder itself and in every folder that holds pictures.
    fn read(options: &DatasetOptions, pictures: &[Picture], rejected: &mut Vec<Rejected>) -> Result<Texts> {
        let inner = pictures.iter().filter_map(|picture| picture.path.parent().map(Path::to_path_buf));
        let folders: BTreeSet<PathBuf> = inner.chain([options.folder.clone()]).collect();
        let mut rows = BTreeMap::new();
        for folder in folders {
            for path in list::IN_FOLDERS.iter().map(|name| folder.join(name)).filter(|path| path.is_file()) {
                let List { rows: found, bad } = list::read(&path, options.caption.column.as_deref(), options.caption.encoding)?;
                rejected.extend(bad);
                for row in found {
                    let picture = list::path_in(&folder, &row.file);
                    if let Some(first) = rows.insert(picture, row.clone()) {
                        let reason = format!("{} names the same picture; the later line counts", row.place);
                        rejected.push(Rejected { file: format!("{}: {}", first.place, first.file), reason });
                    }
                }
            }
        }
        Ok(Texts { rows })
    }

    fn take(&mut self, picture: &Path) -> Option<String> {
        self.rows.remove(picture).and_then(|row| row.caption)
    }

    /// Lines that name pictures which are not there (or are rejected already).
    fn left_over(self) -> impl Iterator<Item = Rejected> {
        let missing = self.rows.into_iter().filter(|(path, _)| !path.exists());
        missing.map(|(_, row)| Rejected { file: format!("{}: {}", row.place, row.file), reason: "there is no such file".to_string() })
    }
}
