//! The same config gives the same bytes; what is not finite is never applied nor saved.

use crate::place::Place;
use serde_json::json;

#[test]
fn the_same_config_gives_the_same_file_and_another_seed_another() {
    let place = Place::new("sd15");
    let change = json!({"network": {"dropout": 0.1}, "train": {"batch_size": 2, "dtype": "bf16"}, "save": {"save_every": 2}});
    place.train("a", change.clone());
    place.train("b", change.clone());
    place.assert_same_run("a", "b");
    let mut other = change;
    other["seed"] = json!(8);
    place.train("c", other);
    assert!(place.lora_bytes("a") != place.lora_bytes("c"));
}

#[test]
fn the_number_of_threads_changes_nothing() {
    let place = Place::new("sd15");
    for (file, threads) in [("one", "1"), ("five", "5")] {
        let config = place.config(file, json!({"train": {"batch_size": 2}}));
        let output = place.command(&["train", &config]).env("VELATURA_THREADS", threads).output().unwrap();
        assert!(output.status.success());
    }
    place.assert_same_run("one", "five");
}

#[test]
fn samples_on_the_way_change_nothing() {
    let place = Place::new("sd15");
    place.train("bare", json!({}));
    let samples =
        json!({"sample_every": 2, "prompts": ["a red pattern", "blue --w 64 --h 96"], "width": 64, "height": 64, "sample_steps": 3});
    place.train("sampled", json!({"sample": samples}));
    for name in ["run_000000000_0", "run_000000002_1", "run_000000004_0"] {
        assert!(place.exists(&format!("sampled/run/samples/{name}.png")), "no sample {name}");
    }
    assert!(place.read("sampled/run/samples/run_000000000_0.png") != place.read("sampled/run/samples/run_000000004_0.png"));
    place.assert_same_run("bare", "sampled");
}

#[test]
fn recomputing_changes_nothing() {
    let place = Place::new("sd15");
    place.train("kept", json!({"train": {"gradient_checkpointing": false, "batch_size": 2}}));
    place.train("recomputed", json!({"train": {"gradient_checkpointing": true, "batch_size": 2}}));
    place.train("some", json!({"train": {"gradient_checkpointing": ["mid_block"], "batch_size": 2}}));
    let losses = |file: &str| place.rows(file).into_iter().map(|r| r.loss.map(f64::to_bits)).collect::<Vec<_>>();
    assert_eq!(losses("kept"), losses("recomputed"));
    assert_eq!(losses("kept"), losses("some"));
    let modules = |file: &str| place.lora(&format!("{file}/run/run.safetensors")).modules;
    assert!(modules("kept") == modules("recomputed") && modules("kept") == modules("some"));
}

#[test]
fn steps_that_are_not_finite_are_counted_and_end_the_run_with_nothing_of_them_saved() {
    let place = Place::new("sd15");
    place.spoil("unet", "conv_out.weight");
    let config = place.config("spoilt", json!({"train": {"steps": 10, "max_non_finite_steps": 3}, "save": {"save_every": 1}}));
    let error = place.run(&["train", &config]).error();
    assert!(error.contains("3 updates in a row") && error.contains("max_non_finite_steps"), "{error}");
    let rows = place.rows("spoilt");
    assert_eq!(rows.iter().map(|r| (r.step, r.skipped, r.loss)).collect::<Vec<_>>(), [(1, 1, None), (2, 1, None), (3, 1, None)]);
    assert!(!place.exists("spoilt/run/run.safetensors"));
    for entry in std::fs::read_dir(place.path("spoilt/run")).unwrap().chain(std::fs::read_dir(place.path("spoilt/run/state")).unwrap()) {
        let path = entry.unwrap().path();
        let file = if path.is_dir() { path.join("state.safetensors") } else { path };
        if file.extension().is_some_and(|e| e == "safetensors") && file.exists() {
            let file = weights::safetensors::File::open(&file).unwrap();
            assert!(file.names().all(|name| file.tensor(name).unwrap().to_f32().unwrap().iter().all(|v| v.is_finite())));
        }
    }
}

#[test]
fn overflows_of_fp16_are_counted_and_not_applied_and_end_no_run() {
    let place = Place::new("sd15");
    let scaler = json!({"init_scale": 1e12, "growth_interval": 1000});
    let done = place.train("half", json!({"train": {"steps": 30, "dtype": "fp16", "max_non_finite_steps": 2, "grad_scaler": scaler}}));
    let rows = place.rows("half");
    let overflows = rows.iter().take_while(|row| row.overflow == Some(1)).count();
    assert!((3..29).contains(&overflows), "{overflows}");
    for (row, next) in rows.iter().zip(&rows[1..]) {
        let overflow = row.step <= overflows as u64;
        assert_eq!((row.overflow, row.skipped), (Some(u64::from(overflow)), u64::from(overflow)));
        let factor = if overflow { 0.5 } else { 1.0 };
        assert_eq!(next.loss_scale, row.loss_scale.map(|scale| scale * factor));
        assert!(row.loss.is_some() && row.grad_norm.is_some() != overflow, "{row:?}");
    }
    assert_eq!(done.stderr.matches("goes beyond what fp16 holds").count(), overflows, "{}", done.stderr);
    assert!(done.stderr.contains(&format!("{overflows} updates were not finite")), "{}", done.stderr);
    // A run that only ever overflows has learned nothing, and says so instead of leaving a LoRA of zeros.
    let short = json!({"train": {"steps": 2, "dtype": "fp16", "grad_scaler": {"init_scale": 1e12, "growth_interval": 1000}}});
    let config = place.config("short", short);
    for arguments in [vec!["train", &config], vec!["train", &config, "--resume"]] {
        let error = place.run(&arguments).error();
        for part in ["nothing was learned", "2 updates", "train.grad_scaler.init_scale: 250000000000", "train.dtype: bf16", "--resume"] {
            assert!(error.contains(part), "no `{part}` in {error}");
        }
        assert!(!place.exists("short/run/run.safetensors"));
    }
    // Where that scale goes on there are no more overflows than in the longer run.
    let resumed = place.run(&["train", &config, "--resume", "--set", "train.steps=30", "--set", "train.grad_scaler.init_scale=8"]).good();
    let said = "train.grad_scaler.init_scale: config 8.0, saved 1000000000000.0; no effect on a resume";
    assert!(resumed.stderr.contains(said), "{}", resumed.stderr);
    let scales = |name: &str| place.rows(name).iter().map(|row| row.loss_scale).collect::<Vec<_>>();
    assert_eq!(scales("short"), scales("half"));
    let one = json!({"train": {"steps": 30, "dtype": "fp16", "grad_scaler": {"init_scale": place.rows("half").last().unwrap().loss_scale.unwrap() * 2.0}}});
    let done = place.train("one", one);
    assert!(done.stderr.contains("1 update was not finite and was not applied"), "{}", done.stderr);
    place.train("full", json!({}));
    assert!(place.rows("full").iter().all(|row| row.loss_scale.is_none() && row.overflow.is_none()));
    let metadata = place.lora("half/run/run.safetensors").metadata;
    assert_eq!(metadata["ss_mixed_precision"], "fp16");
}

/// The updates are counted by the optimizer, and another one begins at none.
#[test]
fn a_resume_with_another_optimizer_that_only_overflows_keeps_what_was_learned_before() {
    let place = Place::new("sd15");
    place.train("kept", json!({"train": {"steps": 3, "lr": 1e-2}}));
    let factors = || {
        let modules = place.lora("kept/run/run.safetensors").modules.into_iter();
        modules.map(|module| (module.module, module.down, module.up)).collect::<Vec<_>>()
    };
    let learned = factors();
    let overflow = [
        "train.optimizer=lion",
        "train.on_optimizer_change=fresh",
        "train.dtype=fp16",
        "train.grad_scaler={init_scale: 1e12, growth_interval: 1000}",
    ];
    for steps in ["train.steps=5", "train.steps=7"] {
        let mut arguments = vec!["train", "kept.yaml", "--resume", "--set", steps];
        overflow.iter().for_each(|set| arguments.extend(["--set", *set]));
        let done = place.run(&arguments).good();
        assert!(done.stderr.contains("not one update by lion was applied") && !done.stderr.contains("nothing was learned"), "{done:?}");
        assert!(factors() == learned);
    }
}

#[test]
fn encoders_that_give_infinite_numbers_end_the_run_before_it_trains_on_them() {
    for (component, tensor, words) in [
        ("vae", "encoder.conv_in.weight", ["the latents of", "not finite"]),
        ("text_encoder", "text_model.encoder.layers.0.mlp.fc1.weight", ["the embedding of", "not finite"]),
    ] {
        let place = Place::new("sd15");
        place.spoil(component, tensor);
        let error = place.run(&["train", &place.config("spoilt", json!({}))]).error();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        assert!(!place.exists("spoilt/run/metrics.jsonl"));
    }
}

#[test]
fn samples_that_fail_are_a_warning_and_no_lost_run() {
    let place = Place::new("sd15");
    place.train("bare", json!({}));
    place.spoil("vae", "decoder.conv_out.weight");
    let sample = json!({"sample_every": 2, "prompts": ["a red pattern"], "width": 64, "height": 64, "sample_steps": 2});
    let done = place.train("sampled", json!({"sample": sample}));
    assert!(done.stderr.contains("warning: no samples at step 2"), "{}", done.stderr);
    place.assert_same_run("bare", "sampled");
}
