//! A full disk: what was saved stays whole, the run says how to go on, and nothing half-written has a final name.
//!
//! The disk is a limit on the size of files, which states of this run (312 kB) exceed and everything else doesn't.

use crate::place::Place;
use serde_json::{Value, json};
use std::process::Command;

const LIMIT: u64 = 200_000;

fn changes(steps: u64) -> Value {
    json!({"train": {"steps": steps, "batch_size": 2}, "save": {"save_every": 3}})
}

/// A run of four steps that is to go on to `steps` under the limit, and the same run without any.
fn place(steps: u64) -> (Place, String) {
    let place = Place::new("sd15");
    place.train("whole", changes(steps));
    place.train("full", changes(4));
    let config = place.config("full", changes(steps));
    (place, config)
}

fn names(place: &Place, folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(place.path(folder)).unwrap();
    let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_disk_that_stays_full_leaves_earlier_checkpoints_whole_and_the_run_says_how_to_go_on() {
    let (place, config) = place(8);
    let state = place.read("full/run/state/000000004/state.safetensors");
    let failed = place.follow(place.cramped(&["train", &config, "--resume"], LIMIT), "full", 0, |_| {});
    let error = failed.error();
    assert!(error.contains("no room is left") && error.contains("--resume") && error.contains("state.safetensors"), "{error}");
    assert!(failed.stderr.contains("no checkpoint at step 6"), "{}", failed.stderr);
    assert!(place.read("full/run/state/000000004/state.safetensors") == state);
    assert!(names(&place, "full/run/state").iter().all(|name| name.as_str() <= "000000004"), "{:?}", names(&place, "full/run/state"));
    assert!(names(&place, "full/run").iter().all(|name| !name.ends_with(".part")));
    place.run(&["train", &config, "--resume"]).good();
    place.assert_same_run("whole", "full");
}

#[test]
fn a_run_goes_on_while_the_disk_is_full_and_saves_when_there_is_room_again() {
    let (place, config) = place(600);
    let cramped = place.cramped(&["train", &config, "--resume"], LIMIT);
    let done = place.follow(cramped, "full", 30, |child| {
        let status = Command::new("prlimit").args(["--fsize=unlimited", "--pid", &child.id().to_string()]).status();
        assert!(status.unwrap().success());
    });
    let done = done.good();
    assert_eq!(done.stderr.matches("no checkpoint at step").count(), 1, "{}", done.stderr);
    assert!(done.stderr.contains("no checkpoint at step 6"), "{}", done.stderr);
    assert_eq!(place.rows("full").len(), 600);
    place.assert_same_run("whole", "full");
}

#[test]
fn a_run_whose_checkpoints_will_not_all_fit_is_warned_at_its_start() {
    let place = Place::new("sd15");
    let config =
        place.config("huge", json!({"train": {"steps": 10_000_000}, "save": {"save_every": 1, "max_step_saves_to_keep": 10_000_000}}));
    let stopped = place.run_until(&["train", &config], "huge", 1, "INT");
    assert_eq!(stopped.status, Some(130));
    assert!(
        stopped.stderr.contains("the checkpoints of this run come to 3.") && stopped.stderr.contains("max_step_saves_to_keep"),
        "{}",
        stopped.stderr
    );
}
