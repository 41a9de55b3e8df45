//! `velatura config schema` against what the program itself takes and refuses. The keywords of JSON Schema that it uses are judged
//! here; one that is not known here fails.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use std::sync::LazyLock;
use velatura_config::{load, schema::schema};

const MINIMAL: &str = "name: a\nmodel: {name_or_path: m}\ndatasets:\n  - folder_path: /imgs\n";

fn value(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap_or_else(|e| panic!("{e}\n{yaml}"))
}

/// What is wrong with a value, by its path.
fn judge(at: &str, value: &Value, shape: &Value, root: &Value, wrong: &mut Vec<String>) {
    let fits = |shape: &Value| {
        let mut inner = Vec::new();
        judge(at, value, shape, root, &mut inner);
        inner.is_empty()
    };
    let empty = serde_json::Map::new();
    let object = value.as_object().unwrap_or(&empty);
    for (word, said) in shape.as_object().expect("a schema is an object") {
        let list = || said.as_array().unwrap();
        let right = match word.as_str() {
            "$schema" | "$defs" | "title" | "description" | "deprecated" | "then" | "else" => true,
            "type" => {
                said.as_array().map_or(vec![said], |kinds| kinds.iter().collect()).iter().any(|kind| is(value, kind.as_str().unwrap()))
            }
            "enum" => list().iter().any(|one| one == value || one.as_f64().is_some_and(|one| Some(one) == value.as_f64())),
            "const" => said == value,
            "anyOf" => list().iter().any(fits),
            "pattern" => {
                assert_eq!(said, "^\\d+x\\d+$");
                let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                value.as_str().is_none_or(|text| text.split_once('x').is_some_and(|(w, h)| digits(w) && digits(h)))
            }
            "minimum" => value.as_f64().is_none_or(|number| number >= said.as_f64().unwrap()),
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= said.as_u64().unwrap()),
            "maxItems" => value.as_array().is_none_or(|items| items.len() as u64 <= said.as_u64().unwrap()),
            "required" => !value.is_object() || list().iter().all(|key| object.contains_key(key.as_str().unwrap())),
            "additionalProperties" => object.keys().all(|key| shape["properties"].get(key).is_some()),
            "properties" => {
                for (key, value) in object {
                    if let Some(shape) = said.get(key) {
                        judge(&format!("{at}.{key}"), value, shape, root, wrong);
                    }
                }
                true
            }
            "items" => {
                for (i, item) in value.as_array().into_iter().flatten().enumerate() {
                    judge(&format!("{at}[{i}]"), item, said, root, wrong);
                }
                true
            }
            "$ref" => {
                judge(at, value, root.pointer(said.as_str().unwrap().trim_start_matches('#')).unwrap(), root, wrong);
                true
            }
            "if" => {
                judge(at, value, if fits(said) { &shape["then"] } else { &shape["else"] }, root, wrong);
                true
            }
            other => panic!("the schema uses `{other}`, which nothing here judges"),
        };
        if !right {
            wrong.push(format!("{at}: {value} against {word}: {said}"));
        }
    }
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        other => panic!("{other} is no type"),
    }
}

fn wrong(value: &Value) -> Vec<String> {
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    let mut found = Vec::new();
    judge("", value, &SCHEMA, &SCHEMA, &mut found);
    found
}

#[test]
fn every_shape_that_is_taken_is_right_by_the_schema() {
    let job = include_str!("every_default.yaml");
    let older = "name: a\nmodel:\n  path: m\n  low_vram: true\n  use_8bit_optimizer: true\n  enable_xformers: true\ndatasets:\n  - dataset_path: x\n    \
                 resolution: [512, 768x1152]\ntraining:\n  batch_size: 2\n  gradient_accumulation_steps: 4\n  mixed_precision: bf16\n  num_workers: 2\n\
                 dataloader: {num_workers: 2, pin_memory: true, persistent_workers: true, shuffle: true, cache_latents: true}\ntraining_seed: 3\n";
    let empty = "name: a\nmodel: {name_or_path: m, vae_path: }\ndatasets: [{folder_path: x, replacements: }]\ntrain:\nsample: {prompts: , neg: false}\n";
    for text in [MINIMAL, job, older, empty] {
        let loaded = load(text.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}"));
        assert_eq!(wrong(&value(text)), Vec::<String>::new(), "{text}");
        // A run's own copy says nothing with null.
        let frozen = value(&loaded.config.to_yaml().unwrap());
        assert!(frozen.to_string().contains("null"));
        assert_eq!(wrong(&frozen), Vec::<String>::new());
    }
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(file).unwrap();
    let shown = readme.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    assert_eq!(wrong(&value(shown)), Vec::<String>::new());
}

/// Every section with the keys that it has.
fn sections() -> Vec<(String, Vec<(String, Value)>)> {
    fn collect(section: &str, shape: &Value, found: &mut Vec<(String, Vec<(String, Value)>)>) {
        let inner = if shape["items"].is_object() { &shape["items"] } else { shape };
        let Some(keys) = inner["properties"].as_object() else { return };
        found.push((section.to_string(), keys.iter().map(|(key, shape)| (key.clone(), shape.clone())).collect()));
        keys.iter()
            .for_each(|(key, shape)| collect(&if section.is_empty() { key.clone() } else { format!("{section}.{key}") }, shape, found));
    }
    let mut found = Vec::new();
    collect("", &schema()["$defs"]["run"], &mut found);
    found
}

fn with(section: &str, key: &str, value: Value) -> Value {
    let mut config = json!({"name": "a", "model": {"name_or_path": "m"}, "datasets": [{"folder_path": "/imgs"}]});
    let mut at = &mut config;
    for part in section.split('.').filter(|part| !part.is_empty()) {
        let listed = ["datasets", "samples", "param_groups"].contains(&part);
        if at.get(part).is_none() {
            at[part] = if listed { json!([{}]) } else { json!({}) };
        }
        at = if listed { &mut at[part][0] } else { &mut at[part] };
    }
    // Another name of it would contradict the first.
    at.as_object_mut().unwrap().retain(|given, _| !["name_or_path", "folder_path"].contains(&given.as_str()));
    at[key] = value;
    config
}

#[test]
fn what_is_refused_for_its_structure_is_wrong_by_the_schema_and_the_other_way_round() {
    let values = [
        json!(true),
        json!(7),
        json!(-3),
        json!(0.5),
        json!("nonsense"),
        json!([7]),
        json!(["x"]),
        json!({"x": 1}),
        json!([[1]]),
        Value::Null,
    ];
    let refused = |config: &Value| {
        let error = load(config.to_string().as_bytes(), "c.json", &[]).err().map(|e| format!("{e:#}")).unwrap_or_default();
        let structural = [
            "unknown key",
            ": expected ",
            "is negative; give a whole",
            "is not supported yet; remove the key",
            "that family of models is not supported yet",
            "none of auto, true, false",
        ];
        structural.iter().any(|sign| error.contains(sign)).then_some(error)
    };
    let mut checked = 0;
    for (section, keys) in sections() {
        let unknown = with(&section, "no_such_key", json!(1));
        assert!(refused(&unknown).is_some() && !wrong(&unknown).is_empty(), "{section}");
        for (key, _) in keys {
            for value in &values {
                let config = with(&section, &key, value.clone());
                let (by_program, by_schema) = (refused(&config), wrong(&config));
                assert_eq!(by_program.is_some(), !by_schema.is_empty(), "{section}.{key}: {value}: {by_program:?}, {by_schema:?}");
                checked += 1;
            }
        }
    }
    assert!(checked > 3000, "{checked}");
}

#[test]
fn a_job_with_unknown_keys_is_wrong_by_the_schema() {
    let job = value(include_str!("every_default.yaml"));
    for path in ["", "/config", "/config/process/0", "/config/process/0/train"] {
        let mut wrong_job = job.clone();
        wrong_job.pointer_mut(path).unwrap()["no_such_key"] = json!(1);
        assert!(!wrong(&wrong_job).is_empty(), "{path}");
    }
    for processes in [json!([]), json!([{}, {}]), json!(3)] {
        let mut wrong_job = job.clone();
        wrong_job["config"]["process"] = processes;
        assert!(!wrong(&wrong_job).is_empty());
    }
}
