//! Buckets and batches of whole folders: what a plan says is what a run does.
#![allow(clippy::unwrap_used)]

use image::{DynamicImage, ImageFormat, Rgb as Px, RgbImage};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::path::Path;
use velatura_data::{Dataset, DatasetOptions, Purpose, Role, Schedule, Scheme};

/// Red, green, blue and yellow corners, from the top left in reading order; grey between them.
fn corners(width: u32, height: u32) -> RgbImage {
    let (w, h) = (width / 6, height / 6);
    RgbImage::from_fn(width, height, |x, y| match (x < w, x >= width - w, y < h, y >= height - h) {
        (true, _, true, _) => Px([255, 0, 0]),
        (_, true, true, _) => Px([0, 255, 0]),
        (true, _, _, true) => Px([0, 0, 255]),
        (_, true, _, true) => Px([255, 255, 0]),
        _ => Px([128; 3]),
    })
}

fn put(folder: &Path, name: &str, image: RgbImage) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut out = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(image).write_to(&mut out, ImageFormat::Png).unwrap();
    std::fs::write(path, out.into_inner()).unwrap();
}

fn build(options: DatasetOptions) -> Dataset {
    Dataset::build(&[options]).unwrap_or_else(|e| panic!("{e:#}"))
}

fn files(folder: &Path) -> Vec<String> {
    let entries = walkdir::WalkDir::new(folder).into_iter().map(Result::unwrap).filter(|e| e.file_type().is_file());
    let mut files: Vec<String> = entries.map(|e| e.path().strip_prefix(folder).unwrap().to_string_lossy().replace('\\', "/")).collect();
    files.sort();
    files
}

#[test]
fn seven_pictures_in_four_shapes_run_in_short_batches_and_the_plan_knows_their_mean() {
    let dir = tempfile::tempdir().unwrap();
    let sizes = [(64, 64), (64, 64), (96, 48), (96, 48), (48, 96), (48, 96), (64, 32)];
    sizes.iter().enumerate().for_each(|(i, (w, h))| put(dir.path(), &format!("{i}.png"), corners(*w, *h)));
    let dataset = build(DatasetOptions::new(dir.path(), 64, 16));
    let schedule = Schedule::new(&dataset, 3, 4, 1);
    assert_eq!((schedule.steps_per_epoch(), schedule.mean_batch_size()), (4, 7.0 / 4.0));
    let mut uses: BTreeMap<usize, u32> = BTreeMap::new();
    for step in 0..schedule.steps_per_epoch() * 5 {
        schedule.step(step).batches.iter().flat_map(|(_, b)| &b.items).for_each(|item| *uses.entry(item.item).or_default() += 1);
    }
    assert_eq!(uses, (0..7).map(|item| (item, 5)).collect());
}

#[test]
fn a_share_of_the_pictures_is_set_aside_and_the_same_ones_whatever_else_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let add = |i: u32| put(dir.path(), &format!("{i}.png"), RgbImage::from_pixel(64, 64, Px([i as u8, 1, 2])));
    (0..10).for_each(add);
    let with = |validation| build(DatasetOptions { purpose: Purpose::Train { validation }, ..DatasetOptions::new(dir.path(), 64, 16) });
    let aside = |dataset: &Dataset| {
        let chosen = dataset.entries.iter().filter(|entry| entry.role == Role::Validate);
        chosen.map(|entry| entry.picture.file.clone()).collect::<BTreeSet<String>>()
    };
    let dataset = with(0.3);
    let chosen = aside(&dataset);
    assert_eq!((chosen.len(), Schedule::new(&dataset, 1, 4, 1).pictures_per_epoch()), (3, 7));
    assert!(
        dataset.summary().iter().any(|line| line.contains("7 pictures to learn, 3 pictures for validation")),
        "{:?}",
        dataset.summary()
    );
    (10..12).for_each(add);
    assert!(aside(&with(0.3)).intersection(&chosen).count() >= 2);
    assert_eq!((aside(&with(0.0)).len(), aside(&with(0.001)).len(), aside(&with(0.999)).len()), (0, 1, 11));
    let all = DatasetOptions { purpose: Purpose::Train { validation: 1.0 }, ..DatasetOptions::new(dir.path(), 64, 16) };
    assert!(format!("{:#}", Dataset::build(std::slice::from_ref(&all)).unwrap_err()).contains("nothing to learn"));
    let other = tempfile::tempdir().unwrap();
    (20..25).for_each(|i| put(other.path(), &format!("{i}.png"), RgbImage::from_pixel(64, 64, Px([i, 1, 2]))));
    let both = Dataset::build(&[all, DatasetOptions::new(other.path(), 64, 16)]).unwrap();
    assert_eq!((Schedule::new(&both, 1, 4, 1).pictures_per_epoch(), both.notes.len()), (5, 0));
}

#[test]
fn a_file_that_is_set_aside_in_one_dataset_is_trained_on_in_none() {
    let dir = tempfile::tempdir().unwrap();
    (0..8).for_each(|i| put(dir.path(), &format!("{i}.png"), RgbImage::from_pixel(64, 64, Px([i as u8, 1, 2]))));
    let at = |resolution: u32, purpose| DatasetOptions { purpose, ..DatasetOptions::new(dir.path(), resolution, 16) };
    let (aside, plain) = (Purpose::Train { validation: 0.25 }, Purpose::Train { validation: 0.0 });
    let orders = [[aside, plain], [plain, aside], [aside, Purpose::Regularise { ratio: 1.0 }]];
    for [first, second] in orders {
        let dataset = Dataset::build(&[at(64, first), at(48, second)]).unwrap();
        let of = |wanted: fn(Role) -> bool| -> BTreeSet<&str> {
            let items = dataset.items.iter().filter(|item| wanted(item.role));
            items.map(|item| dataset.entries[item.entry].picture.file.as_str()).collect()
        };
        let (aside, learned) = (of(|role| role == Role::Validate), of(|role| role != Role::Validate));
        assert_eq!((aside.len(), learned.len()), (2, 6));
        assert!(aside.is_disjoint(&learned), "{first:?} {second:?}: {aside:?} {learned:?}");
        let mut used = BTreeSet::new();
        let schedule = Schedule::new(&dataset, 1, 4, 1);
        for step in 0..2 * schedule.steps_per_epoch() {
            used.extend(schedule.step(step).batches.iter().flat_map(|(_, batch)| &batch.items).map(|item| item.item));
        }
        assert!(used.iter().all(|item| dataset.items[*item].role != Role::Validate));
        let note = dataset.notes.iter().find(|note| note.contains("validation")).unwrap();
        assert!(note.contains("2 pictures") && aside.iter().all(|file| note.contains(file)), "{note}");
    }
    // A copy under another name is the same picture.
    for i in 0..8 {
        std::fs::copy(dir.path().join(format!("{i}.png")), dir.path().join(format!("copy {i}.png"))).unwrap();
    }
    let dataset = build(at(64, Purpose::Train { validation: 0.2 }));
    let contents = |wanted: fn(Role) -> bool| -> BTreeSet<[u8; 32]> {
        dataset.entries.iter().filter(|entry| wanted(entry.role)).map(|entry| entry.picture.content).collect()
    };
    assert!(contents(|role| role == Role::Validate).is_disjoint(&contents(|role| role != Role::Validate)));
    let all = Dataset::build(&[at(64, Purpose::Train { validation: 1.0 }), at(48, plain)]).unwrap_err();
    assert!(format!("{all:#}").contains("nothing to learn"), "{all:#}");
}

#[test]
fn the_dumped_pixels_of_portraits_and_landscapes_keep_all_four_corners() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "set/tall.png", corners(96, 135));
    put(dir.path(), "set/wide.png", corners(135, 96));
    for scheme in [Scheme::Ratio, Scheme::List(Default::default()), Scheme::OwnSize] {
        let dataset = build(DatasetOptions { scheme, ..DatasetOptions::new(&dir.path().join("set"), 96, 8) });
        let out = dir.path().join(format!("{scheme:?}").chars().take(4).collect::<String>());
        dataset.dump_pixels(&out, |_| {}).unwrap();
        assert_eq!(files(&out), ["tall.png", "wide.png"]);
        for item in &dataset.items {
            let file = &dataset.entries[item.entry].picture.file;
            let dumped = image::open(out.join(file)).unwrap().into_rgb8();
            let (w, h) = dumped.dimensions();
            assert_eq!((w, h, w > h), (item.bucket.width, item.bucket.height, file == "wide.png"), "{scheme:?}");
            let found = [(1, 1), (w - 2, 1), (1, h - 2), (w - 2, h - 2)].map(|(x, y)| dumped.get_pixel(x, y).0);
            for (corner, colour) in found.iter().zip([[255, 0, 0], [0, 255, 0], [0, 0, 255], [255, 255, 0]]) {
                assert!(corner.iter().zip(colour).all(|(a, b)| a.abs_diff(b) <= 12), "{scheme:?} {file}: {found:?}");
            }
        }
    }
}

#[test]
fn a_dump_holds_exactly_what_is_encoded_under_names_of_the_pictures_own() {
    let dir = tempfile::tempdir().unwrap();
    let long = format!("{}.png", "猫".repeat(80));
    for name in ["set/a.b.png", "set/deep/c #1%.png", "set/c.png", &format!("set/{long}")] {
        put(dir.path(), name, corners(80, 64));
    }
    let set = dir.path().join("set");
    let options = DatasetOptions { flip: true, ..DatasetOptions::new(&set, 64, 8) };
    let dataset = build(options.clone());
    let out = dir.path().join("dump");
    dataset.dump_pixels(&out, |_| {}).unwrap();
    let cat = "猫".repeat(60);
    let expected = ["a.b.png", "a.b_flipped.png", "c.png", "c_flipped.png", "deep/c #1%.png", "deep/c #1%_flipped.png"];
    assert_eq!(files(&out), [&expected.map(String::from)[..], &[format!("{cat}.png"), format!("{cat}_flipped.png")]].concat());
    for (name, flip) in [("a.b.png", false), ("a.b_flipped.png", true)] {
        assert_eq!(image::open(out.join(name)).unwrap().into_rgb8().into_raw(), dataset.pixels(0, flip).unwrap().pixels);
    }
    // Two sizes of one picture, and two datasets with the same names.
    let several = DatasetOptions { resolutions: vec![64.into(), 32.into()], ..DatasetOptions::new(&set.join("deep"), 64, 8) };
    let dataset = Dataset::build(&[several.clone(), several]).unwrap();
    let out = dir.path().join("several");
    dataset.dump_pixels(&out, |_| {}).unwrap();
    assert_eq!(files(&out), ["c #1%_32x32.png", "c #1%_32x32_2.png", "c #1%_64x64.png", "c #1%_64x64_2.png"]);
    // In the user's own folder the next scan would take the dump for pictures.
    let error = format!("{:#}", dataset.dump_pixels(&set.join("deep/dump"), |_| {}).unwrap_err());
    assert!(error.contains("dump_pixels") && error.contains("outside"), "{error}");
    assert_eq!(files(&set).len(), 4);
}

#[test]
fn a_picture_that_comes_to_one_bucket_at_several_resolutions_is_learnt_once() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "small.png", corners(64, 64));
    put(dir.path(), "large.png", corners(128, 128));
    let set = build(DatasetOptions { resolutions: vec![64.into(), 96.into(), 128.into()], ..DatasetOptions::new(dir.path(), 64, 8) });
    let sizes = |file: &str| -> Vec<u32> {
        set.items.iter().filter(|item| set.entries[item.entry].picture.file == file).map(|item| item.bucket.width).collect()
    };
    assert_eq!((sizes("small.png"), sizes("large.png")), (vec![64], vec![64, 96, 128]));
}
