//! Each oddity of a dataset is found, by name, and nothing else is.
#![allow(clippy::unwrap_used)]

use image::imageops::{FilterType, resize};
use image::{DynamicImage, ImageFormat, Rgb as Px, RgbImage};
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use velatura_data::doctor::{Diagnosis, Kind, Questions};
use velatura_data::{Dataset, DatasetOptions};

fn put(folder: &Path, name: &str, image: &RgbImage, format: ImageFormat) {
    let mut out = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(image.clone()).write_to(&mut out, format).unwrap();
    std::fs::write(folder.join(name), out.into_inner()).unwrap();
}

/// A sharp picture unlike any of another number.
fn scene(number: u32, width: u32, height: u32) -> RgbImage {
    let mut rng = base::Rng::new(u64::from(number), "scene", &[]);
    let tiles: Vec<[u8; 3]> = (0..64).map(|_| [rng.next_u32() as u8, rng.next_u32() as u8, rng.next_u32() as u8]).collect();
    RgbImage::from_fn(width, height, |x, y| Px(tiles[(y * 8 / height * 8 + x * 8 / width) as usize]))
}

fn diagnose(options: DatasetOptions) -> BTreeMap<Kind, Vec<Vec<String>>> {
    let dataset = Dataset::build(&[options]).unwrap();
    let questions = Questions { tokens: &|text| text.split_whitespace().count(), token_limit: 75 };
    let diagnosis = Diagnosis::new(&dataset, &questions).unwrap();
    let text = diagnosis.to_string();
    let mut found: BTreeMap<Kind, Vec<Vec<String>>> = BTreeMap::new();
    for finding in diagnosis.findings {
        assert!(!finding.what.is_empty() && !finding.advice.is_empty() && text.contains(&finding.what), "{finding:?} is not in {text}");
        found.entry(finding.kind).or_default().push(finding.files);
    }
    found
}

#[test]
fn a_good_dataset_has_nothing_odd() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..6 {
        put(dir.path(), &format!("{i}.png"), &scene(i, 256, 256), ImageFormat::Png);
        std::fs::write(dir.path().join(format!("{i}.txt")), format!("zwx scene number {i} with tiles")).unwrap();
    }
    assert_eq!(diagnose(DatasetOptions::new(dir.path(), 256, 64)), BTreeMap::new());
}

#[test]
fn pictures_that_are_alike_blurred_small_long_or_broken_are_found_by_name() {
    let dir = tempfile::tempdir().unwrap();
    for i in 0..5 {
        put(dir.path(), &format!("{i}.png"), &scene(i, 256, 256), ImageFormat::Png);
    }
    std::fs::copy(dir.path().join("0.png"), dir.path().join("0 again.png")).unwrap();
    put(dir.path(), "1 small and as jpeg.jpg", &resize(&scene(1, 256, 256), 200, 200, FilterType::Triangle), ImageFormat::Jpeg);
    let soft = resize(&resize(&scene(7, 256, 256), 3, 3, FilterType::Triangle), 256, 256, FilterType::CatmullRom);
    put(dir.path(), "soft.png", &soft, ImageFormat::Png);
    put(dir.path(), "tiny.png", &scene(8, 64, 64), ImageFormat::Png);
    put(dir.path(), "long.png", &scene(9, 1024, 64), ImageFormat::Png);
    std::fs::write(dir.path().join("broken.png"), b"\x89PNG\r\n\x1a\nnothing").unwrap();
    for i in ["0", "1", "2", "3", "4", "0 again", "1 small and as jpeg", "soft", "tiny", "long"] {
        std::fs::write(dir.path().join(format!("{i}.txt")), format!("zwx words about {i} and more")).unwrap();
    }
    let found = diagnose(DatasetOptions::new(dir.path(), 256, 64));
    assert_eq!(found[&Kind::Duplicate], [["0 again.png", "0.png"]]);
    assert_eq!(found[&Kind::NearDuplicate], [["1 small and as jpeg.jpg", "1.png"]]);
    assert_eq!(found[&Kind::Blurred], [["soft.png"]]);
    for (kind, file) in [(Kind::Small, "tiny.png"), (Kind::Cropped, "long.png"), (Kind::Unusable, "broken.png")] {
        assert!(found[&kind].len() == 1 && found[&kind][0].len() == 1 && found[&kind][0][0].starts_with(file), "{found:?}");
    }
}

#[test]
fn captions_that_are_missing_long_odd_or_the_same_are_found_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str, captions: &[&str]| {
        let path = dir.path().join(name);
        std::fs::create_dir(&path).unwrap();
        for (i, caption) in captions.iter().enumerate() {
            put(&path, &format!("{i}.png"), &scene(i as u32, 128, 128), ImageFormat::Png);
            if *caption != "-" {
                std::fs::write(path.join(format!("{i}.txt")), caption).unwrap();
            }
        }
        DatasetOptions::new(&path, 128, 64)
    };
    let long = format!("zwx {}", "word ".repeat(90));
    let plain = "zwx five words of text";
    let mixed = diagnose(folder("mixed", &["zwx one of its kind", "zwx two of its kind", "-", " ", "other words of its kind", &long]));
    assert_eq!(mixed[&Kind::NoCaption], [["2.png", "3.png"]]);
    assert_eq!(
        (&mixed[&Kind::LongCaption], &mixed[&Kind::OddCaption]),
        (&vec![vec!["5.png".to_string()]], &vec![vec!["5.png".to_string()]])
    );
    assert_eq!(mixed[&Kind::Trigger], [["4.png"]]);
    let same = diagnose(folder("same", &[plain, plain, plain, plain, "zwx other words of text"]));
    assert_eq!(
        same.into_iter().collect::<Vec<_>>(),
        [(Kind::SameCaption, vec![["0.png", "1.png", "2.png", "3.png"].map(String::from).to_vec()])]
    );
    let mut spelled = folder("spelled", &["Zwx one of its kind", "zwx two of its kind", "three of its kind here"]);
    spelled.caption.trigger_word = Some("zwx".to_string());
    assert_eq!(diagnose(spelled)[&Kind::Trigger], [["0.png"]]);
}

/// What is said about a kind of finding: no advice to do what is done already.
#[test]
fn nothing_is_advised_that_is_so_already() {
    use velatura_data::{Limits, Scheme};
    let dir = tempfile::tempdir().unwrap();
    for (i, (width, height)) in (0..).zip([(64, 256), (128, 192), (160, 160), (192, 128), (256, 64)]) {
        put(dir.path(), &format!("{i}.png"), &scene(i, width, height), ImageFormat::Png);
    }
    // Shorter than a step of 64.
    put(dir.path(), "flat.png", &scene(7, 900, 50), ImageFormat::Png);
    let advice = |scheme, kind| {
        let options = DatasetOptions { scheme, ..DatasetOptions::new(dir.path(), 192, 64) };
        let dataset = Dataset::build(&[options]).unwrap();
        let diagnosis = Diagnosis::new(&dataset, &Questions { tokens: &|_| 1, token_limit: 75 }).unwrap();
        diagnosis.findings.into_iter().filter(|finding| finding.kind == kind).map(|finding| finding.advice).collect::<Vec<_>>().join("; ")
    };
    let list = Scheme::List(Limits::default());
    let ratio = advice(Scheme::Ratio, Kind::Enlarged);
    assert!(!ratio.is_empty() && !ratio.contains("bucket_scheme: ratio") && ratio.contains("64"), "{ratio}");
    assert!(advice(list, Kind::Enlarged).contains("bucket_scheme: ratio"));
    assert!(advice(Scheme::Ratio, Kind::LonelyShapes).contains("bucket_scheme: list"));
    let lonely = advice(list, Kind::LonelyShapes);
    assert!(!lonely.is_empty() && !lonely.contains("bucket_scheme: list") && lonely.contains("bucket_step"), "{lonely}");
}
