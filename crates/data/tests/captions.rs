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
    assert!(dataset.notes.is_empty(), "{:?}", dataset.notes);
    let thrice = "{\"image\": \"pics/a.png\"}\n{\"image\": \"pics/a.png\", \"text\": \"b\"}\n{\"image\": \"./pics/a.png\"}\n";
    put(dir.path(), "thrice.jsonl", thrice);
    let dataset = build(options(&dir.path().join("thrice.jsonl")));
    assert_eq!(dataset.entries.len(), 3);
    let note = dataset.notes.join(" ");
    assert!(note.contains("thrice.jsonl line 2 names pics/a.png, as thrice.jsonl line 1 does, and 1 line like it"), "{note}");
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

#[test]
fn folders_that_keep_kohyas_names_from_counting_are_named_and_what_to_do_is_said() {
    let note = |files: &[&str], names| {
        let dir = tempfile::tempdir().unwrap();
        files.iter().for_each(|name| picture(dir.path(), name));
        let dataset = build(DatasetOptions { folder_names: names, ..options(dir.path()) });
        dataset.summary().into_iter().find(|line| line.contains("kohya_folders")).unwrap_or_default()
    };
    for (odd, named) in [("0_zero/a.png", "0_zero"), ("1.5_x/a.png", "1.5_x"), ("CROP/deep/a.png", "CROP"), ("loose.png", "loose.png")] {
        let auto = note(&["10_sks dog/a.png", odd], FolderNames::Auto);
        for part in ["10_sks dog", named, "kohya_folders: true", "rename"] {
            assert!(auto.contains(part), "no `{part}` in {auto:?}");
        }
        let obeyed = note(&["10_sks dog/a.png", odd], FolderNames::Obey);
        assert!(odd.starts_with("0_") || obeyed.contains(named) && !obeyed.contains("10_sks dog"), "{obeyed:?}");
        assert_eq!(note(&["10_sks dog/a.png", odd], FolderNames::Ignore), "");
    }
    for ordinary in [["2023_trip/a.png", "2024_trip/b.png"], ["cats/a.png", "dogs/b.png"], ["a.png", "b.png"]] {
        assert_eq!(note(&ordinary, FolderNames::Auto), "");
    }
}

#[test]
fn lines_of_a_list_that_name_no_picture_of_its_folder_are_told_by_their_number() {
    let dir = tempfile::tempdir().unwrap();
    let set = dir.path().join("set");
    ["set/a.png", "set/in/b.png", "set/in/c.png", "set/d.png", "set/.hidden.png", "outside.png"]
        .iter()
        .for_each(|name| picture(dir.path(), name));
    put(&set, "notes.md", "words");
    put(&set, "broken.png", "no picture");
    let whole = |name: &str| set.join(name).display().to_string();
    let files = [
        "a.png",
        "./in/../in/b.png",
        "../set/in/c.png",
        &whole("d.png"),
        "../outside.png",
        "/etc/hostname",
        ".hidden.png",
        "notes.md",
        "broken.png",
    ];
    let lines: Vec<String> = files.iter().map(|file| format!("{{\"file_name\": \"{file}\", \"text\": \"of {file}\"}}")).collect();
    put(&set, "metadata.jsonl", lines.join("\n"));
    let dataset = build(options(&set));
    assert!(captions(&dataset).iter().all(|(_, _, source)| *source == CaptionSource::Metadata), "{:?}", captions(&dataset));
    let rejected: Vec<String> = dataset.rejected.iter().map(|(_, r)| format!("{}: {}", r.file, r.reason)).collect();
    for (line, reason) in [(5, "outside"), (6, "outside"), (7, "not among"), (8, "not among")] {
        let told = rejected.iter().filter(|told| told.starts_with(&format!("metadata.jsonl line {line}:"))).collect::<Vec<_>>();
        assert!(told.len() == 1 && told[0].contains(reason), "line {line}: {rejected:?}");
    }
    // What is wrong with the broken one is told at its own name.
    assert_eq!(rejected.len(), 5, "{rejected:?}");
}

#[cfg(unix)]
#[test]
fn what_has_the_name_of_a_list_and_is_no_file_is_told_and_not_waited_for() {
    for make in ["mkfifo", "mkdir"] {
        let dir = tempfile::tempdir().unwrap();
        picture(dir.path(), "a.png");
        assert!(std::process::Command::new(make).arg(dir.path().join("metadata.jsonl")).status().unwrap().success());
        let dataset = build(options(dir.path()));
        assert_eq!(dataset.rejected.len(), 1, "{make}: {:?}", dataset.rejected);
        let told = &dataset.rejected[0].1;
        assert!(told.file == "metadata.jsonl" && told.reason.contains("not a regular file") && told.reason.contains("rename"), "{told:?}");
    }
}

#[test]
fn extensions_of_caption_files_are_found_in_any_letters_and_as_they_are_written_first() {
    let dir = tempfile::tempdir().unwrap();
    ["a.png", "b.png", "c.png", "d.png"].iter().for_each(|name| picture(dir.path(), name));
    for (name, text) in
        [("a.TXT", "large"), ("b.txt", "small"), ("b.TXT", "large"), ("c.Txt", "mixed"), ("c.tXT", "other"), ("D.txt", "another picture's")]
    {
        put(dir.path(), name, text);
    }
    let dataset = build(options(dir.path()));
    let texts: Vec<&str> = dataset.entries.iter().map(|entry| entry.caption.text.as_str()).collect();
    assert_eq!(texts, ["large", "small", "mixed", ""]);
}
