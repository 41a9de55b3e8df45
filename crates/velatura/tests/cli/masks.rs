//! Masks: from a folder or from transparency, in training, validation, caches and plans.

use crate::place::Place;
use image::{GrayImage, Luma, Rgb, RgbImage, Rgba, RgbaImage};
use serde_json::{Value, json};

/// Writes a mask for each picture but those `without` one: white where `inside` says so, by the share of the width.
fn put_masks(place: &Place, folder: &str, inside: impl Fn(f32) -> bool, without: &[usize]) {
    std::fs::create_dir_all(place.path(folder)).unwrap();
    for i in (0..7).filter(|i| !without.contains(i)) {
        let (width, height) = image::image_dimensions(place.path(&format!("pictures/{i}.png"))).unwrap();
        let white = |x: u32, _: u32| Luma([if inside(x as f32 / width as f32) { 255 } else { 0 }]);
        GrayImage::from_fn(width, height, white).save(place.path(&format!("{folder}/{i}.png"))).unwrap();
    }
}

fn losses(place: &Place, name: &str) -> Vec<f64> {
    place.rows(name).iter().map(|row| row.loss.unwrap()).collect()
}

fn near(a: &[f64], b: &[f64]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5 * b)
}

fn plan(place: &Place, config: &str) -> Value {
    serde_json::from_str(&place.run(&["plan", config, "--json"]).good().stdout).unwrap()
}

fn report(place: &Place, name: &str) -> Value {
    serde_json::from_slice(&place.read(&format!("{name}/run/cache.json"))).unwrap()
}

#[test]
fn a_white_mask_changes_nothing_a_half_one_does_and_inverting_exchanges_its_halves() {
    let place = Place::new("sd15");
    put_masks(&place, "white", |_| true, &[]);
    put_masks(&place, "left", |x| x < 0.5, &[]);
    put_masks(&place, "right", |x| x >= 0.5, &[]);
    let with = |name: &str, keys: Value| {
        place.train(name, json!({"datasets": [keys], "train": {"batch_size": 2}}));
        losses(&place, name)
    };
    let plain = with("plain", json!({}));
    assert!(near(&with("all", json!({"mask_path": "white"})), &plain));
    let left = with("half", json!({"mask_path": "left"}));
    assert!(!near(&left, &plain));
    assert!(near(&with("inverted", json!({"mask_path": "right", "invert_mask": true})), &left));
    assert!(near(&with("even", json!({"mask_path": "left", "mask_min_value": 1})), &plain));
    // Half of a picture weighs twice as much, unless its weights stay as they are.
    let as_is = with("as is", json!({"mask_path": "left", "normalize_mask": false}));
    assert!((as_is[0] / left[0] - 0.5).abs() < 0.1, "{as_is:?} {left:?}");
}

#[test]
fn pixels_are_never_dumped_over_masks() {
    let place = Place::new("sd15");
    put_masks(&place, "masks", |x| x < 0.5, &[]);
    let before = place.read("masks/0.png");
    let config = place.config("over", json!({"datasets": [{"mask_path": "masks"}], "dump_pixels": "masks"}));
    let error = place.run(&["train", &config]).error();
    assert!(error.contains("dump_pixels") && error.contains("mask folder"), "{error}");
    assert_eq!(place.read("masks/0.png"), before);
}

#[test]
fn transparency_weighs_like_a_mask_of_the_same_form() {
    let place = Place::new("sd15");
    let opaque = |x: u32, y: u32| (x + 2 * y) % 64 < 40;
    for folder in ["cut", "flat", "masks"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    for i in 0..3u8 {
        let colour = |x: u32, y: u32| [(x * 3) as u8 + i, (y * 4) as u8, 90];
        let white = [255; 3];
        let cut = RgbaImage::from_fn(64, 64, |x, y| {
            let [r, g, b] = colour(x, y);
            Rgba([r, g, b, if opaque(x, y) { 255 } else { 0 }])
        });
        cut.save(place.path(&format!("cut/{i}.png"))).unwrap();
        let flat = RgbImage::from_fn(64, 64, |x, y| Rgb(if opaque(x, y) { colour(x, y) } else { white }));
        flat.save(place.path(&format!("flat/{i}.png"))).unwrap();
        let mask = GrayImage::from_fn(64, 64, |x, y| Luma([if opaque(x, y) { 255 } else { 0 }]));
        mask.save(place.path(&format!("masks/{i}.png"))).unwrap();
    }
    place.train("alpha", json!({"datasets": [{"folder_path": "cut", "alpha_mask": true, "flip_x": true}]}));
    place.train("folder", json!({"datasets": [{"folder_path": "flat", "mask_path": "masks", "flip_x": true}]}));
    assert_eq!(losses(&place, "alpha"), losses(&place, "folder"));
    place.train("whole", json!({"datasets": [{"folder_path": "flat", "flip_x": true}]}));
    assert_ne!(losses(&place, "alpha"), losses(&place, "whole"));
    // Pictures without transparency count whole, and are named.
    let config = place.config("opaque", json!({"datasets": [{"folder_path": "flat", "alpha_mask": true}]}));
    let planned = place.run(&["plan", &config]).good().stdout;
    assert!(planned.contains("3 pictures without a mask, used whole: 0.png, 1.png, 2.png"), "{planned}");
}

#[test]
fn masked_and_unmasked_pictures_train_validate_and_resume_together_and_masks_are_cached() {
    let place = Place::new("sd15");
    put_masks(&place, "masks", |x| x < 0.4, &[3]);
    std::fs::create_dir(place.path("others")).unwrap();
    std::fs::copy(place.path("pictures/0.png"), place.path("others/plain.png")).unwrap();
    let others = json!({"folder_path": "others", "resolution": 64});
    let changes = |masks: Value| {
        json!({
            "datasets": [{"mask_path": masks, "validation": 0.3, "flip_x": true}, others],
            "train": {"steps": 8, "batch_size": 2, "validate_every": 4},
        })
    };
    let masked = changes(json!("masks"));
    place.train("whole", masked.clone());
    // Three pictures have one size and masks of one content: they share their weights.
    assert_eq!(report(&place, "whole")["masks_made"], 4);
    let config = place.config("parts", masked.clone());
    place.run(&["train", &config, "--set", "train.steps=4"]).good();
    let resumed = place.run(&["train", &config, "--resume"]).good();
    place.assert_same_run("whole", "parts");
    assert_eq!([&report(&place, "parts")["masks_made"], &report(&place, "parts")["masks_reused"]], [0, 4]);
    assert!(resumed.stderr.contains("length: config 8 steps"), "{}", resumed.stderr);
    place.train("unmasked", changes(Value::Null));
    let validation = |name: &str| place.rows(name).iter().filter_map(|row| row.validation_loss).collect::<Vec<f64>>();
    assert!(validation("whole").len() == 2 && validation("whole")[0] != validation("unmasked")[0]);

    // Kept in memory and with latents made in the steps: the same bits.
    let mut uncached = masked.clone();
    for dataset in uncached["datasets"].as_array_mut().unwrap() {
        dataset["cache_latents"] = json!(false);
    }
    place.train("uncached", uncached);
    place.assert_same_run("whole", "uncached");

    let (planned, plain) = (plan(&place, &config), plan(&place, "unmasked.yaml"));
    let images = planned["images"].as_array().unwrap();
    let mask = |file: &str| &images.iter().find(|row| row["file"] == file).unwrap()["mask"];
    assert!(mask("0.png").as_str().unwrap().ends_with("0.png") && mask("3.png").is_null() && mask("plain.png").is_null());
    assert_eq!(serde_json::from_slice::<Value>(&place.read("whole/run/data.json")).unwrap(), planned["images"]);
    let summary = planned["summary"].to_string();
    assert!(summary.contains("1 picture without a mask, used whole: 3.png"), "{summary}");
    let inputs = |plan: &Value| plan["memory"]["inputs"].as_u64().unwrap();
    assert!(inputs(&planned) >= inputs(&plain) + 2 * 8 * 8 * 4);
}

#[test]
fn masks_that_can_not_be_used_leave_their_picture_out_or_stop_the_run_by_name() {
    let place = Place::new("sd15");
    put_masks(&place, "masks", |x| x < 0.5, &[1, 2, 4]);
    GrayImage::from_pixel(64, 64, Luma([255])).save(place.path("masks/1.png")).unwrap();
    GrayImage::from_pixel(64, 64, Luma([0])).save(place.path("masks/2.png")).unwrap();
    place.write("masks/4.png", &place.read("masks/0.png")[..60]);
    GrayImage::from_pixel(64, 64, Luma([255])).save(place.path("masks/stray.png")).unwrap();
    let changes = json!({"datasets": [{"mask_path": "masks"}], "train": {"steps": 8}});
    let done = place.train("skipped", changes.clone());
    for words in [
        "1.png: its mask",
        "another shape: 64×64 for 96×48",
        "4.png: its mask 4.png can't be used",
        "1 mask without a picture: stray.png",
        "leaves nothing of it",
    ] {
        assert!(format!("{}{}", done.stdout, done.stderr).contains(words), "no `{words}` in {}", done.stderr);
    }
    assert!(place.rows("skipped").iter().flat_map(|row| &row.files).all(|file| !["1.png", "2.png", "4.png"].contains(&file.as_str())));
    assert_eq!(report(&place, "skipped")["lost"], 0);
    let mut strict = changes;
    strict["datasets"][0]["bad_images"] = json!("stop");
    let config = place.config("strict", strict);
    assert!(place.run(&["train", &config]).error().contains("its mask"));
    std::fs::remove_file(place.path("masks/1.png")).unwrap();
    std::fs::remove_file(place.path("masks/4.png")).unwrap();
    assert!(place.run(&["train", &config]).error().contains("leaves nothing of it"));
}

/// Found while planning, not while training: no step is empty, and what `plan` says is what runs.
#[test]
fn pictures_whose_masks_leave_nothing_of_them_are_named_in_the_plan_and_a_least_value_makes_them_usable() {
    let place = Place::new("sd15");
    put_masks(&place, "masks", |x| x < 0.5, &[1, 3]);
    put_masks(&place, "black", |_| false, &[]);
    for (i, (width, height)) in [(1, (96, 48)), (3, (48, 96))] {
        GrayImage::from_pixel(width, height, Luma([0])).save(place.path(&format!("masks/{i}.png"))).unwrap();
    }
    let dataset = |keys: Value| json!({"datasets": [keys], "train": {"steps": null, "epochs": 1}});
    let config = place.config("some", dataset(json!({"mask_path": "masks"})));
    let planned = plan(&place, &config);
    for row in planned["images"].as_array().unwrap() {
        let empty = ["1.png", "3.png"].contains(&row["file"].as_str().unwrap());
        assert_eq!(row["used"], !empty, "{row}");
        assert!(!empty || row["reason"].as_str().unwrap().contains("leaves nothing of it"), "{row}");
    }
    assert_eq!(planned["steps"], 5);
    place.run(&["train", &config]).good();
    assert!(place.rows("some").iter().all(|row| !row.files.is_empty()) && place.rows("some").len() == 5);
    for (key, value) in [("mask_min_value", json!(1e-6)), ("mask_min_value", json!(1e-60)), ("invert_mask", json!(true))] {
        let config = place.config("usable", dataset(json!({"mask_path": "masks", key: value})));
        assert_eq!(plan(&place, &config)["steps"], 7, "{key}");
    }
    let error = place.run(&["train", &place.config("none", dataset(json!({"mask_path": "black"})))]).error();
    assert!(error.contains("none of its pictures can be used") && error.contains("leaves nothing of it"), "{error}");
}

#[test]
fn a_folder_of_masks_none_of_which_fits_is_an_error_with_the_names_that_were_looked_for() {
    let place = Place::new("sd15");
    GrayImage::from_pixel(64, 64, Luma([255])).save(place.path("stray.png")).unwrap();
    std::fs::create_dir(place.path("masks")).unwrap();
    for name in ["0_mask.png", "1_mask.png"] {
        std::fs::copy(place.path("stray.png"), place.path(&format!("masks/{name}"))).unwrap();
    }
    let error = place.run(&["plan", &place.config("wrong", json!({"datasets": [{"mask_path": "masks"}]}))]).error();
    for part in ["mask_path", "masks", "belongs to a picture", "looked for 0.*, 1.*", "there are 0_mask.png, 1_mask.png"] {
        assert!(error.contains(part), "no `{part}` in {error}");
    }
}

#[test]
fn a_resume_names_every_change_of_masks() {
    let place = Place::new("sd15");
    put_masks(&place, "masks", |x| x < 0.5, &[3]);
    let config = place.config("run", json!({"datasets": [{"mask_path": "masks"}], "train": {"steps": 2}}));
    place.run(&["train", &config]).good();
    let resumed = |keys: &[&str]| {
        let mut arguments = vec!["train", config.as_str(), "--resume", "--set", "train.steps=2"];
        keys.iter().for_each(|key| arguments.extend(["--set", key]));
        place.run(&arguments).good().stderr
    };
    assert!(!resumed(&[]).contains("using the config's from here on"), "nothing has changed");
    for (set, named) in [
        ("datasets.0.invert_mask=true", "datasets[0].invert_mask: config true, saved false"),
        ("datasets.0.mask_min_value=0.1", "datasets[0].mask_min_value: config 0.1, saved 0.0"),
        ("datasets.0.normalize_mask=false", "datasets[0].normalize_mask: config false, saved true"),
        ("datasets.0.mask_path=\"\"", "6 masks of the saved run are gone: 0.png, 1.png, 2.png, 4.png, 5.png, 6.png"),
    ] {
        let said = resumed(&[set]);
        assert!(said.contains(named), "no `{named}` in {said}");
    }
    let said = resumed(&["datasets.0.mask_path=\"\"", "datasets.0.alpha_mask=true"]);
    assert!(said.contains("datasets[0].alpha_mask: config true, saved false"), "{said}");
    // Other white pixels in one file, and then one mask more.
    std::fs::copy(place.path("masks/2.png"), place.path("kept.png")).unwrap();
    GrayImage::from_pixel(64, 64, Luma([255])).save(place.path("masks/2.png")).unwrap();
    let said = resumed(&[]);
    assert!(said.contains("1 mask differs from the saved run's: 2.png"), "{said}");
    std::fs::copy(place.path("kept.png"), place.path("masks/2.png")).unwrap();
    GrayImage::from_pixel(48, 96, Luma([255])).save(place.path("masks/3.png")).unwrap();
    let said = resumed(&[]);
    assert!(said.contains("1 mask is not in the saved run: 3.png"), "{said}");
    place.write("pictures/0.txt", "another caption");
    let said = resumed(&[]);
    assert!(said.contains("1 caption differs from the saved run's: 0.png"), "{said}");
    std::fs::remove_file(place.path("masks/1.png")).unwrap();
    place.write("pictures/5.png", place.read("kept.png"));
    place.write("pictures/6.txt", "one more");
    std::fs::remove_file(place.path("pictures/4.png")).unwrap();
    let said = resumed(&[]);
    for words in [
        "1 mask of the saved run is gone: 1.png",
        "1 picture differs from the saved run's: 5.png",
        "2 captions differ from the saved run's: 0.png, 6.png",
        "1 picture of the saved run is gone: 4.png",
    ] {
        assert!(said.contains(words), "no `{words}` in {said}");
    }
}

#[test]
fn a_folder_of_masks_among_the_pictures_is_not_trained_on() {
    let place = Place::new("sd15");
    put_masks(&place, "pictures/masks", |x| x < 0.5, &[]);
    let config = place.config("inside", json!({"datasets": [{"mask_path": "pictures/masks"}]}));
    let planned = plan(&place, &config);
    let images = planned["images"].as_array().unwrap();
    assert!(images.len() == 7 && images.iter().all(|row| row["mask"].is_string()), "{images:?}");
    let error = |datasets: Value| place.run(&["plan", &place.config("wrong", json!({"datasets": [datasets]}))]).error();
    assert!(error(json!({"mask_path": "pictures"})).contains("the folder of the pictures themselves"));
    assert!(error(json!({"mask_path": "nowhere"})).contains("mask_path: nowhere is no folder"));
    let both = error(json!({"mask_path": "masks", "alpha_mask": true}));
    assert!(both.contains("datasets[0].alpha_mask") && both.contains("datasets[0].mask_path"), "{both}");
}
