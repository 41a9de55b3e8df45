//! Optimizers and schedules against the packages that users know; `tools/golden/optim/*.py` made the numbers.
#![allow(clippy::unwrap_used)]

use base::Shape;
use serde_json::Value;
use velatura_optim::dynamic::Code;
use velatura_optim::{Layout, Optimizer, choose, schedule};

fn fixture(name: &str) -> Value {
    let path = format!("{}/tests/{name}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(&path).expect(&path)).expect(&path)
}

fn floats(value: &Value) -> Vec<f32> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number") as f32).collect()
}

fn layout(golden: &Value) -> Layout {
    let shapes = golden["shapes"].as_array().unwrap().iter().enumerate();
    let dims = |shape: &Value| shape.as_array().unwrap().iter().map(|d| d.as_u64().unwrap() as usize).collect();
    Layout::uniform(shapes.map(|(i, shape)| (format!("p{i}"), Shape(dims(shape))))).unwrap()
}

/// The numbers of a case that ran so far as it should, after each step that the file has.
fn run(golden: &Value, case: &Value) -> Vec<(u64, Vec<f32>, Vec<f32>)> {
    let (name, lr) = (case["optimizer"].as_str().unwrap(), case["lr"].as_f64().unwrap());
    let chosen = choose(name, case["params"].as_object().unwrap()).unwrap();
    let mut optimizer = Optimizer::new(chosen, layout(golden), lr, None).unwrap();
    let mut params = floats(&golden["start"]);
    let grads: Vec<Vec<f32>> = golden["grads"].as_array().unwrap().iter().map(floats).collect();
    let mut seen = Vec::new();
    for (step, (grads, share)) in grads.iter().zip(golden["shares"].as_array().unwrap()).enumerate() {
        let share = if case["scheduled"].as_bool().unwrap() { share.as_f64().unwrap() } else { 1.0 };
        optimizer.step(&mut params, grads, lr * share);
        if let Some(after) = case["after"].get((step + 1).to_string()) {
            let mut published = vec![0.0; params.len()];
            optimizer.publish(&params, &mut published);
            seen.push((step as u64 + 1, published, floats(after)));
        }
    }
    seen
}

#[test]
fn fifty_steps_of_every_optimizer_equal_the_reference() {
    let golden = fixture("optimizers.json");
    let mut names = Vec::new();
    let start = floats(&golden["start"]);
    let mut wrong = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        names.push(case["optimizer"].as_str().unwrap().to_string());
        let bound = case["bound"].as_f64().unwrap();
        let seen = run(&golden, case);
        assert_eq!(seen.len(), 3, "{}", case["optimizer"]);
        for (step, ours, theirs) in seen {
            // Relative to the value, or to how far it has moved if that is more.
            let errors =
                ours.iter().zip(&theirs).zip(&start).map(|((a, b), s)| f64::from((a - b).abs() / b.abs().max((b - s).abs()).max(1e-30)));
            let worst = errors.enumerate().fold((0, 0.0), |worst, (i, e)| if e > worst.1 { (i, e) } else { worst });
            let moved = theirs.iter().zip(&start).filter(|(a, b)| a != b).count();
            if worst.1 > bound || moved == 0 {
                wrong.push(format!("{} {} step {step}: {worst:?} beyond {bound:e}, {moved} moved", case["optimizer"], case["params"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    for entry in velatura_optim::OPTIMIZERS {
        assert!(names.iter().any(|name| name == entry.name), "{} has no reference", entry.name);
    }
}

#[test]
fn the_eight_bit_code_is_the_published_one() {
    let golden = fixture("dynamic_code.json");
    for (name, code) in [("signed", Code::Signed), ("unsigned", Code::Unsigned)] {
        let theirs = floats(&golden[name]);
        for (index, (ours, theirs)) in code.book().values.iter().zip(&theirs).enumerate() {
            assert!((ours - theirs).abs() <= 3e-7 * theirs.abs(), "{name} {index}: {ours:e} against {theirs:e}");
        }
        // Where bitsandbytes rounds to the nearest of its numbers, so does this.
        let block = floats(&golden[format!("{name}_block")]);
        let mut codes = vec![0; block.len()];
        let scale = code.book().encode(code, &block, &mut codes);
        let theirs: Vec<u64> = golden[format!("{name}_codes")].as_array().unwrap().iter().map(|v| v.as_u64().unwrap()).collect();
        assert_eq!(codes.iter().map(|c| u64::from(*c)).collect::<Vec<_>>(), theirs, "{name}");
        assert_eq!(scale, block.iter().fold(0.0f32, |a, b| a.max(b.abs())));
    }
}

#[test]
fn schedules_equal_diffusers_transformers_and_torch() {
    let golden = fixture("schedules.json");
    let base_lr = golden["base_lr"].as_f64().unwrap();
    let mut names = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        names.push(name);
        let schedule = schedule::parse(name, case["params"].as_object().unwrap(), base_lr, case["total"].as_u64().unwrap()).unwrap();
        for (step, rate) in case["rates"].as_array().unwrap().iter().enumerate() {
            let (ours, theirs) = (schedule.lr(step as u64), rate.as_f64().unwrap());
            assert!((ours - theirs).abs() <= 1e-12, "{name} {} step {step}: {ours:e} against {theirs:e}", case["params"]);
        }
    }
    for entry in schedule::SCHEDULES {
        assert!(names.contains(&entry.name), "{} has no reference", entry.name);
    }
}
