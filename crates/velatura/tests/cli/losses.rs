//! Losses, noise, timesteps and preserved outputs, as a run uses them.

use crate::place::Place;
use serde_json::{Value, json};

/// Trains four steps in one go, and two and two: the same bits, and every step applied.
#[track_caller]
fn trains(place: &Place, name: &str, changes: Value) {
    let (whole, parts) = (format!("{name} whole"), format!("{name} parts"));
    place.train(&whole, changes.clone());
    let config = place.config(&parts, changes);
    place.run(&["train", &config, "--set", "train.steps=2"]).good();
    place.run(&["train", &config, "--resume"]).good();
    place.assert_same_run(&whole, &parts);
    assert!(place.rows(&whole).iter().all(|row| row.skipped == 0 && row.grad_norm.is_some_and(|norm| norm > 0.0)), "{name}");
}

fn losses(place: &Place, name: &str) -> Vec<f64> {
    place.rows(&format!("{name} whole")).iter().map(|row| row.loss.unwrap()).collect()
}

#[test]
fn every_kind_of_loss_noise_and_timestep_trains_resumes_and_makes_a_difference() {
    let place = Place::new("sd15");
    let plain = json!({"batch_size": 2});
    trains(&place, "plain", json!({"train": plain}));
    for (name, keys) in [
        ("mae", json!({"loss_type": "mae"})),
        ("huber", json!({"loss_type": "huber", "huber_c": 0.2})),
        ("smooth", json!({"loss_type": "smooth_l1", "huber_schedule": "exponential"})),
        ("pseudo", json!({"loss_type": "pseudo_huber"})),
        ("soft", json!({"soft_min_snr_gamma": 5})),
        ("debiased", json!({"debiased_estimation_loss": true})),
        ("pyramid", json!({"multires_noise_iterations": 6, "multires_noise_discount": 0.3, "noise_offset": 0.05})),
        ("adaptive", json!({"noise_offset": 0, "adaptive_noise_scale": 0.1})),
        ("perturbed", json!({"ip_noise_gamma": 0.1})),
        ("sigmoid", json!({"timestep_type": "sigmoid", "logit_mean": 0.5})),
        ("content", json!({"content_or_style": "content"})),
        ("bell", json!({"linear_timesteps": true})),
    ] {
        let mut train = plain.clone();
        train.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        trains(&place, name, json!({"train": train}));
        assert!(losses(&place, name).iter().zip(losses(&place, "plain")).any(|(a, b)| *a != b), "{name} changes nothing");
    }
    let said = |name: &str, key: &str| place.lora(&format!("{name} whole/run/run.safetensors")).metadata.get(key).cloned();
    for (name, key, value) in [
        ("plain", "ss_loss_type", "l2"),
        ("huber", "ss_loss_type", "huber"),
        ("huber", "ss_huber_c", "0.2"),
        ("smooth", "ss_huber_schedule", "exponential"),
        ("pyramid", "ss_multires_noise_iterations", "6"),
        ("adaptive", "ss_adaptive_noise_scale", "0.1"),
        ("perturbed", "ss_ip_noise_gamma", "0.1"),
        ("debiased", "ss_debiased_estimation", "True"),
    ] {
        assert_eq!(said(name, key).as_deref(), Some(value), "{key} of {name}");
    }
    assert_eq!(said("plain", "ss_huber_c"), None);
}

#[test]
fn zero_terminal_snr_trains_a_velocity_model_at_pure_noise_and_is_refused_for_epsilon() {
    let place = Place::new("sd21");
    let last = json!({"zero_terminal_snr": true, "min_snr_gamma": 5, "min_timestep": 998, "max_timestep": 1000});
    let last = json!({"train": last, "model": {"prediction_type": "v_prediction"}});
    place.train("pure", last.clone());
    assert!(place.rows("pure").iter().all(|row| row.skipped == 0 && row.loss.is_some()));
    let config = place.config("wrong", json!({"train": {"zero_terminal_snr": true}, "model": {"prediction_type": "epsilon"}}));
    let error = place.run(&["plan", &config]).error();
    assert!(error.contains("train.zero_terminal_snr") && error.contains("v-prediction"), "{error}");
}

#[test]
fn a_loss_like_that_of_noise_prediction_is_for_models_that_predict_v() {
    let place = Place::new("sd21");
    let with = |scaled: bool| json!({"train": {"scale_v_pred_loss_like_noise_pred": scaled, "steps": 2}, "model": {"prediction_type": "v_prediction"}});
    let [scaled, plain] = [true, false].map(|scaled| {
        place.train(&format!("{scaled}"), with(scaled));
        place.rows(&format!("{scaled}")).iter().map(|row| row.loss.unwrap()).collect::<Vec<_>>()
    });
    // Both draw the same timestep first, and SNR/(SNR + 1) is less than 1 at each.
    assert!(scaled[0] < plain[0] && scaled[0] > 0.0, "{scaled:?} {plain:?}");
    let mut wrong = with(true);
    wrong["model"]["prediction_type"] = json!("epsilon");
    let error = place.run(&["plan", &place.config("wrong", wrong)]).error();
    assert!(error.contains("train.scale_v_pred_loss_like_noise_pred") && error.contains("model.prediction_type"), "{error}");
}

/// The offset follows the latents, which the VAE makes after the noise was drawn if they are not cached.
#[test]
fn an_adaptive_offset_is_the_same_with_and_without_cached_latents() {
    let place = Place::new("sd15");
    let train = json!({"noise_offset": 0.1, "adaptive_noise_scale": 0.5, "ip_noise_gamma": 0.1, "batch_size": 2});
    for (name, cached) in [("cached", true), ("fresh", false)] {
        place.train(name, json!({"train": train, "datasets": [{"cache_latents": cached, "cache_latents_to_disk": cached}]}));
    }
    let losses = |name: &str| place.rows(name).iter().map(|row| row.loss.unwrap()).collect::<Vec<_>>();
    let away = losses("cached").iter().zip(losses("fresh")).map(|(a, b)| (a / b - 1.0).abs()).fold(0.0, f64::max);
    assert!(away < 1e-4, "{away}");
}

#[test]
fn regularisation_pictures_weigh_what_they_are_told_and_get_no_trigger_word() {
    let place = Place::new("sd15");
    for i in 0..3 {
        let picture = image::RgbImage::from_fn(64, 64, |x, y| image::Rgb([(x * 2 + i) as u8, (y * 3) as u8, (x + y) as u8]));
        std::fs::create_dir_all(place.path("class")).unwrap();
        picture.save(place.path(&format!("class/{i}.png"))).unwrap();
        place.write(&format!("class/{i}.txt"), "a pattern");
    }
    let with = |weight: f64| {
        json!({
            "trigger_word": "sks",
            "datasets": [{}, {"folder_path": "class", "resolution": 64, "is_reg": true}],
            "train": {"reg_weight": weight, "steps": 10},
        })
    };
    for (name, weight) in [("none", 0.0), ("half", 0.5), ("full", 1.0)] {
        place.train(name, with(weight));
    }
    let loss = |name: &str, step: usize| place.rows(name)[step].loss.unwrap();
    let rows = place.rows("none");
    let reg: Vec<bool> = rows.iter().map(|row| row.loss == Some(0.0)).collect();
    assert!(reg.contains(&true) && reg.contains(&false), "{rows:?}");
    // Until the first picture that counts differently, the runs are the same.
    let first = reg.iter().position(|reg| *reg).unwrap();
    assert!((loss("half", first) / loss("full", first) - 0.5).abs() < 1e-5);
    let plan = place.run(&["plan", &place.config("planned", with(1.0)), "--json"]).good().stdout;
    let plan: Value = serde_json::from_str(&plan).unwrap();
    for image in plan["images"].as_array().unwrap() {
        let caption = image["caption"].as_str().unwrap();
        assert_eq!(caption.contains("sks"), image["dataset"] == 0, "{image}");
    }
}

#[test]
fn regularisation_pictures_come_beside_those_to_learn_in_their_ratio() {
    let place = Place::new("sd15");
    std::fs::create_dir_all(place.path("class")).unwrap();
    for i in 0..30u8 {
        image::RgbImage::from_pixel(64, 64, image::Rgb([i * 8, 9, 200])).save(place.path(&format!("class/c{i}.png"))).unwrap();
    }
    let with = |ratio: f64| {
        let class = json!({"folder_path": "class", "resolution": 64, "is_reg": true, "reg_ratio": ratio});
        json!({"datasets": [{}, class], "train": {"epochs": 2, "steps": null, "batch_size": 2}})
    };
    let shown = |name: &str| {
        let files: Vec<String> = place.rows(name).into_iter().flat_map(|row| row.files).collect();
        let class = files.iter().filter(|file| file.starts_with('c')).count();
        (place.rows(name).len(), files.len() - class, class)
    };
    place.train("alone", json!({"train": {"epochs": 2, "steps": null, "batch_size": 2}}));
    let (steps, learned, _) = shown("alone");
    place.train("one", with(1.0));
    assert_eq!(shown("one"), (steps, learned, learned));
    place.train("half", with(0.5));
    assert_eq!(shown("half"), (steps, learned, learned / 2));
    let config = place.config("parts", with(0.5));
    place.run(&["train", &config, "--set", "train.epochs=1"]).good();
    place.run(&["train", &config, "--resume"]).good();
    place.assert_same_run("half", "parts");
    let plan = place.run(&["plan", &config]).good().stdout;
    assert!(plan.contains("30 pictures for regularisation, 0.5 for each picture to learn"), "{plan}");
    let error = |class: Value| place.run(&["plan", &place.config("wrong", json!({"datasets": [class]}))]).error();
    assert!(error(json!({"reg_ratio": 1})).contains("is_reg: true"));
    let both = error(json!({"reg_ratio": 1, "is_reg": true, "validation": 0.1}));
    assert!(both.contains("datasets[0].validation") && both.contains("datasets[0].reg_ratio"), "{both}");
}

#[test]
fn preserving_the_frozen_output_is_planned_logged_and_resumed() {
    let place = Place::new("sd15");
    let preserve = json!({"diff_output_preservation": true, "diff_output_preservation_class": "thing", "lr": 1e-2});
    for (name, extra) in [("cached", json!({})), ("encoded", json!({"train_text_encoder": true}))] {
        let mut train = preserve.clone();
        train.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        trains(&place, name, json!({"trigger_word": "sks", "train": train}));
        let kept: Vec<f64> = place.rows(&format!("{name} whole")).iter().map(|row| row.preservation_loss.unwrap()).collect();
        // Adapters that add nothing yet leave only the rounding between two programs.
        assert!(kept[0] < 1e-9 && kept[3] > 1e-4, "{name}: {kept:?}");
    }
    let plan = place.run(&["plan", "cached whole.yaml", "--json"]).good().stdout;
    assert!(plan.contains("\"frozen "), "{plan}");
    let config = place.config("wrong", json!({"train": preserve}));
    assert!(place.run(&["plan", &config]).error().contains("trigger_word"));
}

#[test]
fn half_precision_keeps_adapters_and_optimizer_in_f32_and_small_rates_still_move_them() {
    let place = Place::new("sd15");
    for (name, train) in [
        ("adamw", json!({"mixed_precision": "fp16", "dtype": null, "lr": 1e-6, "steps": 8})),
        ("prodigy", json!({"mixed_precision": "fp16", "dtype": null, "optimizer": "prodigy", "lr": 1.0, "steps": 8})),
    ] {
        place.train(name, json!({"train": train, "save": {"save_every": 4, "dtype": "fp32"}}));
        let state = weights::safetensors::File::open(&place.path(&format!("{name}/run/state/000000008/state.safetensors"))).unwrap();
        assert!(
            state.tensors().iter().all(|(_, info)| info.dtype == weights::safetensors::Stored::Known(base::DType::F32)),
            "{name}: state of another type"
        );
        let first = weights::safetensors::File::open(&place.path(&format!("{name}/run/state/000000004/state.safetensors"))).unwrap();
        for (tensor, _) in state.tensors().iter().filter(|(tensor, _)| tensor.starts_with("param.")) {
            let values = |file: &weights::safetensors::File| file.tensor(tensor).unwrap().to_f32().unwrap();
            assert!(values(&state) != values(&first), "{name}: {tensor} has not moved");
        }
    }
    let d: Vec<f64> = place.rows("prodigy").iter().map(|row| row.adapted["d"]).collect();
    assert!(d[7] > d[0], "d stays at its start: {d:?}");
}

#[test]
fn the_rates_are_drawn_and_written_for_tensorboard() {
    let place = Place::new("sd15");
    let train = json!({"lr_scheduler": "cosine_with_restarts", "lr_scheduler_params": {"num_cycles": 2}, "lr_warmup_steps": 0.1, "steps": 12,
        "loraplus_lr_ratio": 4});
    let config = place.config("drawn", json!({"train": train, "logging": {"log_with": "tensorboard"}}));
    place.run(&["plan", &config, "--plot", "lr.png"]).good();
    let picture = image::open(place.path("lr.png")).unwrap().to_rgb8();
    let colours: std::collections::BTreeSet<[u8; 3]> = picture.pixels().map(|p| p.0).collect();
    assert!(picture.dimensions() == (960, 540) && colours.len() >= 5, "{colours:?}");
    assert!(place.run(&["plan", &config, "--plot", "no such folder/lr.png"]).error().contains("--plot"));
    let whole = place.read(&config);
    assert!(place.run(&["plan", &config, "--plot", &config]).error().contains("exists already"));
    assert_eq!(place.read(&config), whole, "the chart has replaced the config");

    let events = "drawn/run/tensorboard/events.out.tfevents.velatura";
    place.run(&["train", &config, "--set", "train.steps=6"]).good();
    let half = place.read(events).len();
    place.run(&["train", &config, "--resume"]).good();
    let text = String::from_utf8_lossy(&place.read(events)).into_owned();
    assert!(place.read(events).len() > half);
    for tag in ["loss", "lr/unet", "lr/unet lora_up", "grad_norm", "step/seconds"] {
        assert!(text.matches(tag).count() >= 12, "{tag}");
    }
}
