//! A run that is killed, stopped or finished goes on to the same bits.

use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Everything that draws random numbers or counts: batches of two, accumulation, flips, dropped captions, dropout, a schedule.
fn lively(steps: u64, dtype: &str) -> Value {
    json!({
        "network": {"dropout": 0.2},
        "datasets": [{"flip_x": true, "caption_dropout_rate": 0.3, "num_repeats": 2}],
        "train": {
            "steps": steps, "dtype": dtype, "batch_size": 2, "gradient_accumulation": 2, "noise_offset": 0.05, "min_snr_gamma": 5,
            "lr_scheduler": "cosine", "lr_warmup_steps": 3,
            // In fp16: overflows at first, then growth, and again.
            "grad_scaler": {"init_scale": 3e9, "growth_interval": 3, "growth_factor": 9},
        },
        "save": {"save_every": 4, "max_step_saves_to_keep": 2},
    })
}

#[test]
fn a_run_killed_again_and_again_ends_with_the_bits_of_a_run_in_one_go() {
    for (arch, dtype, kills) in [("sd15", "fp32", vec![2, 9, 9, 14, 19]), ("sd21", "bf16", vec![5, 13]), ("sd15", "fp16", vec![6, 11])] {
        let place = Place::new(arch);
        let steps = 24;
        place.train("whole", lively(steps, dtype));
        let config = place.config("killed", lively(steps, dtype));
        for rows in kills {
            place.run_until(&["train", &config, "--resume"], "killed", rows, "KILL");
        }
        place.run(&["train", &config, "--resume"]).good();
        assert_eq!(place.rows("killed").len() as u64, steps);
        place.assert_same_run("whole", "killed");
    }
}

#[test]
fn killed_in_the_middle_of_a_long_run_it_goes_on_from_the_newest_state() {
    let place = Place::new("sd15");
    let change = |steps: u64| json!({"train": {"steps": steps}, "save": {"save_every": 3}});
    // Far longer than it takes to send a signal: the kill always meets a running process.
    let config = place.config("killed", change(100_000));
    let killed = place.run_until(&["train", &config], "killed", 5, "KILL");
    assert_eq!(killed.status, None, "{}", killed.stderr);
    assert!(!place.exists("killed/run/run.safetensors"));
    let steps = place.rows("killed").len() as u64 + 2;
    let config = place.config("killed", change(steps));
    let resumed = place.run(&["train", &config, "--resume"]).good();
    assert!(resumed.stderr.contains("going on after step"), "{}", resumed.stderr);
    place.train("whole", change(steps));
    place.assert_same_run("whole", "killed");
}

#[test]
fn a_finished_run_says_so_and_a_longer_one_goes_on() {
    let place = Place::new("sd15");
    let change = |steps: u64| json!({"train": {"steps": steps, "batch_size": 2}, "save": {"save_every": 2}});
    place.train("grown", change(4));
    let bytes = place.lora_bytes("grown");
    let again = place.run(&["train", "grown.yaml", "--resume"]).good();
    assert!(again.stderr.contains("complete already: 4 of 4"), "{}", again.stderr);
    assert!(again.stdout.contains("run.safetensors"), "{}", again.stdout);
    assert!(place.lora_bytes("grown") == bytes);
    for steps in [6, 8] {
        let config = place.config("grown", change(steps));
        place.run(&["train", &config, "--resume"]).good();
        assert_eq!(place.rows("grown").last().unwrap().step, steps);
    }
    place.train("whole", change(8));
    place.assert_same_run("whole", "grown");
    let config = place.config("grown", change(5));
    let error = place.run(&["train", &config, "--resume"]).error();
    assert!(error.contains("8 steps already") && error.contains("train.steps"), "{error}");
    place.assert_same_run("whole", "grown");
}

/// Files of a folder whose names begin so, in order.
fn names(place: &Place, folder: &str, start: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = entries.filter(|name| name.starts_with(start)).collect();
    names.sort();
    names
}

#[test]
fn a_run_that_is_made_longer_twice_has_the_rates_files_and_bits_of_one_that_always_was_so_long() {
    let place = Place::new("sd15");
    let change = |steps: u64| {
        let train = json!({"steps": steps, "batch_size": 2, "lr_scheduler": "constant_with_warmup", "lr_warmup_steps": 12});
        json!({"train": train, "save": {"save_every": 2}, "network": {"dropout": 0.1}})
    };
    place.train("grown", change(10));
    let finished = place.lora("grown/run/run.safetensors").modules;
    for steps in [14, 18] {
        let config = place.config("grown", change(steps));
        let done = place.run(&["train", &config, "--resume"]).good();
        assert!(done.stderr.contains("stays as") && done.stderr.contains(&format!("run_{:09}.safetensors", steps - 4)), "{}", done.stderr);
        if steps == 14 {
            assert!(place.lora("grown/run/run_000000010.safetensors").modules == finished, "the finished LoRA is lost");
        }
    }
    place.train("whole", change(18));
    place.assert_same_run("whole", "grown");
    for (folder, start) in [("run", "run"), ("run/state", "0")] {
        let [grown, whole] = ["grown", "whole"].map(|file| names(&place, &format!("{file}/{folder}"), start));
        assert_eq!(grown, whole);
    }
}

#[test]
fn pictures_that_are_added_before_a_resume_are_announced_and_the_rate_does_not_leap() {
    let place = Place::new("sd15");
    let change = json!({"train": {"steps": null, "epochs": 6, "lr_scheduler": "cosine"}, "save": {"save_every": 7}});
    let config = place.config("fed", change);
    place.run_until(&["train", &config], "fed", 20, "KILL");
    let done = place.rows("fed").len() / 7 * 7;
    for i in 0..3u8 {
        let picture = image::RgbImage::from_fn(64, 64, |x, y| image::Rgb([x as u8 * 3, y as u8, i * 80]));
        picture.save(place.path(&format!("pictures/new{i}.png"))).unwrap();
        place.write(&format!("pictures/new{i}.txt"), "a new pattern");
    }
    let resumed = place.run(&["train", &config, "--resume"]).good();
    for words in ["the pictures, buckets or batches differ", "config 60 steps, saved 42", "goes on from"] {
        assert!(resumed.stderr.contains(words), "{words}: {}", resumed.stderr);
    }
    let rows = place.rows("fed");
    assert_eq!(rows.len(), 60);
    assert!(rows.windows(2).all(|pair| pair[1].lr <= pair[0].lr && pair[0].lr - pair[1].lr < 0.06e-3), "the rate leaps");
    assert!(rows[done..].iter().any(|row| row.files.iter().any(|file| file.starts_with("new"))));
}

#[test]
fn killed_while_it_saves_it_goes_on_from_a_whole_state() {
    let place = Place::new("sd15");
    let change = |steps: u64| json!({"train": {"steps": steps}, "save": {"save_every": 1, "max_step_saves_to_keep": 2}});
    let config = place.config("killed", change(100_000));
    // It saves after each step, so most kills come while it does.
    for rows in [2, 5, 9, 12, 16, 21] {
        let killed = place.run_until(&["train", &config, "--resume"], "killed", rows, "KILL");
        assert_eq!(killed.status, None, "{}", killed.stderr);
    }
    let steps = place.rows("killed").len() as u64 + 2;
    let config = place.config("killed", change(steps));
    let resumed = place.run(&["train", &config, "--resume"]).good();
    assert!(!resumed.stderr.contains("can't be used"), "{}", resumed.stderr);
    place.train("whole", change(steps));
    place.assert_same_run("whole", "killed");
    for (folder, start) in [("run", "run"), ("run", ".run"), ("run/state", "0"), ("run/state", ".")] {
        let [killed, whole] = ["killed", "whole"].map(|file| names(&place, &format!("{file}/{folder}"), start));
        assert_eq!(killed, whole, "{folder}/{start}");
    }
}

#[test]
fn old_checkpoints_go_by_number_and_foreign_files_stay() {
    let place = Place::new("sd15");
    let foreign = ["keep/run/run_12.safetensors", "keep/run/other_000000001.safetensors", "keep/run/state/mine/notes.txt"];
    for file in foreign {
        place.write(file, "mine");
    }
    place.train("keep", json!({"train": {"steps": 11}, "save": {"save_every": 1, "max_step_saves_to_keep": 2}}));
    assert!(foreign.iter().all(|file| place.exists(file)));
    assert_eq!(names(&place, "keep/run", "run_0"), ["run_000000009.safetensors", "run_000000010.safetensors"]);
    assert_eq!(names(&place, "keep/run/state", "0"), ["000000010", "000000011"]);
    assert!(names(&place, "keep/run", ".run").is_empty() && names(&place, "keep/run/state", ".").is_empty());
}

#[test]
fn a_damaged_state_is_passed_over_and_the_result_is_the_same() {
    let place = Place::new("sd15");
    let change = json!({"train": {"steps": 6}, "save": {"save_every": 2}});
    place.train("whole", change.clone());
    place.train("damaged", change);
    for newest in ["damaged/run/state/000000006/state.safetensors", "damaged/run/state/000000004/manifest.json"] {
        let mut bytes = place.read(newest);
        bytes.truncate(bytes.len() / 2);
        place.write(newest, bytes);
    }
    let resumed = place.run(&["train", "damaged.yaml", "--resume"]).good();
    assert!(resumed.stderr.contains("000000006") && resumed.stderr.contains("000000004"), "{}", resumed.stderr);
    assert!(resumed.stderr.contains("going on after step 2"), "{}", resumed.stderr);
    place.assert_same_run("whole", "damaged");
}

#[test]
fn an_existing_run_is_refused_and_over_moves_it_aside() {
    let place = Place::new("sd15");
    place.train("twice", json!({"train": {"steps": 2}}));
    let bytes = place.lora_bytes("twice");
    let error = place.run(&["train", "twice.yaml"]).error();
    assert!(error.contains("--resume") && error.contains("--over"), "{error}");
    assert!(place.lora_bytes("twice") == bytes);
    place.run(&["train", "twice.yaml", "--over", "--set", "train.steps=3"]).good();
    assert!(place.read("twice/run.old-1/run.safetensors") == bytes);
    assert_eq!(place.rows("twice").len(), 3);
}

/// Every file below a folder, with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| if path.is_dir() { files(&path) } else { BTreeMap::from([(path.clone(), std::fs::read(path).unwrap())]) })
        .collect()
}

#[test]
fn a_state_that_does_not_fit_is_refused_before_anything_is_written_or_encoded() {
    let place = Place::new("sd15");
    place.train("changed", json!({"train": {"steps": 2}}));
    let before = files(&place.path("changed"));
    for (train, network, word) in [
        (json!({}), json!({"linear": 8}), "rank"),
        (json!({}), json!({"conv": 2}), "other modules"),
        (json!({}), json!({"only_if_contains": ["attn1"]}), "more modules"),
        (json!({"train_text_encoder": true}), json!({}), "other modules"),
        (json!({"optimizer": "lion"}), json!({}), "adamw"),
    ] {
        let mut change = json!({"train": {"steps": 4}, "network": network, "datasets": [{"resolution": 96}]});
        change["train"].as_object_mut().unwrap().extend(train.as_object().unwrap().clone());
        let done = place.run(&["train", &place.config("changed", change), "--resume"]);
        assert_eq!(done.status, Some(1), "{}", done.stderr);
        assert!(done.stderr.contains(word), "\"{word}\" is missing in: {}", done.stderr);
        assert!(!done.stderr.contains("using the"), "{}", done.stderr);
        assert!(files(&place.path("changed")) == before, "{word}: the run's folder was changed");
    }
}

#[test]
fn a_resume_refuses_another_alpha_and_says_what_else_has_changed() {
    let place = Place::new("sd15");
    place.train("settings", json!({"train": {"steps": 2}, "network": {"linear_alpha": 4}}));
    let config = place.config("settings", json!({"train": {"steps": 4}, "network": {"linear_alpha": 400}}));
    let error = place.run(&["train", &config, "--resume"]).error();
    assert!(error.contains("network.linear_alpha is 400") && error.contains("trained with 4"), "{error}");
    let config = place.config("settings", json!({"train": {"steps": 4, "max_grad_norm": 0.5}, "network": {"linear_alpha": 4}}));
    let resumed = place.run(&["train", &config, "--resume"]).good();
    assert!(resumed.stderr.contains("train.max_grad_norm: config 0.5, saved 1"), "{}", resumed.stderr);
    let changed = json!({
        "train": {"steps": 6, "max_grad_norm": 0.5},
        "network": {"linear_alpha": 4},
        "datasets": [{"validation": 0.3, "cache_latents_to_disk": false}],
    });
    let resumed = place.run(&["train", &place.config("settings", changed), "--resume"]).good();
    assert!(resumed.stderr.contains("datasets[0].validation: config 0.3, saved 0"), "{}", resumed.stderr);
    assert!(!resumed.stderr.contains("cache_latents"), "{}", resumed.stderr);
}

#[test]
fn a_resume_without_a_state_never_writes_over_a_finished_lora() {
    let place = Place::new("sd15");
    place.train("stateless", json!({"train": {"steps": 2}}));
    let bytes = place.lora_bytes("stateless");
    std::fs::remove_dir_all(place.path("stateless/run/state")).unwrap();
    let error = place.run(&["train", "stateless.yaml", "--resume"]).error();
    assert!(error.contains("no saved state") && error.contains("--over"), "{error}");
    assert!(place.lora_bytes("stateless") == bytes);
}

#[test]
fn a_reader_that_goes_away_does_not_end_a_run() {
    let place = Place::new("sd15");
    let config = place.config("piped", json!({"train": {"steps": 6}, "logging": {"log_every": 1}}));
    let mut command = place.command(&["train", &config]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    assert!(child.wait().unwrap().success());
    assert_eq!(place.rows("piped").len(), 6);
}

#[test]
fn two_runs_in_one_folder_are_refused() {
    let place = Place::new("sd15");
    let config = place.config("busy", json!({"train": {"steps": 100_000}}));
    let first = place.run_until_then(&["train", &config], "busy", 1, "KILL", || {
        let error = place.run(&["train", &config, "--resume"]).error();
        assert!(error.contains("another velatura"), "{error}");
    });
    assert_eq!(first.status, None);
}

#[test]
fn a_length_changed_in_the_middle_of_a_schedule_is_announced_and_the_rate_does_not_leap() {
    let place = Place::new("sd15");
    let change = |steps: u64| json!({"train": {"steps": steps, "lr_scheduler": "cosine"}, "save": {"save_every": 5}});
    let config = place.config("bent", change(40));
    place.run_until(&["train", &config], "bent", 12, "KILL");
    let before = place.rows("bent");
    let config = place.config("bent", change(60));
    let resumed = place.run(&["train", &config, "--resume"]).good();
    assert!(resumed.stderr.contains("config 60 steps, saved 40") && resumed.stderr.contains("goes on from"), "{}", resumed.stderr);
    let rows = place.rows("bent");
    assert_eq!(rows.len(), 60);
    assert!(rows.windows(2).all(|pair| pair[1].lr <= pair[0].lr && pair[0].lr - pair[1].lr < 0.05e-3), "the rate leaps");
    assert!(rows[59].lr < 1e-5 && before[..10].iter().zip(&rows).all(|(old, new)| old.lr == new.lr));
}

#[test]
fn another_rate_on_resume_is_the_configs_and_both_are_named() {
    let place = Place::new("sd15");
    place.train("slower", json!({"train": {"steps": 3, "lr": 1e-3}}));
    let config = place.config("slower", json!({"train": {"steps": 5, "lr": 5e-4}}));
    let resumed = place.run(&["train", &config, "--resume"]).good();
    assert!(resumed.stderr.contains("learning rate: config 5e-4, saved 1e-3"), "{}", resumed.stderr);
    let rates: Vec<f64> = place.rows("slower").iter().map(|row| row.lr).collect();
    assert_eq!(rates, [1e-3, 1e-3, 1e-3, 5e-4, 5e-4]);
}
