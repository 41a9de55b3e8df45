//! Optimizers, schedules, averages and parameter groups, as a run uses them.

use crate::place::Place;
use serde_json::{Value, json};

/// Trains six steps in one go, and two, two and two.
#[track_caller]
fn resumes(place: &Place, name: &str, train: Value) {
    let (whole, parts) = (format!("{name} whole"), format!("{name} parts"));
    let mut change = json!({"train": train, "save": {"save_every": 2}});
    change["train"]["steps"] = json!(6);
    change["train"]["lr_scheduler"] = json!("constant");
    place.train(&whole, change.clone());
    let config = place.config(&parts, change);
    for steps in [2, 4, 6] {
        place.run(&["train", &config, "--resume", "--set", &format!("train.steps={steps}")]).good();
    }
    place.assert_same_run(&whole, &parts);
}

#[test]
fn every_way_to_keep_state_resumes_to_the_same_bits() {
    let place = Place::new("sd15");
    for (name, train) in [
        ("8-bit", json!({"optimizer": "adamw8bit"})),
        ("prodigy", json!({"optimizer": "prodigyopt", "lr": 1.0, "optimizer_params": {"d_coef": 2, "slice_p": 11}})),
        ("rows", json!({"optimizer": "Adafactor", "lr": null, "optimizer_params": {"relative_step": true, "scale_parameter": true}})),
        ("votes", json!({"optimizer": "automagic3", "lr": 1e-5, "optimizer_params": {"polarity_history": 2}})),
        ("swapped", json!({"optimizer": "lion8bit", "do_paramiter_swapping": true, "paramiter_swapping_factor": 0.3})),
        ("averaged", json!({"ema_config": {"use_ema": true, "ema_decay": 0.5}})),
        ("schedule-free", json!({"optimizer": "AdamWScheduleFree", "train_text_encoder": true})),
        ("groups", json!({"loraplus_lr_ratio": 16, "param_groups": [{"contains": "attn2", "lr": 1e-4, "weight_decay": 0}]})),
    ] {
        resumes(&place, name, train);
    }
    // The saved adapters are the average, not what is trained.
    assert!(place.lora_bytes("averaged whole") != place.lora_bytes("groups whole"));
    let row = place.rows("prodigy whole").pop().unwrap();
    assert!(row.adapted["d"] > 0.0 && row.adapted["rate"] == row.adapted["d"], "{row:?}");
    assert!(place.rows("averaged whole").iter().all(|row| row.adapted.is_empty()));
}

#[test]
fn another_optimizer_is_refused_on_resume_unless_the_config_says_to_begin_without_state() {
    let place = Place::new("sd15");
    place.train("changed", json!({"train": {"steps": 2}}));
    let config = place.config("changed", json!({"train": {"steps": 4, "optimizer": "adamw8bit"}}));
    let error = place.run(&["train", &config, "--resume"]).error();
    assert!(error.contains("from adamw,") && error.contains("adamw8bit") && error.contains("on_optimizer_change: fresh"), "{error}");
    let resumed = place.run(&["train", &config, "--resume", "--set", "train.on_optimizer_change=fresh"]).good();
    assert!(resumed.stderr.contains("adamw8bit instead of adamw"), "{}", resumed.stderr);
    assert_eq!(place.rows("changed").len(), 4);
}

fn plan(place: &Place, file: &str, train: Value) -> Value {
    let config = place.config(file, json!({"train": train}));
    serde_json::from_str(&place.run(&["plan", &config, "--json"]).good().stdout).unwrap()
}

#[test]
fn the_plan_knows_the_state_the_groups_and_the_whole_curve() {
    let place = Place::new("sd15");
    let parameters = plan(&place, "p", json!({}))["trained_parameters"].as_u64().unwrap();
    for (optimizer, least, most) in
        [("adamw", 8.0, 8.0), ("adamw8bit", 2.03, 2.5), ("lion8bit", 1.01, 1.3), ("prodigy", 16.0, 16.0), ("sgd", 0.0, 0.0)]
    {
        let state = plan(&place, "p", json!({"optimizer": optimizer}))["memory"]["optimizer_state"].as_u64().unwrap();
        let each = state as f64 / parameters as f64;
        assert!((least..=most).contains(&each), "{optimizer}: {each} bytes for each parameter");
    }
    let train = json!({"steps": 8, "lr": 1e-3, "lr_scheduler": "linear", "lr_warmup_steps": 2, "loraplus_lr_ratio": 4});
    let rates = &plan(&place, "p", train.clone())["learning_rate"];
    let curve: Vec<f64> = rates["rates"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    place.train("p", json!({"train": train}));
    assert_eq!(curve, place.rows("p").iter().map(|row| row.lr).collect::<Vec<_>>());
    let groups: Vec<(&str, f64)> =
        rates["groups"].as_array().unwrap().iter().map(|g| (g["name"].as_str().unwrap(), g["lr"].as_f64().unwrap())).collect();
    assert_eq!(groups, [("unet", 1e-3), ("unet lora_up", 4e-3)]);
}

#[test]
fn the_curve_of_a_run_that_is_too_long_to_list_is_thinned_evenly() {
    let place = Place::new("sd15");
    for (steps, stride, entries) in [(100_000u64, 1, 100_000), (100_001, 2, 50_001), (1_000_000_000, 10_000, 100_000)] {
        let train = json!({"steps": steps, "lr": 1e-3, "lr_scheduler": "linear"});
        let rates = &plan(&place, "p", train)["learning_rate"];
        let curve: Vec<f64> = rates["rates"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert_eq!((rates["stride"].as_u64(), curve.len()), (Some(stride), entries));
        for i in [0, 1, entries / 2, entries - 1] {
            let right = 1e-3 * (1.0 - (i as u64 * stride) as f64 / steps as f64);
            assert!((curve[i] / right - 1.0).abs() < 1e-9, "{steps} steps, rate {i}: {} instead of {right}", curve[i]);
        }
    }
    place.run(&["plan", "p.yaml", "--plot", "rate.png"]).good();
    assert!(place.exists("rate.png"));
}

#[test]
fn an_adaptive_optimizer_takes_a_rate_for_each_part() {
    let place = Place::new("sd15");
    let train = |text_encoder: f64| json!({"optimizer": "prodigy", "lr": 1.0, "train_text_encoder": true, "text_encoder_lr": text_encoder});
    let rates = &plan(&place, "p", train(0.25))["learning_rate"];
    let groups: Vec<(&str, f64)> =
        rates["groups"].as_array().unwrap().iter().map(|g| (g["name"].as_str().unwrap(), g["lr"].as_f64().unwrap())).collect();
    assert_eq!(groups, [("text_encoder", 0.25), ("unet", 1.0)]);
    for (name, rate) in [("quarter", 0.25), ("same", 1.0)] {
        place.train(name, json!({"train": train(rate)}));
        assert!(place.lora(&format!("{name}/run/run.safetensors")).modules.iter().all(|m| m.up.iter().any(|v| *v != 0.0)), "{name}");
    }
    assert!(place.lora_bytes("quarter") != place.lora_bytes("same"));
}

#[test]
fn eight_bit_state_follows_its_32_bit_form_far_closer_than_another_seed_does() {
    let place = Place::new("sd15");
    for optimizer in ["adamw", "lion"] {
        let run = |name: &str, optimizer: &str, seed: u64| {
            let train = json!({"optimizer": optimizer, "steps": 40, "batch_size": 2, "lr": 3e-4});
            place.train(name, json!({"seed": seed, "train": train}));
            place.rows(name).iter().map(|row| row.loss.unwrap()).collect::<Vec<f64>>()
        };
        let away = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f64>() / a.len() as f64;
        let full = run(&format!("{optimizer} full"), optimizer, 7);
        let eight = run(&format!("{optimizer} eight"), &format!("{optimizer}8bit"), 7);
        let other = run(&format!("{optimizer} other"), optimizer, 8);
        assert!(full != eight && away(&full, &eight) < 0.02 * away(&full, &other), "{} {}", away(&full, &eight), away(&full, &other));
    }
}

#[test]
fn a_group_that_fits_no_parameter_and_a_mistaken_setting_are_named() {
    let place = Place::new("sd15");
    for (train, words) in [
        (json!({"param_groups": [{"contains": "attn9", "lr": 1e-4}]}), ["train.param_groups[0]", "attn9"]),
        (json!({"optimizer": "prodigy", "optimizer_params": {"d_coeff": 2}}), ["train.optimizer_params", "did you mean d_coef?"]),
        (json!({"lr_scheduler": "step"}), ["train.lr_scheduler", "step_size"]),
    ] {
        let config = place.config("wrong", json!({"train": train}));
        let error = place.run(&["plan", &config]).error();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}
