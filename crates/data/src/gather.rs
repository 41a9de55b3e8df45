//! Where the pictures of a dataset come from: a folder, with what lists in it and the names of its folders say, or a list alone.

use crate::dataset::DatasetOptions;
use crate::kohya::{self, FolderName};
use crate::list::{self, List, Row};
use crate::mask::MaskSource;
use crate::scan::{self, Picture, Rejected, Scan, examine_all, listed, scan};
use anyhow::{Result, ensure};
use base::counted;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

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
    let mut gathered = Gathered { notes: repeated(&options.folder, &rows, &files).into_iter().collect(), ..Gathered::default() };
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

/// Says that lines of a list name one picture: it may be meant, with several texts.
fn repeated(list: &Path, rows: &[Row], files: &[(PathBuf, String)]) -> Option<String> {
    let mut first: BTreeMap<PathBuf, &Row> = BTreeMap::new();
    let pairs = rows.iter().zip(files).map(|(row, (path, _))| (*first.entry(plain(path)).or_insert(row), row));
    let mut again = pairs.filter(|(earlier, row)| earlier.place != row.place);
    let (earlier, row) = again.next()?;
    let more = again.count();
    let others = if more > 0 { format!(", and {} like it", counted(more, "line")) } else { String::new() };
    Some(format!(
        "{}: {} names {}, as {} does{others}: each line is an occurrence of its own",
        list.display(),
        row.place,
        row.file,
        earlier.place
    ))
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
    let kohya::Found { names, note } = kohya::of_files(&files, options.folder_names);
    notes.extend(note.map(|note| format!("{}: {note}", options.folder.display())));
    let mut folders = names.unwrap_or_default().into_iter();
    let candidate = |picture: Picture| {
        let folder = folders.next().flatten();
        Candidate { listed: texts.take(&picture.path), picture, folder }
    };
    let candidates = pictures.into_iter().map(candidate).collect();
    rejected.extend(texts.left_over(&options.folder, &rejected));
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
            for path in list::IN_FOLDERS.iter().map(|name| folder.join(name)).filter(|path| path.symlink_metadata().is_ok()) {
                if !path.is_file() {
                    let file = scan::relative(&options.folder, &path);
                    let reason = "not a regular file, where a list of pictures is looked for by this name; rename or remove it".to_string();
                    rejected.push(Rejected { file, reason });
                    continue;
                }
                let List { rows: found, bad } = list::read(&path, options.caption.column.as_deref(), options.caption.encoding)?;
                rejected.extend(bad);
                for row in found {
                    let picture = plain(&list::path_in(&folder, &row.file));
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
        self.rows.remove(&plain(picture)).and_then(|row| row.caption)
    }

    /// Lines that name no picture of the folder, and why; not those of pictures that are rejected by their own names.
    fn left_over(self, folder: &Path, rejected: &[Rejected]) -> Vec<Rejected> {
        let folder = plain(folder);
        let told: BTreeSet<PathBuf> = rejected.iter().map(|rejected| folder.join(&rejected.file)).collect();
        let reason = |path: &Path| match path.strip_prefix(&folder) {
            Err(_) => "it lies outside of the folder; a list that names pictures elsewhere is given itself, as folder_path",
            Ok(_) if !path.exists() => "there is no such file",
            Ok(_) => "it is not among the pictures of the folder: hidden, in a folder that is passed over, or of another kind",
        };
        let missing = self.rows.iter().filter(|(path, _)| !told.contains(*path));
        missing.map(|(path, row)| Rejected { file: format!("{}: {}", row.place, row.file), reason: reason(path).to_string() }).collect()
    }
}

/// A whole path without `.` and `..`, by its names alone: a link in the folder stays what it is called.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}
