//! Optimizer states that were stored once still load, and go on to the numbers that they went on to then.
//!
//! `VELATURA_WRITE_STATES=1 cargo test --release --workspace --test states` stores those of optimizers that `states.json` lacks. A state
//! whose meaning has changed needs another format version, and a new entry here.
#![allow(clippy::unwrap_used)]

use base::Shape;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use velatura_optim::state::Array;
use velatura_optim::{Layout, OPTIMIZERS, Optimizer, State, choose};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/states.json");
const STEPS: u64 = 4;

fn optimizer(name: &str) -> Optimizer {
    let shapes = [("unet.a.lora_down", vec![4, 6]), ("unet.a.lora_up", vec![7, 3]), ("unet.b.magnitude", vec![5])];
    let layout = Layout::uniform(shapes.map(|(name, dims)| (name.to_string(), Shape(dims.into_iter().collect())))).unwrap();
    Optimizer::new(choose(name, &Map::new()).unwrap(), layout, 1e-2, None).unwrap()
}

/// Numbers that no random number generator has to repeat.
fn wave(step: u64) -> Vec<f32> {
    (0..50).map(|i| ((i * 37 + step as usize * 101) % 64) as f32 / 64.0 - 0.375).collect()
}

fn numbers(values: &[f32]) -> Value {
    values.iter().map(|v| f64::from(*v)).collect()
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

/// The state after some steps, and where one more leads.
fn entry(name: &str) -> Value {
    let (mut optimizer, mut params) = (optimizer(name), wave(100));
    (0..STEPS).for_each(|step| optimizer.step(&mut params, &wave(step), 1e-2));
    let state = optimizer.state();
    let arrays: Map<String, Value> = state
        .tensors()
        .into_iter()
        .map(|(name, array)| match array {
            Array::F32(values) => (name, json!({"f32": numbers(values)})),
            Array::U8(values) => (name, json!({"u8": values})),
        })
        .collect();
    let before = numbers(&params);
    optimizer.step(&mut params, &wave(STEPS), 1e-2);
    json!({"metadata": state.metadata(), "arrays": arrays, "before": before, "after": numbers(&params)})
}

fn stored() -> Map<String, Value> {
    std::fs::read_to_string(FILE).map(|text| serde_json::from_str(&text).unwrap()).unwrap_or_default()
}

fn write_missing() {
    let mut all = stored();
    for row in OPTIMIZERS {
        all.entry(row.name).or_insert_with(|| entry(row.name));
    }
    std::fs::write(FILE, serde_json::to_string(&all).unwrap() + "\n").unwrap();
}

#[test]
fn a_stored_state_of_every_optimizer_loads_and_goes_on_as_it_did() {
    if std::env::var_os("VELATURA_WRITE_STATES").is_some() {
        write_missing();
    }
    let stored = stored();
    for row in OPTIMIZERS {
        let entry = stored.get(row.name).unwrap_or_else(|| panic!("no state of {} is stored", row.name));
        let metadata: BTreeMap<String, String> = serde_json::from_value(entry["metadata"].clone()).unwrap();
        let arrays = entry["arrays"].as_object().unwrap().iter().map(|(name, array)| {
            let array = match array.get("f32") {
                Some(values) => Array::F32(floats(values)),
                None => Array::U8(serde_json::from_value(array["u8"].clone()).unwrap()),
            };
            (name.clone(), array)
        });
        let state = State::from_parts(&metadata, arrays).unwrap();
        let mut optimizer = optimizer(row.name);
        optimizer.load_state(&state).unwrap_or_else(|error| panic!("{}: {error:#}", row.name));
        let mut params = floats(&entry["before"]);
        optimizer.step(&mut params, &wave(STEPS), 1e-2);
        let away = params.iter().zip(floats(&entry["after"])).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(params != floats(&entry["before"]) && away < 1e-6, "{}: {away} away", row.name);
    }
}
