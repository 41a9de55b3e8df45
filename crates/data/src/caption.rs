//! The text of a picture, before anything is drawn from it.
//!
//! One rule, in this order: the text that a metadata list gives the picture; the whole file beside it, with the last extension
//! exchanged (`a.b.png` → `a.b.txt`), trimmed; in folders named as kohya's scripts want them (`10_sks dog`) the name behind the
//! number; the default caption; the trigger word; the empty text.

use crate::draw::CaptionOptions;
use crate::text::{self, Evidence, Pages, Text};
use anyhow::{Context, Result};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Files beyond this are no captions.
pub const LARGEST_FILE: u64 = 1_000_000;

/// Where a caption came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaptionSource {
    /// The file beside the picture.
    File,
    /// A list of pictures and captions.
    Metadata,
    /// The name of the picture's folder.
    Folder,
    /// The file holds no text; the default filled in.
    EmptyFile,
    /// Nothing gives a text; the default filled in.
    Missing,
}

impl CaptionSource {
    /// Did the rule have to fill in?
    pub fn is_filled(self) -> bool {
        matches!(self, CaptionSource::EmptyFile | CaptionSource::Missing)
    }
}

/// A caption before anything is drawn, with its placeholders.
#[derive(Clone, Debug, PartialEq)]
pub struct Caption {
    pub text: String,
    pub source: CaptionSource,
    /// About its file, by name.
    pub warning: Option<String>,
}

/// What is known of a picture's caption apart from the file beside it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hints<'a> {
    pub listed: Option<&'a str>,
    pub folder: Option<&'a str>,
}

/// A caption file as it was read. That it can't be is an error when its caption is asked for.
pub struct Written {
    path: PathBuf,
    bytes: Result<Vec<u8>>,
}

/// Reads the caption files of pictures, each once; nothing for those that have none.
pub fn written<'a>(pictures: impl Iterator<Item = &'a Path>, options: &CaptionOptions) -> Vec<Option<Written>> {
    let mut folders = Folders { extensions: &options.extensions, names: BTreeMap::new() };
    let read = |path: PathBuf| Written { bytes: base::fs::read_regular(&path, LARGEST_FILE), path };
    pictures.map(|picture| folders.file_of(picture).map(read)).collect()
}

/// How caption files are read where they are neither UTF-8 nor UTF-16.
pub fn pages(written: &[Option<Written>], options: &CaptionOptions) -> Pages {
    if options.encoding.is_some() {
        return Pages { named: options.encoding, guessed: None };
    }
    let mut evidence = Evidence::default();
    let files = written.iter().flatten().filter_map(|file| file.bytes.as_ref().ok());
    files.filter(|bytes| text::is_legacy(bytes)).for_each(|bytes| evidence.add(bytes));
    Pages { named: None, guessed: evidence.page() }
}

/// Where caption files are looked for.
struct Folders<'a> {
    extensions: &'a [String],
    /// Of a folder in which one was looked for in vain: by the name with its extension in small letters.
    names: BTreeMap<PathBuf, BTreeMap<String, PathBuf>>,
}

impl Folders<'_> {
    /// The first caption file of a picture that exists: for each extension as it is written, else in other letters (`a.TXT`).
    fn file_of(&mut self, picture: &Path) -> Option<PathBuf> {
        let mut paths = self.extensions.iter().map(|extension| picture.with_extension(extension));
        paths.find_map(|path| if path.symlink_metadata().is_ok() { Some(path) } else { self.in_other_letters(&path) })
    }

    fn in_other_letters(&mut self, path: &Path) -> Option<PathBuf> {
        let folder = path.parent()?;
        if !self.names.contains_key(folder) {
            let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
            let mut paths: Vec<PathBuf> = files.map(|file| folder.join(file.file_name())).collect();
            paths.sort();
            let mut names = BTreeMap::new();
            for path in paths {
                let is_caption = |ext: &str| self.extensions.iter().any(|wanted| wanted.eq_ignore_ascii_case(ext));
                if path.extension().and_then(|ext| ext.to_str()).is_some_and(is_caption)
                    && let Some(name) = small(&path)
                {
                    names.entry(name).or_insert(path);
                }
            }
            self.names.insert(folder.to_path_buf(), names);
        }
        self.names.get(folder)?.get(&small(path)?).cloned()
    }
}

/// A file's name with its extension in small letters.
fn small(path: &Path) -> Option<String> {
    Some(format!("{}.{}", path.file_stem()?.to_str()?, path.extension()?.to_str()?.to_ascii_lowercase()))
}

/// Finds the caption of a picture by the rule above. A file that is no text is an error that names it.
pub fn read(written: Option<Written>, hints: Hints, options: &CaptionOptions, pages: Pages) -> Result<Caption> {
    let of = |text: &str, source| Caption { text: text.trim().to_string(), source, warning: None };
    if let Some(text) = hints.listed.filter(|text| !text.trim().is_empty()) {
        return Ok(of(text, CaptionSource::Metadata));
    }
    let file = written.map(|file| beside(file, pages)).transpose()?;
    if let Some(caption) = file.as_ref().filter(|caption| !caption.text.is_empty()) {
        return Ok(caption.clone());
    }
    if let Some(name) = hints.folder {
        return Ok(of(name, CaptionSource::Folder));
    }
    let source = if file.is_some() || hints.listed.is_some() { CaptionSource::EmptyFile } else { CaptionSource::Missing };
    Ok(Caption { warning: file.and_then(|f| f.warning), ..of(options.default_caption.as_deref().unwrap_or_default(), source) })
}

/// The text of a caption file.
fn beside(Written { path, bytes }: Written, pages: Pages) -> Result<Caption> {
    let Text { text, warning } = text::decode(&bytes?, pages).with_context(|| format!("the caption file {}", path.display()))?;
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let warning = warning.map(|warning| format!("{name}: {warning}"));
    Ok(Caption { text: text.trim().to_string(), source: CaptionSource::File, warning })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> CaptionOptions {
        CaptionOptions { extensions: vec!["txt".into()], ..CaptionOptions::default() }
    }

    /// The caption of one picture alone.
    fn read(picture: &Path, hints: Hints, options: &CaptionOptions) -> Result<Caption> {
        let mut files = written([picture].into_iter(), options);
        let pages = pages(&files, options);
        super::read(files.remove(0), hints, options, pages)
    }

    #[test]
    fn only_the_last_extension_is_exchanged_and_the_whole_file_is_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.b.txt"), "one\n\ntwo\r\n\r\nthree\n").unwrap();
        std::fs::write(dir.path().join("a.txt"), "wrong").unwrap();
        let caption = read(&dir.path().join("a.b.png"), Hints::default(), &options()).unwrap();
        assert_eq!((caption.text.as_str(), caption.source), ("one\n\ntwo\n\nthree", CaptionSource::File));
    }

    #[cfg(unix)]
    #[test]
    fn a_pipe_is_no_caption_and_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("a.txt");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let picture = dir.path().join("a.png");
        let error = format!("{:#}", read(&picture, Hints::default(), &options()).unwrap_err());
        assert!(error.contains("a.txt is not a regular file"), "{error}");
    }

    #[test]
    fn the_first_of_several_extensions_that_exists_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let options = CaptionOptions { extensions: vec!["caption".into(), "txt".into()], ..options() };
        let text = || read(&dir.path().join("a.png"), Hints::default(), &options).unwrap().text;
        std::fs::write(dir.path().join("a.txt"), "tags").unwrap();
        assert_eq!(text(), "tags");
        std::fs::write(dir.path().join("a.caption"), "words").unwrap();
        assert_eq!(text(), "words");
    }

    #[test]
    fn a_list_comes_before_the_file_and_the_file_before_the_name_of_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let picture = dir.path().join("a.png");
        let hints = Hints { listed: Some("from the list"), folder: Some("sks dog") };
        let sources = |hints| read(&picture, hints, &options()).map(|c| (c.text, c.source)).unwrap();
        assert_eq!(sources(hints), ("from the list".to_string(), CaptionSource::Metadata));
        assert_eq!(sources(Hints { listed: Some(" "), ..hints }), ("sks dog".to_string(), CaptionSource::Folder));
        std::fs::write(dir.path().join("a.txt"), "from the file").unwrap();
        assert_eq!(sources(Hints { listed: None, ..hints }), ("from the file".to_string(), CaptionSource::File));
        std::fs::write(dir.path().join("a.txt"), " \n").unwrap();
        assert_eq!(sources(Hints { listed: None, ..hints }), ("sks dog".to_string(), CaptionSource::Folder));
        assert_eq!(sources(Hints::default()), (String::new(), CaptionSource::EmptyFile));
    }

    #[test]
    fn a_missing_or_empty_caption_becomes_the_default_then_the_trigger_then_nothing() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("empty.txt"), " \n").unwrap();
        let with = |default: Option<&str>, trigger: Option<&str>| {
            let options = CaptionOptions { default_caption: default.map(Into::into), trigger_word: trigger.map(Into::into), ..options() };
            let missing = read(&dir.path().join("missing.png"), Hints::default(), &options).unwrap();
            let empty = read(&dir.path().join("empty.png"), Hints::default(), &options).unwrap();
            assert_eq!((missing.source, empty.source), (CaptionSource::Missing, CaptionSource::EmptyFile));
            assert_eq!(missing.text, empty.text);
            options.whole(&missing.text)
        };
        assert_eq!(with(Some("photo of [trigger]"), Some("sks")), "photo of sks");
        assert_eq!(with(Some("photo"), Some("sks")), "sks photo");
        assert_eq!(with(None, Some("sks")), "sks");
        assert_eq!(with(None, None), "");
        assert_eq!(with(Some("photo of [trigger]"), None), "photo of");
    }

    #[test]
    fn a_file_in_a_code_page_is_read_and_named_in_a_warning() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("e.txt"), b"a caf\xE9").unwrap();
        let caption = read(&dir.path().join("e.png"), Hints::default(), &options()).unwrap();
        assert_eq!(caption.text, "a café");
        let warning = caption.warning.unwrap();
        assert!(warning.starts_with("e.txt: ") && warning.contains("windows-1252"), "{warning}");
    }
}
