//! What a file says twice: one thing under two names, and two things that exclude each other.
#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use velatura_config::{load, schema::schema};

fn minimal() -> Value {
    json!({"name": "a", "model": {"name_or_path": "m"}, "datasets": [{"folder_path": "/imgs"}]})
}

/// Every key of the schema as `(section, name, shape)`, but for the sections themselves.
fn keys() -> Vec<(String, String, Value)> {
    fn collect(section: &str, shape: &Value, found: &mut Vec<(String, String, Value)>) {
        let inner = if shape["items"]["properties"].is_object() { &shape["items"] } else { shape };
        for (key, shape) in inner["properties"].as_object().into_iter().flatten() {
            collect(&if section.is_empty() { key.clone() } else { format!("{section}.{key}") }, shape, found);
            found.push((section.to_string(), key.clone(), shape.clone()));
        }
    }
    let whole = schema();
    let run = if whole["$defs"]["run"].is_object() { &whole["$defs"]["run"] } else { &whole };
    let mut found = Vec::new();
    collect("", run, &mut found);
    found
}

/// `section.key: value` in a file that is right otherwise; sections that are lists get one entry.
fn put(config: &mut Value, section: &str, key: &str, value: Value) {
    let mut at = config;
    for part in section.split('.').filter(|part| !part.is_empty()) {
        let listed = ["datasets", "samples", "param_groups"].contains(&part);
        if at.get(part).is_none() {
            at[part] = if listed { json!([{}]) } else { json!({}) };
        }
        at = if listed { &mut at[part][0] } else { &mut at[part] };
    }
    at[key] = value;
}

fn allows(shape: &Value, kind: &str) -> bool {
    let is = |value: &Value| value == kind || value.as_array().is_some_and(|kinds| kinds.iter().any(|one| one == kind));
    is(&shape["type"]) || shape["anyOf"].as_array().is_some_and(|any| any.iter().any(|one| is(&one["type"])))
}

/// Two values of a key's type, the first of which may stand there.
fn two_values(key: &str, shape: &Value) -> [Value; 2] {
    if shape["properties"].is_object() {
        [json!({}), json!({"no": 1})]
    } else if allows(shape, "boolean") && !allows(shape, "string") {
        [json!(true), json!(false)]
    } else if key.contains("factor") || key.contains("validation") || key.contains("rate") {
        [json!(0.1), json!(0.2)]
    } else if allows(shape, "integer") || allows(shape, "number") && !allows(shape, "string") {
        [json!(8), json!(16)]
    } else if key.contains("timestep") {
        [json!("sigmoid"), json!("uniform")]
    } else {
        [json!("x"), json!("y")]
    }
}

#[test]
fn one_key_under_two_of_its_names_is_read_where_they_agree_and_refused_with_both_names_where_they_differ() {
    let mut checked = 0;
    for (section, alias, shape) in keys() {
        let text = shape["description"].as_str().unwrap_or_default();
        let Some(real) = text.strip_prefix("Another name of `").and_then(|rest| rest.split('`').next()) else { continue };
        let [same, other] = two_values(real, &shape);
        let file = |value: &Value| {
            let mut config = minimal();
            put(&mut config, &section, real, same.clone());
            put(&mut config, &section, &alias, value.clone());
            serde_json::to_string_pretty(&config).unwrap()
        };
        load(file(&same).as_bytes(), "c.json", &[]).unwrap_or_else(|e| panic!("{section}.{alias} says the same: {e:#}"));
        let message = format!("{:#}", load(file(&other).as_bytes(), "c.json", &[]).expect_err(&alias));
        let ends = |name: &str| message.contains(&format!("{name}` (line ")) || message.contains(&format!("{name}` are one key"));
        assert!(ends(real) && ends(&alias) && message.starts_with("c.json:"), "{section}.{alias}: {message}");
        assert!(!message.contains("keys of c.json"), "one mistake, several errors: {message}");
        checked += 1;
    }
    assert!(checked > 25, "{checked}");
}

#[test]
fn a_number_is_the_same_number_however_it_is_written() {
    let text = minimal().to_string().replace("\"datasets\"", "\"train\": {\"lr\": 1e-4, \"learning_rate\": 0.0001}, \"datasets\"");
    assert_eq!(load(text.as_bytes(), "c.json", &[]).unwrap().config.train.lr, 1e-4);
}

#[test]
fn both_spellings_of_accumulation_are_one_key_in_a_flat_file_and_in_a_job() {
    let flat = |keys: &str| format!("name: a\nmodel: {{name_or_path: m}}\ndatasets: [{{folder_path: x}}]\ntraining: {{{keys}}}\n");
    let job = |keys: &str| {
        format!(
            "job: extension\nconfig:\n  name: a\n  process:\n    - model: {{name_or_path: m}}\n      datasets: [{{folder_path: x}}]\n      train: {{{keys}}}\n"
        )
    };
    let both = |new: u32, old: u32| format!("gradient_accumulation: {new}, gradient_accumulation_steps: {old}");
    let refused = |text: String| {
        let message = format!("{:#}", load(text.as_bytes(), "c.yaml", &[]).expect_err(&text));
        assert!(message.contains("gradient_accumulation`") && message.contains("gradient_accumulation_steps`"), "{message}");
    };
    let read = |text: String| load(text.as_bytes(), "c.yaml", &[]).unwrap();
    for (new, old) in [(1, 4), (4, 1)] {
        refused(flat(&both(new, old)));
        // What ai-toolkit writes has both keys, and 1 where nothing was set.
        let loaded = read(job(&both(new, old)));
        assert_eq!(loaded.config.train.gradient_accumulation, 4);
        assert!(loaded.notices.iter().any(|n| n.contains(": 1 has no effect beside")), "{:#?}", loaded.notices);
    }
    for file in [&flat as &dyn Fn(&str) -> String, &job] {
        refused(file(&both(2, 4)));
        assert_eq!(read(file(&both(4, 4))).config.train.gradient_accumulation, 4);
        assert_eq!(read(file(&both(1, 1))).config.train.gradient_accumulation, 1);
    }
}

#[test]
fn an_8_bit_flag_and_an_optimizer_that_is_not_so_are_a_contradiction_in_every_shape() {
    let flat = |model: &str, train: &str, head: &str| {
        format!("name: a\nmodel: {{name_or_path: m{model}}}\ndatasets: [{{folder_path: x}}]\n{head}: {{{train}}}\n")
    };
    let job = |model: &str, train: &str| {
        format!(
            "job: extension\nconfig:\n  name: a\n  process:\n    - model: {{name_or_path: m{model}}}\n      datasets: [{{folder_path: x}}]\n      train: {{{train}}}\n"
        )
    };
    for (flag, optimizer) in
        [(true, "adafactor"), (true, "came"), (true, "sgd"), (true, "automagic"), (false, "AdamW8bit"), (false, "prodigy8bit")]
    {
        let in_model = (format!(", use_8bit_optimizer: {flag}"), format!("optimizer: {optimizer}"));
        let in_train = (String::new(), format!("use_8bit_optimizer: {flag}, optimizer: {optimizer}"));
        for (model, train) in [in_model, in_train] {
            for text in [flat(&model, &train, "train"), flat(&model, &train, "training"), job(&model, &train)] {
                let message = format!("{:#}", load(text.as_bytes(), "c.yaml", &[]).expect_err(&text));
                let flag = format!("use_8bit_optimizer: {flag} contradicts train.optimizer: {optimizer}");
                assert!(message.contains(&flag), "{message}\n{text}");
            }
        }
    }
    let both = flat(", use_8bit_optimizer: true", "use_8bit_optimizer: false", "train");
    let message = format!("{:#}", load(both.as_bytes(), "c.yaml", &[]).unwrap_err());
    assert!(message.contains("model.use_8bit_optimizer: true contradicts train.use_8bit_optimizer: false"), "{message}");
    for (train, name) in [
        ("use_8bit_optimizer: true, optimizer: adamw8bit", "adamw8bit"),
        ("use_8bit_optimizer: true, optimizer: Adam8Bit", "adam8bit"),
        ("use_8bit_optimizer: false, optimizer: adamw", "adamw"),
        ("use_8bit_optimizer: false", "adamw"),
        ("use_8bit_optimizer: true", "adamw8bit"),
    ] {
        assert_eq!(load(flat("", train, "train").as_bytes(), "c.yaml", &[]).unwrap().config.train.optimizer, name);
    }
}

#[test]
fn every_key_has_a_type_whether_it_has_an_effect_or_not() {
    let mut checked = 0;
    for (section, key, shape) in keys() {
        // What no key is: a list of a map and a list, a word where booleans and numbers stand, a number where booleans stand.
        let mut wrong = vec![json!([[{"x": [1]}]])];
        if !allows(&shape, "string") && shape["enum"].is_null() {
            wrong.push(json!("nonsense"));
        }
        if allows(&shape, "boolean") && !allows(&shape, "number") {
            wrong.push(json!(7));
        }
        if shape["enum"].as_array().is_some_and(|values| values.iter().any(Value::is_boolean)) {
            wrong.extend([json!(7), json!(""), json!([])]);
        }
        for value in wrong {
            let mut config = json!({});
            put(&mut config, &section, &key, value.clone());
            let message = match load(config.to_string().as_bytes(), "c.json", &[]) {
                Ok(_) => panic!("{section}.{key}: {value} is accepted"),
                Err(error) => format!("{error:#}"),
            };
            assert!(
                message.contains(&format!("{key}`:")) || message.contains(&format!("{key}: ")) || message.contains(&format!("{key}[0]`:")),
                "{section}.{key}: {value}: {message}"
            );
            assert!(message.contains("c.json:1:"), "{message}");
            checked += 1;
        }
    }
    assert!(checked > 400, "{checked}");
}
