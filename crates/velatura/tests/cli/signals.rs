//! SIGINT and SIGTERM save a state to go on from.

use crate::place::Place;
use serde_json::json;

fn stops_and_goes_on(signal: &str, status: i32) {
    let place = Place::new("sd15");
    let change = |steps: u64| json!({"train": {"steps": steps, "batch_size": 2, "gradient_accumulation": 3}});
    let config = place.config("stopped", change(100_000));
    let stopped = place.run_until(&["train", &config], "stopped", 3, signal);
    assert_eq!(stopped.status, Some(status), "{}", stopped.stderr);
    assert!(stopped.stderr.lines().last().unwrap().contains("--resume"), "{}", stopped.stderr);
    let rows = place.rows("stopped").len() as u64;
    assert!(place.exists(&format!("stopped/run/state/{rows:09}/manifest.json")), "no state was saved after {rows} steps");
    let config = place.config("stopped", change(rows + 2));
    place.run(&["train", &config, "--resume"]).good();
    place.train("whole", change(rows + 2));
    place.assert_same_run("whole", "stopped");
}

#[test]
fn sigint_saves_and_exits_with_130() {
    stops_and_goes_on("INT", 130);
}

#[test]
fn sigterm_saves_and_exits_with_143() {
    stops_and_goes_on("TERM", 143);
}

#[test]
fn a_second_signal_ends_the_run_at_once_and_leaves_only_whole_states() {
    let place = Place::new("sd15");
    let change = |steps: u64| json!({"train": {"steps": steps}, "save": {"save_every": 1}});
    let config = place.config("twice", change(100_000));
    // It saves after each step, so most signals come while it does.
    let rows = [3, 9, 14, 20, 27, 33];
    for rows in rows {
        let done = place.follow(place.command(&["train", &config, "--resume"]), "twice", rows, |child| {
            crate::place::send(child, "INT");
            crate::place::send(child, "INT");
        });
        assert_eq!(done.status, Some(130), "{}", done.stderr);
    }
    let steps = place.rows("twice").len() as u64 + 2;
    let config = place.config("twice", change(steps));
    let resumed = place.run(&["train", &config, "--resume"]).good();
    assert!(!resumed.stderr.contains("can't be used"), "{}", resumed.stderr);
    place.train("whole", change(steps));
    place.assert_same_run("whole", "twice");
}
