//! Captions from files, lists and folder names, as datasets meet them.
#![allow(clippy::unwrap_used)]

use image::{DynamicImage, ImageFormat, RgbImage};
use std::io::Cursor;
use std::path::Path;
use velatura_data::{CaptionSource, Dataset, DatasetOptions, FolderNames, MissingCaptions};

fn put(folder: &Path, name: &str, content: impl AsRef<[u8]>) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

/// A picture of its own content for each name.
fn picture(folder: &Path, name: &str) {
    let shade = name.bytes().fold(7u8, |sum, b| sum.wrapping_mul(31).wrapping_add(b));
    let mut out = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(RgbImage::from_pixel(32, 32, image::Rgb([shade; 3]))).write_to(&mut out, ImageFormat::Png).unwrap();
    put(folder, name, out.into_inner());
}

fn build(options: DatasetOptions) -> Dataset {
    Dataset::build(&[options]).unwrap_or_else(|e| panic!("{e:#}"))
}

fn error(options: DatasetOptions) -> String {
    format!("{:#}", Dataset::build(&[options]).unwrap_err())
}

fn options(path: &Path) -> DatasetOptions {
    DatasetOptions::new(path, 64, 8)
}

fn captions(dataset: &Dataset) -> Vec<(&str, &str, CaptionSource)> {
    dataset.entries.iter().map(|e| (e.picture.file.as_str(), e.caption.text.as_str(), e.caption.source)).collect()
}

#[test]
fn a_metadata_list_with_a_missing_picture_an_extra_column_and_a_blank_line_is_used_line_by_line() {
    let dir = tempfile::tempdir().unwrap();
    ["pics/a.png", "pics/b.png"].iter().for_each(|name| picture(dir.path(), name));
    put(dir.path(), "pics/notes.txt", "words");
    let lines = "\u{FEFF}{\"image\": \"pics/a.png\", \"caption\": \"one\", \"score\": 3}\n\n{\"image\": \"pics/gone.png\", \"caption\": \"x\"}\n\
                 {\"image\": \"pics/notes.txt\"}\n{\"image\": \"pics/b.png\"}\n";
    put(dir.path(), "set.jsonl", lines);
    put(dir.path(), "pics/b.txt", "from its file");
    let dataset = build(options(&dir.path().join("set.jsonl")));
    assert_eq!(captions(&dataset), [("pics/a.png", "one", CaptionSource::Metadata), ("pics/b.png", "from its file", CaptionSource::File)]);
    let rejected: Vec<String> = dataset.rejected.iter().map(|(_, r)| format!("{}: {}", r.file, r.reason)).collect();
    assert!(rejected[0].contains("set.jsonl line 3") && rejected[0].contains("no such file"), "{rejected:?}");
    assert!(rejected[1].contains("set.jsonl line 4") && rejected[1].contains("no picture"), "{rejected:?}");
    put(dir.path(), "none.jsonl", "{\"image\": \"pics/gone.png\"}\n");
    assert!(error(options(&dir.path().join("none.jsonl"))).contains("none.jsonl line 1"));
    put(dir.path(), "empty.jsonl", "\n");
    assert!(error(options(&dir.path().join("empty.jsonl"))).contains("empty"));
}

#[test]
fn a_hugging_face_image_folder_gives_captions_by_its_metadata_files() {
    let dir = tempfile::tempdir().unwrap();
    ["train/a.png", "train/deep/b.png", "train/c.png", "test/d.png"].iter().for_each(|name| picture(dir.path(), name));
    let rows = "{\"file_name\": \"a.png\", \"text\": \"one\"}\n{\"file_name\": \"deep/b.png\", \"text\": \"two\"}\n{\"file_name\": \"gone.png\"}\n";
    put(dir.path(), "train/metadata.jsonl", rows);
    put(dir.path(), "test/metadata.csv", "file_name,text\nd.png,\"four, with a comma\"\n");
    put(dir.path(), "train/a.txt", "the list comes first");
    let dataset = build(options(dir.path()));
    assert_eq!(
        captions(&dataset),
        [
            ("test/d.png", "four, with a comma", CaptionSource::Metadata),
            ("train/a.png", "one", CaptionSource::Metadata),
            ("train/c.png", "", CaptionSource::Missing),
            ("train/deep/b.png", "two", CaptionSource::Metadata),
        ]
    );
    assert_eq!(dataset.rejected.len(), 1);
    assert!(dataset.rejected[0].1.file.contains("metadata.jsonl line 3"), "{:?}", dataset.rejected);
    let summary = dataset.summary().join("\n");
    assert!(summary.contains("3 from lists") && summary.contains("1 missing"), "{summary}");
}

#[test]
fn kohya_folders_give_repeats_and_captions_and_other_folders_do_not_crash() {
    let dir = tempfile::tempdir().unwrap();
    ["10_sks dog/a.png", "10_sks dog/b.png", "2_/c.png"].iter().for_each(|name| picture(dir.path(), name));
    put(dir.path(), "10_sks dog/b.txt", "own words");
    let dataset = build(options(dir.path()));
    assert_eq!(
        captions(&dataset),
        [
            ("10_sks dog/a.png", "sks dog", CaptionSource::Folder),
            ("10_sks dog/b.png", "own words", CaptionSource::File),
            ("2_/c.png", "", CaptionSource::Missing)
        ]
    );
    let repeats = |dataset: &Dataset| dataset.items.iter().map(|item| item.repeats).collect::<Vec<_>>();
    assert_eq!(repeats(&dataset), [10, 10, 2]);
    assert_eq!(repeats(&build(DatasetOptions { repeats: 3, ..options(dir.path()) })), [30, 30, 6]);
    assert!(dataset.summary().iter().any(|line| line.contains("kohya_folders: false")));
    let ignored = DatasetOptions { folder_names: FolderNames::Ignore, ..options(dir.path()) };
    assert_eq!(repeats(&build(ignored)), [1, 1, 1]);
    ["CROP/d.png", "1.5_x/e.png", "0_z/f.png"].iter().for_each(|name| picture(dir.path(), name));
    assert_eq!(repeats(&build(options(dir.path()))), [1; 6]);
    let obeyed = build(DatasetOptions { folder_names: FolderNames::Obey, ..options(dir.path()) });
    assert_eq!(repeats(&obeyed), [1, 10, 10, 2, 1]);
    assert!(obeyed.rejected[0].1.file == "0_z/f.png" && obeyed.rejected[0].1.reason.contains("0 repeats"));
}

#[test]
fn missing_captions_are_filled_skipped_or_stop_as_is_asked_and_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    ["a.png", "b.png", "c.png", "d.png", "e.png"].iter().for_each(|name| picture(dir.path(), name));
    [("a.txt", "one"), ("b.txt", "two"), ("c.txt", " ")].iter().for_each(|(name, text)| put(dir.path(), name, text));
    let with = |missing_captions| DatasetOptions { missing_captions, ..options(dir.path()) };
    let filled = build(with(MissingCaptions::Fill));
    assert!(filled.entries.len() == 5 && filled.summary().iter().any(|l| l.contains("2 missing and 1 empty")));
    let skipped = build(with(MissingCaptions::Skip));
    assert_eq!((skipped.entries.len(), skipped.rejected.len()), (2, 3));
    let stopped = error(with(MissingCaptions::Stop));
    assert!(stopped.contains("3 pictures") && stopped.contains("c.png, d.png, e.png"), "{stopped}");
}

#[test]
fn a_caption_in_a_code_page_is_read_and_its_file_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    picture(dir.path(), "猫 #1 50%.png");
    put(dir.path(), "猫 #1 50%.txt", b"\xF0\xFB\xE6\xE0\xFF \xEA\xEE\xF8\xEA\xE0 \xED\xE0 \xEE\xEA\xED\xE5");
    let dataset = build(options(dir.path()));
    assert_eq!(dataset.entries[0].caption.text, "рыжая кошка на окне");
    let row = &dataset.rows()[0];
    assert!(row.used && row.reason.as_deref().unwrap().contains("windows-1251"), "{row:?}");
}
