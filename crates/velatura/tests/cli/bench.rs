//! `bench` times real steps and leaves no trace.

use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

fn files(place: &Place) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = walkdir::WalkDir::new(place.folder()).into_iter().map(|entry| entry.unwrap());
    entries.filter(|entry| entry.file_type().is_file()).map(|entry| (entry.path().into(), std::fs::read(entry.path()).unwrap())).collect()
}

fn bench(place: &Place, arguments: &[&str]) -> Value {
    let arguments = [&["bench", "--json"], arguments].concat();
    serde_json::from_str(&place.run(&arguments).good().stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn the_table_adds_up_and_nothing_is_written() {
    let place = Place::new("sd15");
    let config = place.config("timed", json!({"train": {"gradient_accumulation": 2}, "datasets": [{"flip_x": true}]}));
    // With caches and a run's folder of an earlier run: they must not change either.
    place.run(&["train", &config]).good();
    let changed = place.config("timed", json!({"seed": 9, "datasets": [{"resolution": 96}]}));
    let before = files(&place);
    let bench = bench(&place, &[&changed, "--steps", "2"]);
    assert_eq!(files(&place), before);

    let processor = number(&bench["processor_share"]);
    assert!(processor > 0.0 && processor < 1.5, "{processor}");
    assert_eq!(bench["steps"].as_array().unwrap().len(), 2);
    for key in ["gflop_per_second", "read_gb_per_second", "write_gb_per_second"] {
        assert!(number(&bench["roofline"][key]) > 0.0, "{key}");
    }
    let ops = bench["ops"].as_array().unwrap();
    let share: f64 = ops.iter().map(|row| number(&row["share"])).sum();
    assert!((share - 1.0).abs() < 1e-9, "{share}");
    let seconds: f64 = ops.iter().map(|row| number(&row["seconds"])).sum();
    let steps = bench["steps"].as_array().unwrap();
    let measured: f64 = steps.iter().map(|step| number(&step["forward"]) + number(&step["backward"])).sum();
    assert!((seconds * 2.0 - measured).abs() < 1e-9, "{seconds} {measured}");
    let attention = ops.iter().find(|row| row["op"] == "Attention").unwrap();
    assert!(number(&attention["calls"]) > 0.0 && number(&attention["gflop_per_second"]) > 0.0 && attention["shapes"].is_null());
}

#[test]
fn shapes_split_the_rows_of_a_kind() {
    let place = Place::new("sd15");
    let config = place.config("timed", json!({"datasets": [{"buckets": false}]}));
    let (whole, split) = (bench(&place, &[&config, "--steps", "1"]), bench(&place, &[&config, "--steps", "1", "--by-shape"]));
    let calls = |bench: &Value, op: &str| -> Vec<f64> {
        bench["ops"].as_array().unwrap().iter().filter(|row| row["op"] == op).map(|row| number(&row["calls"])).collect()
    };
    for op in ["Linear", "Conv2d", "LinearGrad"] {
        let (whole, split) = (calls(&whole, op), calls(&split, op));
        assert!(whole.len() == 1 && split.len() > 1 && split.iter().sum::<f64>() == whole[0], "{op}: {whole:?} {split:?}");
    }
    let shapes: Vec<&str> = split["ops"].as_array().unwrap().iter().map(|row| row["shapes"].as_str().unwrap()).collect();
    assert!(shapes.iter().all(|s| s.contains(" → ")), "{shapes:?}");
    let text = place.run(&["bench", &config, "--steps", "1"]).good().stdout;
    assert!(text.contains("roofline") && text.contains("optimizer") && text.contains("Linear"), "{text}");
    assert!(!place.exists("timed") && !place.exists("cache"));
}
