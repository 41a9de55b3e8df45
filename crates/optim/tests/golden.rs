//! AdamW against PyTorch, schedules against diffusers and torch; `tools/golden/optim/*.py` made the numbers.

use base::Shape;
use serde_json::Value;
use velatura_optim::{Layout, find, schedule};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number") as f32).collect()
}

#[test]
fn fifty_steps_of_adamw_equal_pytorch() {
    let golden = fixture("adamw.json");
    let mut params = floats(&golden["start"]);
    let layout = Layout::uniform([("a".to_string(), Shape::from([params.len()]))]).unwrap();
    let mut optimizer = (find("adamw").unwrap().build)(golden["settings"].as_object().unwrap(), layout).unwrap();
    let mut compared = 0;
    for (step, (rate, grads)) in golden["rates"].as_array().unwrap().iter().zip(golden["grads"].as_array().unwrap()).enumerate() {
        optimizer.step(&mut params, &floats(grads), rate.as_f64().unwrap());
        if let Some(after) = golden["after"].get((step + 1).to_string()) {
            compared += 1;
            for (index, (ours, theirs)) in params.iter().zip(floats(after)).enumerate() {
                assert!((ours - theirs).abs() <= 1e-5 * theirs.abs(), "step {}, element {index}: {ours} against {theirs}", step + 1);
            }
        }
    }
    assert_eq!(compared, 3);
}

#[test]
fn schedules_equal_diffusers_and_torch() {
    let golden = fixture("schedules.json");
    let base_lr = golden["base_lr"].as_f64().unwrap();
    for case in golden["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let schedule = schedule::parse(name, case["params"].as_object().unwrap(), base_lr, case["total"].as_u64().unwrap()).unwrap();
        for (step, rate) in case["rates"].as_array().unwrap().iter().enumerate() {
            let (ours, theirs) = (schedule.lr(step as u64), rate.as_f64().unwrap());
            assert!((ours - theirs).abs() <= 1e-12, "{name} {} step {step}: {ours:e} against {theirs:e}", case["params"]);
        }
    }
}
