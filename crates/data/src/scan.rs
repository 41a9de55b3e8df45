//! Lists the pictures of a folder, and proves that each can be decoded before anything else happens.
//!
//! Files are told apart by content. Hidden files, system files and cache folders are passed over; what a person would call a
//! picture and can't be used is listed with the reason. The order is the bytewise order of the relative paths, so it is the same
//! on every machine. The folder is only read.

use crate::decode::{LARGEST_FILE, WHITE, decode};
use crate::format::{HEAD, Kind, describe_unknown, is_media_extension, sniff};
use anyhow::{Context, Result, bail, ensure};
use base::counted;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// A picture that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    pub path: PathBuf,
    /// Path relative to the scanned folder, with `/` between its parts.
    pub file: String,
    /// Of the upright picture.
    pub width: u32,
    pub height: u32,
    /// Whether it has an alpha channel.
    pub has_alpha: bool,
    /// Bytes that decoding it takes at most, with those of the file.
    pub decoding_bytes: u64,
    /// SHA-256 of the file.
    pub content: [u8; 32],
    pub warning: Option<String>,
}

impl Picture {
    /// Its file, which must be the one that was scanned: what is made of it is kept under that one's hash.
    pub fn read(&self) -> Result<Vec<u8>> {
        let bytes = base::fs::read_regular(&self.path, LARGEST_FILE)?;
        ensure!(self.content[..] == Sha256::digest(&bytes)[..], "{} changed since it was scanned; start again", self.path.display());
        Ok(bytes)
    }
}

/// A file that a person would call a picture, and why it is not used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    pub file: String,
    pub reason: String,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scan {
    pub pictures: Vec<Picture>,
    pub rejected: Vec<Rejected>,
    /// Files of other kinds, by extension.
    pub others: BTreeMap<String, usize>,
    pub folders: usize,
}

enum Found {
    Picture(Picture),
    Rejected(Rejected),
    Other(String),
}

/// Scans a folder. No usable picture at all is an error that says where it looked and what it saw.
pub fn scan(folder: &Path, recursive: bool) -> Result<Scan> {
    let meta = std::fs::metadata(folder).with_context(|| format!("can't read the dataset folder {}", absolute(folder)))?;
    ensure!(
        meta.is_dir(),
        "the dataset folder {} is a file; give the folder that the pictures are in, or a list (.jsonl, .json, .csv, .tsv)",
        absolute(folder)
    );
    let mut scan = Scan::default();
    let files = list(folder, recursive, &mut scan);
    let found: Vec<Found> = files.par_iter().map(|(path, file)| examine(path, file)).collect();
    for entry in found {
        match entry {
            Found::Picture(picture) => scan.pictures.push(picture),
            Found::Rejected(rejected) => scan.rejected.push(rejected),
            Found::Other(extension) => *scan.others.entry(extension).or_default() += 1,
        }
    }
    scan.rejected.sort_by(|a, b| a.file.cmp(&b.file));
    if scan.pictures.is_empty() {
        bail!(nothing(folder, recursive, &scan));
    }
    Ok(scan)
}

/// All files that may matter, in order; folders that can't be read are listed as rejected.
fn list(folder: &Path, recursive: bool, scan: &mut Scan) -> Vec<(PathBuf, String)> {
    let walk = walkdir::WalkDir::new(folder).follow_links(true).max_depth(if recursive { usize::MAX } else { 1 });
    let mut files = Vec::new();
    let passed_over = |name: &str, path: &Path, is_folder| is_passed_over(name, is_folder) || is_folder && is_run(path);
    let looked_at = |e: &walkdir::DirEntry| !passed_over(&e.file_name().to_string_lossy(), e.path(), e.file_type().is_dir());
    for entry in walk.into_iter().filter_entry(|e| e.depth() == 0 || looked_at(e)) {
        match entry {
            Ok(entry) if entry.file_type().is_dir() => scan.folders += 1,
            Ok(entry) => files.push((entry.path().to_path_buf(), relative(folder, entry.path()))),
            Err(error) => {
                let path = error.path().unwrap_or(folder).to_path_buf();
                let reason = match error.loop_ancestor() {
                    Some(_) => "a link that leads back to a folder around it".to_string(),
                    None => format!("can't be read: {}", error.io_error().map_or_else(|| error.to_string(), ToString::to_string)),
                };
                scan.rejected.push(Rejected { file: relative(folder, &path), reason });
            }
        }
    }
    files.sort_by(|a, b| a.1.as_bytes().cmp(b.1.as_bytes()));
    files
}

/// Names that file managers, editors, sync tools and trainers leave in folders of pictures.
fn is_passed_over(name: &str, is_folder: bool) -> bool {
    const FOLDERS: [&str; 7] =
        ["__macosx", "@eadir", "_latent_cache", "_t_e_cache", "_clip_vision_cache", "system volume information", "$recycle.bin"];
    const FILES: [&str; 3] = ["thumbs.db", "desktop.ini", "ehthumbs.db"];
    let lower = name.to_ascii_lowercase();
    name.starts_with('.') || if is_folder { FOLDERS.contains(&lower.as_str()) } else { FILES.contains(&lower.as_str()) }
}

/// Whether it is the folder of a run, with the pictures that it drew.
fn is_run(folder: &Path) -> bool {
    folder.join("data.json").is_file() && folder.join("config.yaml").is_file()
}

/// A path in a folder, with `/` between its parts.
pub(crate) fn relative(folder: &Path, path: &Path) -> String {
    let parts = path.strip_prefix(folder).unwrap_or(path).components();
    parts.map(|part| part.as_os_str().to_string_lossy().into_owned()).collect::<Vec<_>>().join("/")
}

fn examine(path: &Path, file: &str) -> Found {
    let reject = |reason: String| Found::Rejected(Rejected { file: file.to_string(), reason });
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
    let head = match head(path) {
        Ok(head) => head,
        Err(error) if error.kind() == ErrorKind::NotFound && path.symlink_metadata().is_err() => {
            return reject("there is no such file".to_string());
        }
        Err(error) if is_media_extension(&extension) => return reject(format!("can't be read: {error}")),
        Err(_) => return Found::Other(extension),
    };
    match sniff(&head) {
        Kind::Picture(_) => examine_picture(path, file).unwrap_or_else(|error| reject(format!("{error:#}"))),
        Kind::Unreadable(what) if is_media_extension(&extension) || !what.contains("video") => reject(what.to_string()),
        Kind::Unknown if is_media_extension(&extension) => reject(describe_unknown(&head).to_string()),
        Kind::Unreadable(_) | Kind::Unknown => Found::Other(extension),
    }
}

/// Pictures by path and shown name, each usable or with the reason why it is not.
pub fn examine_all(files: &[(PathBuf, String)]) -> Vec<Result<Picture, String>> {
    let examine = |(path, file): &(PathBuf, String)| match examine(path, file) {
        Found::Picture(picture) => Ok(picture),
        Found::Rejected(rejected) => Err(rejected.reason),
        Found::Other(_) => Err("it is no picture".to_string()),
    };
    files.par_iter().map(examine).collect()
}

fn head(path: &Path) -> std::io::Result<Vec<u8>> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    let mut head = Vec::with_capacity(HEAD);
    File::open(path)?.take(HEAD as u64).read_to_end(&mut head)?;
    Ok(head)
}

fn examine_picture(path: &Path, file: &str) -> Result<Found> {
    let bytes = base::fs::read_regular(path, LARGEST_FILE)?;
    let decoded = decode(&bytes, WHITE)?;
    let (width, height) = (decoded.rgb.width, decoded.rgb.height);
    let warning = (!decoded.warnings.is_empty()).then(|| decoded.warnings.join("; "));
    let content = Sha256::digest(&bytes).into();
    let has_alpha = decoded.alpha.is_some();
    let (path, file, decoding_bytes) = (path.to_path_buf(), file.to_string(), decoded.took);
    Ok(Found::Picture(Picture { path, file, width, height, has_alpha, decoding_bytes, content, warning }))
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// Where it looked and what it saw.
fn nothing(folder: &Path, recursive: bool, scan: &Scan) -> String {
    let depth = if recursive { "and its subfolders" } else { "(subfolders are not searched: recursive is false)" };
    let mut text = format!("no usable picture in {} {depth}: ", absolute(folder));
    let others: usize = scan.others.values().sum();
    if scan.rejected.is_empty() && others == 0 {
        text.push_str("there are no files");
        return text;
    }
    let kinds: Vec<String> =
        scan.others.iter().map(|(ext, n)| format!("{n} {}", if ext.is_empty() { "without extension" } else { ext })).collect();
    let mut parts = Vec::new();
    if !scan.rejected.is_empty() {
        parts.push(format!("{} can't be used", counted(scan.rejected.len(), "file")));
    }
    if others > 0 {
        parts.push(format!("{} of other kinds ({})", counted(others, "file"), kinds.join(", ")));
    }
    text.push_str(&parts.join(", "));
    if !scan.rejected.is_empty() {
        text.push_str(&format!("; {}", listed(&scan.rejected)));
    }
    text
}

/// All files and what is wrong with them, in one line: the last line of a failed run says why it failed.
pub(crate) fn all_listed(rejected: &[Rejected]) -> String {
    rejected.iter().map(|r| format!("{}: {}", r.file, r.reason)).collect::<Vec<_>>().join("; ")
}

/// The first of them.
pub(crate) fn listed(rejected: &[Rejected]) -> String {
    const SHOWN: usize = 10;
    let more = rejected.len().saturating_sub(SHOWN);
    let first = all_listed(&rejected[..rejected.len() - more]);
    if more > 0 { format!("{first}; and {more} more") } else { first }
}
