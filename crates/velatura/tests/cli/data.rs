//! How pictures come to the steps: caches, workers ahead of them, and pictures that go away on the way.

use crate::place::Place;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

fn report(place: &Place, file: &str) -> Value {
    serde_json::from_slice(&place.read(&format!("{file}/run/cache.json"))).unwrap()
}

fn count(report: &Value, key: &str) -> u64 {
    report[key].as_u64().unwrap_or_else(|| panic!("no {key}: {report}"))
}

/// Files of the place's latents' cache.
fn entries(place: &Place) -> Vec<PathBuf> {
    let files = walkdir::WalkDir::new(place.path("cache/latents")).sort_by_file_name().into_iter().flatten();
    files.map(|entry| entry.into_path()).filter(|path| path.extension().is_some_and(|e| e == "safetensors")).collect()
}

#[test]
fn a_second_run_encodes_nothing_and_damaged_or_foreign_entries_are_made_again() {
    let place = Place::new("sd15");
    // A file of the same content under another name shares its latents.
    std::fs::copy(place.path("pictures/0.png"), place.path("pictures/34_00000-001_0064x0064_sd.png")).unwrap();
    let change = json!({"datasets": [{"flip_x": true}]});
    place.train("first", change.clone());
    let first = report(&place, "first");
    assert_eq!(["encoded", "reused", "distinct_latents", "unusable"].map(|key| count(&first, key)), [14, 0, 14, 0]);
    assert!(count(&first, "text_encoded") > 0);
    place.train("second", change.clone());
    let second = report(&place, "second");
    assert_eq!(["encoded", "reused", "text_encoded", "distinct_latents"].map(|key| count(&second, key)), [0, 14, 0, 14]);
    place.assert_same_run("first", "second");

    let files = entries(&place);
    let mut bytes = std::fs::read(&files[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    std::fs::write(&files[0], &bytes).unwrap();
    std::fs::write(&files[1], &bytes[..100]).unwrap();
    std::fs::copy(&files[3], &files[2]).unwrap();
    let done = place.train("mended", change);
    let mended = report(&place, "mended");
    assert_eq!(["encoded", "reused", "unusable"].map(|key| count(&mended, key)), [3, 11, 3]);
    assert_eq!(done.stderr.matches("could not be used").count(), 1, "{}", done.stderr);
    place.assert_same_run("first", "mended");
}

#[test]
fn folders_where_files_of_the_cache_belong_end_no_run() {
    let place = Place::new("sd15");
    place.train("first", json!({}));
    let kinds = ["latents", "text", "identity"];
    for kind in kinds {
        let files = walkdir::WalkDir::new(place.path("cache").join(kind)).sort_by_file_name().into_iter().flatten();
        let file = files.map(|entry| entry.into_path()).find(|path| path.is_file());
        // What is known of a model's files is only kept if they are some seconds old.
        let Some(file) = file else { continue };
        std::fs::remove_file(&file).unwrap();
        std::fs::create_dir_all(file.join("in it")).unwrap();
    }
    let done = place.train("second", json!({}));
    assert_eq!(done.stderr.matches("remove it").count(), 2, "{}", done.stderr);
    assert_eq!(["encoded", "reused", "unusable"].map(|key| count(&report(&place, "second"), key)), [1, 6, 2]);
    place.assert_same_run("first", "second");
}

#[test]
fn other_sizes_and_an_edited_picture_have_latents_of_their_own() {
    let place = Place::new("sd15");
    place.train("both", json!({"datasets": [{"resolution": [64, 48]}]}));
    assert_eq!(count(&report(&place, "both"), "encoded"), 14);
    place.train("small", json!({"datasets": [{"resolution": 48}]}));
    assert_eq!(["encoded", "reused"].map(|key| count(&report(&place, "small"), key)), [0, 7]);
    image::RgbImage::from_pixel(64, 64, image::Rgb([9, 8, 7])).save(place.path("pictures/2.png")).unwrap();
    place.train("edited", json!({"datasets": [{"resolution": 48}]}));
    assert_eq!(["encoded", "reused"].map(|key| count(&report(&place, "edited"), key)), [1, 6]);
    let clear = json!({"datasets": [{"folder_path": "pictures", "resolution": 48, "background": "black"}]});
    place.train("background", clear);
    assert_eq!(count(&report(&place, "background"), "encoded"), 7);
}

#[test]
fn entries_that_no_run_uses_are_removed_when_asked_and_those_of_other_runs_stay() {
    let place = Place::new("sd15");
    place.train("large", json!({}));
    place.train("small", json!({"datasets": [{"resolution": 48}]}));
    let text = place.run(&["cache", "cache"]).good().stdout;
    assert!(text.contains("large") && text.contains("small") && text.contains("0 stale"), "{text}");
    std::fs::remove_dir_all(place.path("small")).unwrap();
    let found: Value = serde_json::from_str(&place.run(&["cache", "cache", "--collect", "--json"]).good().stdout).unwrap();
    assert_eq!((&found["stale"], &found["removed"]), (&json!(7), &json!(true)));
    place.train("again", json!({}));
    assert_eq!(["encoded", "reused"].map(|key| count(&report(&place, "again"), key)), [0, 7]);
    assert!(place.run(&["cache", "pictures", "--collect"]).error().contains("no cache"));
}

#[test]
fn the_number_of_workers_and_what_is_encoded_at_once_change_nothing() {
    let place = Place::new("sd15");
    let train = json!({"steps": 6, "batch_size": 2, "gradient_accumulation": 2});
    for (file, loader) in [
        ("none", json!({"num_workers": 0})),
        ("one", json!({"num_workers": 1, "prefetch_factor": 1})),
        ("many", json!({"num_workers": 5, "prefetch_factor": 7, "vae_batch_size": 3})),
    ] {
        place.train(
            file,
            json!({"train": train, "dataloader": loader, "cache_dir": format!("{file}/cache"), "datasets": [{"flip_x": true}]}),
        );
    }
    place.assert_same_run("none", "one");
    place.assert_same_run("none", "many");
    assert!(place.rows("many").iter().all(|row| row.seconds.data >= 0.0));
}

#[test]
fn latents_that_are_not_cached_are_encoded_in_the_steps_to_the_same_bits() {
    let place = Place::new("sd15");
    let change = |cached: bool| json!({"datasets": [{"flip_x": true, "cache_latents": cached}], "train": {"batch_size": 2, "steps": 6}});
    place.train("cached", change(true));
    place.train("uncached", change(false));
    place.assert_same_run("cached", "uncached");
    assert_eq!(["encoded", "reused", "distinct_latents"].map(|key| count(&report(&place, "uncached"), key)), [0, 0, 0]);
    // Where each picture comes from is its dataset's own matter.
    let half = json!({"datasets": [{"cache_latents": false}, {"folder_path": "pictures", "resolution": 48}]});
    place.train("half", half);
    assert_eq!(count(&report(&place, "half"), "distinct_latents"), 7);
}

#[test]
fn a_picture_that_goes_away_while_the_run_reads_it_is_left_out_and_the_run_goes_on() {
    let place = Place::new("sd15");
    let change = |bad: &str| {
        json!({
            "datasets": [{"cache_latents": false, "bad_images": bad}],
            "dataloader": {"num_workers": 1, "prefetch_factor": 1},
            "train": {"steps": 100, "batch_size": 2},
        })
    };
    let config = place.config("skips", change("skip"));
    let take = || std::fs::rename(place.path("pictures/0.png"), place.path("0.png")).unwrap();
    let done = place.run_until_then(&["train", &config], "skips", 2, "0", take).good();
    let warned: Vec<&str> = done.stderr.lines().filter(|line| line.contains("left out") && line.contains("0.png")).collect();
    assert_eq!(warned.len(), 1, "{}", done.stderr);
    let rows = place.rows("skips");
    assert!(rows.len() == 100 && rows.iter().all(|row| row.skipped == 0));
    let shown = |rows: &[train::metrics::Row]| rows.iter().flat_map(|row| &row.files).any(|file| file == "0.png");
    assert!(shown(&rows[..20]) && !shown(&rows[90..]));
    assert_eq!(count(&report(&place, "skips"), "lost"), 1);

    std::fs::rename(place.path("0.png"), place.path("pictures/0.png")).unwrap();
    let config = place.config("stops", change("stop"));
    let error = place.run_until_then(&["train", &config], "stops", 2, "0", take).error();
    assert!(error.contains("0.png") && error.contains("bad_images"), "{error}");
}

#[test]
fn a_run_that_is_killed_while_it_encodes_goes_on_with_what_was_encoded() {
    let place = Place::new("sd15");
    for i in 0..24 {
        let shade = |x: u32, y: u32| image::Rgb([(x * 3 + i * 5) as u8, (y * 3) as u8, (x + y) as u8]);
        image::RgbImage::from_fn(128, 128, shade).save(place.path(&format!("pictures/more{i}.png"))).unwrap();
    }
    let change = json!({"datasets": [{"resolution": 128}], "train": {"steps": 1}});
    let config = place.config("killed", change.clone());
    let mut child = place.command(&["train", &config]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while entries(&place).len() < 5 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = entries(&place).len() as u64;
    place.run(&["train", &config, "--resume"]).good();
    let report = report(&place, "killed");
    assert!((5..31).contains(&done), "{done} were encoded when it was killed");
    assert_eq!((count(&report, "reused"), count(&report, "encoded"), count(&report, "unusable")), (done, 31 - done, 0));
}

#[test]
fn three_times_as_many_pictures_take_no_more_memory() {
    let place = Place::new("sd15");
    let peak = |pictures: u32| {
        let folder = format!("set{pictures}");
        std::fs::create_dir(place.path(&folder)).unwrap();
        for i in 0..pictures {
            let shade = |x: u32, y: u32| image::Rgb([(x + i) as u8, (y + i / 7) as u8, (i * 3 + pictures) as u8]);
            image::RgbImage::from_fn(512, 512, shade).save(place.path(&format!("{folder}/{i}.png"))).unwrap();
        }
        place.train(&format!("run{pictures}"), json!({"datasets": [{"folder_path": folder}], "train": {"steps": 2}}));
        assert_eq!(count(&report(&place, &format!("run{pictures}")), "encoded"), u64::from(pictures));
        place.rows(&format!("run{pictures}")).last().unwrap().peak_bytes
    };
    let (few, many) = (peak(40), peak(120));
    // A decoded picture takes 786 kB: 80 of them would be 63 MB.
    assert!(many < few + 16_000_000, "{few} bytes for 40 pictures, {many} for 120");
}

#[test]
fn pictures_that_are_set_aside_are_measured_and_never_trained_on() {
    let place = Place::new("sd15");
    let plain = json!({"datasets": [{"validation": 0.3}], "train": {"steps": 6, "validate_every": 2, "batch_size": 2}});
    place.train("measured", plain.clone());
    let rows = place.rows("measured");
    let plan: Value = serde_json::from_str(&place.run(&["plan", "measured.yaml", "--json"]).good().stdout).unwrap();
    let images = plan["images"].as_array().unwrap();
    assert!(images.iter().all(|row| row.get("dumped").is_none()));
    let aside: Vec<&str> = images.iter().filter(|row| row["role"] == "validate").map(|row| row["file"].as_str().unwrap()).collect();
    assert_eq!(aside.len(), 2);
    assert!(rows.iter().flat_map(|row| &row.files).all(|file| !aside.contains(&file.as_str())));
    assert_eq!(rows.iter().map(|row| row.validation_loss.is_some()).collect::<Vec<_>>(), [false, true, false, true, false, true]);
    let losses: Vec<f64> = rows.iter().filter_map(|row| row.validation_loss).collect();
    assert!(losses.windows(2).all(|pair| pair[0] != pair[1]), "{losses:?}");

    let mut never = plain.clone();
    never["train"]["validate_every"] = json!(0);
    place.train("unmeasured", never);
    place.assert_same_run("measured", "unmeasured");
    let mut still = plain.clone();
    still["train"]["lr"] = json!(1e-12);
    place.train("still", still);
    let losses: Vec<f64> = place.rows("still").iter().filter_map(|row| row.validation_loss).collect();
    assert!(losses.windows(2).all(|pair| (pair[0] - pair[1]).abs() < 1e-6), "the same model, measured anew: {losses:?}");
    // Captions that go through the text encoder, which is trained.
    let mut encoded = plain;
    encoded["train"]["train_text_encoder"] = json!(true);
    place.train("encoded", encoded);
    assert!(place.rows("encoded")[5].validation_loss.is_some());
}

#[test]
fn the_pixels_that_go_to_the_vae_can_be_looked_at() {
    let place = Place::new("sd15");
    let config = place.config("looked", json!({"dump_pixels": "dump"}));
    let plan: Value = serde_json::from_str(&place.run(&["plan", &config, "--json"]).good().stdout).unwrap();
    for row in plan["images"].as_array().unwrap() {
        let dumped = image::open(place.path(&format!("dump/{}", row["file"].as_str().unwrap()))).unwrap();
        assert_eq!(json!([dumped.width(), dumped.height()]), row["bucket"]);
    }
    let wide = &plan["images"][1];
    assert!(wide["lost"].as_f64().unwrap() < 0.4 && wide["scale"].as_f64().unwrap() > 0.0 && wide["crop"].is_array(), "{wide}");
    std::fs::remove_dir_all(place.path("dump")).unwrap();
    place.run(&["train", &config]).good();
    assert_eq!(std::fs::read_dir(place.path("dump")).unwrap().count(), 7);
    let config = place.config("inside", json!({"dump_pixels": "pictures/dump"}));
    let error = place.run(&["plan", &config]).error();
    assert!(error.contains("dump_pixels") && !place.exists("pictures/dump"), "{error}");
}

#[test]
fn each_dumped_picture_tells_which_file_it_was() {
    let place = Place::new("sd15");
    let picture = image::open(place.path("pictures/0.png")).unwrap();
    for name in ["a.png", "a.jpg", "sub/a.png", "b.png"] {
        std::fs::create_dir_all(place.path("set/sub")).unwrap();
        picture.save(place.path(&format!("set/{name}"))).unwrap();
    }
    let dumped = |file: &str, datasets: Value| {
        let config = place.config(file, json!({"dump_pixels": file.to_string() + " dump", "datasets": datasets}));
        let plan: Value = serde_json::from_str(&place.run(&["plan", &config, "--json"]).good().stdout).unwrap();
        let rows = plan["images"].as_array().unwrap().iter();
        let rows: Vec<(String, Value)> = rows.map(|row| (row["file"].as_str().unwrap().to_string(), row["dumped"].clone())).collect();
        for name in rows.iter().flat_map(|(_, names)| names.as_array().unwrap()) {
            assert!(place.exists(&format!("{file} dump/{}", name.as_str().unwrap())), "{name}");
        }
        let names = walkdir::WalkDir::new(place.path(&format!("{file} dump"))).into_iter().flatten().filter(|e| e.file_type().is_file());
        assert_eq!(names.count(), rows.iter().map(|(_, names)| names.as_array().unwrap().len()).sum::<usize>());
        rows
    };
    let one = dumped("one", json!([{"folder_path": "set"}]));
    let expected = [("a.jpg", "a.jpg.png"), ("a.png", "a.png.png"), ("b.png", "b.png"), ("sub/a.png", "sub/a.png")];
    assert_eq!(one, expected.map(|(file, name)| (file.to_string(), json!([name]))));
    let two = dumped("two", json!([{"folder_path": "set", "flip_x": true, "resolution": [64, 48]}, {"folder_path": "set/sub"}]));
    assert_eq!(two[4], ("b.png".to_string(), json!(["b_64x64.png", "b_64x64_flipped.png"])));
    assert_eq!(two[8], ("a.png".to_string(), json!(["a.png.png"])));
}

#[test]
fn a_missing_embedding_and_new_sample_prompts_are_encoded_once_before_training() {
    let place = Place::new("sd15");
    let prompts = |prompts: Value| json!({"sample": {"prompts": prompts, "width": 64, "height": 64, "sample_steps": 1}});
    place.train("first", prompts(json!(["a castle"])));
    let texts = walkdir::WalkDir::new(place.path("cache/text")).sort_by_file_name().into_iter().flatten();
    let text = texts.map(|entry| entry.into_path()).find(|path| path.extension().is_some_and(|e| e == "safetensors")).unwrap();
    std::fs::remove_file(text).unwrap();
    place.train("mended", prompts(json!(["a castle"])));
    assert_eq!(["text_encoded", "encoded"].map(|key| count(&report(&place, "mended"), key)), [1, 0]);
    place.train("prompted", prompts(json!(["a castle", "a ship", "a hill"])));
    assert_eq!(["text_encoded", "encoded"].map(|key| count(&report(&place, "prompted"), key)), [2, 0]);
    place.assert_same_run("first", "mended");
    place.assert_same_run("first", "prompted");
}

#[test]
fn two_sets_with_equal_file_names_share_a_cache_and_do_not_disturb_each_other() {
    let place = Place::new("sd15");
    std::fs::create_dir(place.path("class")).unwrap();
    for i in 0..3u8 {
        image::RgbImage::from_pixel(64, 64, image::Rgb([i * 40, 200, 9])).save(place.path(&format!("class/{i}.png"))).unwrap();
    }
    let both = json!({"datasets": [{}, {"folder_path": "class", "resolution": 64, "is_reg": true}], "train": {"steps": 10}});
    place.train("first", both.clone());
    assert_eq!(["encoded", "distinct_latents"].map(|key| count(&report(&place, "first"), key)), [10, 10]);
    place.train("alone", json!({}));
    assert_eq!(["encoded", "reused"].map(|key| count(&report(&place, "alone"), key)), [0, 7]);
    place.train("second", both);
    place.assert_same_run("first", "second");
}

#[test]
fn a_cache_among_the_pictures_is_never_taken_for_pictures() {
    let place = Place::new("sd15");
    let inside = json!({"cache_dir": "pictures/cache", "train": {"train_text_encoder": false}});
    let first = place.train("first", inside.clone());
    let second = place.train("second", inside);
    place.assert_same_run("first", "second");
    assert_eq!(["encoded", "reused"].map(|key| count(&report(&place, "second"), key)), [0, 7]);
    assert!(!first.stderr.contains("not used") && !second.stderr.contains("not used"), "{}", second.stderr);
}

#[test]
fn a_picture_with_a_name_of_240_bytes_and_a_long_chinese_prompt_make_files_that_any_system_takes() {
    let place = Place::new("sd15");
    let long = "图".repeat(78) + "ab";
    std::fs::rename(place.path("pictures/0.png"), place.path(&format!("pictures/{long}.png"))).unwrap();
    std::fs::rename(place.path("pictures/0.txt"), place.path(&format!("pictures/{long}.txt"))).unwrap();
    let prompt = "一只猫坐在窗边".repeat(43);
    let sample = json!({"prompts": [prompt], "width": 64, "height": 64, "sample_steps": 1});
    place.train("long", json!({"datasets": [{"flip_x": true}], "dump_pixels": "dump", "sample": sample}));
    let files = walkdir::WalkDir::new(place.folder()).into_iter().flatten().map(|entry| entry.file_name().len());
    assert!(files.max().unwrap() <= 255);
    let samples: Vec<_> = std::fs::read_dir(place.path("long/run/samples")).unwrap().flatten().collect();
    assert!(!samples.is_empty() && samples.iter().all(|file| file.file_name().len() < 100), "{samples:?}");
    assert!(place.rows("long").iter().all(|row| row.skipped == 0));
    assert_eq!(std::fs::read_dir(place.path("dump")).unwrap().count(), 14);
}

/// Pictures of one content share their latents. When the one that stood for them goes away after the scan, the others stay.
#[test]
fn a_picture_that_goes_away_after_the_scan_takes_no_other_of_its_content_with_it() {
    let place = Place::new("sd15");
    for copy in ["pictures/copy.png", "others/again.png"] {
        place.write(copy, place.read("pictures/0.png"));
        place.write(&copy.replace("pictures", "masks").replace("others", "masks"), place.read("pictures/0.png"));
    }
    place.write("masks/0.png", place.read("pictures/0.png"));
    let paths = |name: &str| place.path(name).display().to_string();
    let changes = json!({
        "model": {"name_or_path": paths("model")},
        "training_folder": paths("gone"),
        "cache_dir": paths("cache"),
        "datasets": [{"folder_path": paths("pictures"), "mask_path": paths("masks")}, {"folder_path": paths("others"), "resolution": 64}],
        "train": {"steps": null, "epochs": 1},
    });
    let file = place.config("gone", changes);
    let loaded = config::load_file(&place.path(&file), &[]).unwrap();
    let mut said = Said::default();
    let run = train::Prepared::new(loaded, &place.path("model"), None, &mut said).unwrap();
    std::fs::remove_file(place.path("pictures/0.png")).unwrap();
    std::fs::remove_file(place.path("masks/0.png")).unwrap();
    let backend: Box<dyn engine::Backend> = Box::new(cpu::Cpu::new().unwrap());
    let planned = train::Planned::new(&run, backend.as_ref()).unwrap();
    train::train(&run, planned, backend, train::Start::New, &train::interrupt::Interrupt::default(), &mut said).unwrap();
    let files: Vec<String> = place.rows("gone").into_iter().flat_map(|row| row.files).collect();
    assert!(["copy.png", "again.png"].iter().all(|name| files.iter().any(|file| file == name)), "{files:?}");
    assert!(!files.iter().any(|file| file == "0.png"), "{files:?}");
    // Latents that were made in this run count as made, and not as found again after one was lost.
    let counts: Value = serde_json::from_slice(&place.read("gone/run/cache.json")).unwrap();
    assert_eq!(counts["reused"], 0, "{counts}");
    let lost: Vec<&String> = said.0.iter().filter(|line| line.contains("left out")).collect();
    assert!(lost.len() == 1 && lost[0].contains("0.png"), "{:?}", said.0);
    // The step that had nothing but this picture, if there was one, has changed nothing.
    let empty: Vec<_> = place.rows("gone").into_iter().filter(|row| row.files.is_empty()).collect();
    assert!(empty.len() == 1 && empty[0].skipped == 1 && empty[0].loss.is_none(), "{empty:?}");
}

/// Remembers warnings.
#[derive(Default)]
struct Said(Vec<String>);

impl train::event::Reporter for Said {
    fn report(&mut self, event: train::event::Event) {
        if let train::event::Event::Warning(text) = event {
            self.0.push(text);
        }
    }
}

#[test]
fn captions_in_code_pages_are_read_together_or_asked_about_and_may_be_named() {
    let place = Place::new("sd15");
    let (gbk, _) = (["一只猫", "红色的花", "女孩, 长发", "蓝天白云", "水墨画风格", "山水画", "小船"], ());
    for (i, text) in gbk.iter().enumerate() {
        place.write(&format!("pictures/{i}.txt"), encoding_rs::GBK.encode(text).0);
    }
    let captions = |config: &str| {
        let plan: Value = serde_json::from_str(&place.run(&["plan", config, "--json"]).good().stdout).unwrap();
        let rows = plan["images"].as_array().unwrap().clone();
        rows.into_iter().map(|row| (row["caption"].as_str().map(str::to_string), row["reason"].to_string())).collect::<Vec<_>>()
    };
    let config = place.config("together", json!({}));
    for ((caption, reason), meant) in captions(&config).iter().zip(gbk) {
        assert!(caption.as_deref() == Some(meant) && reason.contains("GBK") && reason.contains("caption_encoding"), "{caption:?} {reason}");
    }
    // One alone is too little.
    (1..7).for_each(|i| drop(place.write(&format!("pictures/{i}.txt"), gbk[i])));
    let alone = captions(&config);
    let asked = &alone.iter().find(|(caption, _)| caption.is_none()).unwrap().1;
    for part in ["0.txt", "caption_encoding", "gbk (\\\"一只猫\\\")", "or"] {
        assert!(asked.contains(part), "no `{part}` in {asked}");
    }
    let named = place.config("named", json!({"datasets": [{"caption_encoding": "cp936"}]}));
    assert!(captions(&named).iter().zip(gbk).all(|((caption, reason), meant)| caption.as_deref() == Some(meant) && reason == "null"));
    let doctor = place.run(&["doctor", "pictures"]).good().stdout;
    assert!(doctor.contains("0.txt") && doctor.contains("caption_encoding"), "{doctor}");
    let doctor = place.run(&["doctor", "pictures", "--caption-encoding", "gbk"]).good().stdout;
    assert!(!doctor.contains("caption_encoding"), "{doctor}");
}

#[test]
fn nothing_that_names_and_texts_hold_steers_a_terminal_and_files_are_told_once() {
    let place = Place::new("sd15");
    let (name, picture) = ("a\x1b[31m\nerror: b.png", place.read("pictures/0.png"));
    place.write(&format!("pictures/{name}"), &picture);
    place.write("pictures/a\x1b[31m\nerror: b.txt", b"caption \x1b]0;title\x07\xE9 of it".as_slice());
    place.write("pictures/\x1b[2Jbroken.png", b"no picture");
    let config = place.config("odd", json!({"trigger_word": "t\u{1b}[1m"}));
    let outputs = [
        place.run(&["plan", &config]).good(),
        place.run(&["doctor", "pictures"]).good(),
        place.run(&["train", &config]).good(),
        place.run(&["train", &config, "--set", "train.steps=0"]),
        place.run(&["plan", "no\x1b[31m\nsuch.yaml"]),
        place.run(&["config", "check", &config, "--set", "device=\"x\\e[31my\""]),
    ];
    for done in &outputs {
        let text = format!("{}{}", done.stdout, done.stderr);
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("error: b")), "{text}");
    }
    assert!(outputs[0].stdout.contains(r"\u{1b}[2Jbroken.png"), "{}", outputs[0].stdout);
    for done in &outputs[..3] {
        let text = format!("{}{}", done.stdout, done.stderr);
        assert_eq!(text.matches("broken.png").count(), 1, "{text}");
    }
}

#[test]
fn a_plan_counts_regularisation_pictures_in_their_buckets() {
    let place = Place::new("sd15");
    for i in 0..4 {
        place.write(&format!("others/{i}.png"), place.read("pictures/4.png"));
    }
    place.write("others/4.png", place.read("pictures/1.png"));
    // Seven to learn, and half as many others from a set of its own, a fifth of them in another shape.
    let others = json!({"folder_path": "others", "resolution": 128, "is_reg": true, "reg_ratio": 0.5});
    let config = place.config("reg", json!({"datasets": [{}, others]}));
    let plan: Value = serde_json::from_str(&place.run(&["plan", &config, "--json"]).good().stdout).unwrap();
    let of = |key: &str| plan["buckets"].as_array().unwrap().iter().map(|row| row[key].as_f64().unwrap()).sum::<f64>();
    assert_eq!((of("pictures"), of("regularisation")), (7.0, 3.5));
    let text = place.run(&["plan", &config]).good().stdout;
    assert!(!text.contains("0 pictures an epoch") && text.contains("2.8 for regularisation"), "{text}");
}
