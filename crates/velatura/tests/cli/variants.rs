//! Every way to train that the config knows runs, resumes, and adapts exactly the modules that it names.

use crate::place::Place;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use weights::safetensors::File;

/// Modules of a component of the model, by their matrices' names in its file: those that `wanted` picks.
fn modules(place: &Place, component: &str, file: &str, wanted: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let file = File::open(&place.path(&format!("model/{component}/{file}.safetensors"))).unwrap();
    let matrices = file.tensors().iter().filter(|(_, info)| info.shape.rank() >= 2);
    let names = matrices.filter_map(|(name, _)| name.strip_suffix(".weight")).filter(|name| wanted(name));
    names.map(|name| format!("{component}.{name}")).collect()
}

fn transformers(place: &Place) -> BTreeSet<String> {
    modules(place, "unet", "diffusion_pytorch_model", |name| name.contains(".attentions."))
}

fn convolutions(place: &Place) -> BTreeSet<String> {
    let parts = [".resnets.", ".downsamplers.", ".upsamplers."];
    modules(place, "unet", "diffusion_pytorch_model", |name| parts.iter().any(|part| name.contains(part)))
}

fn text_encoder(place: &Place) -> BTreeSet<String> {
    modules(place, "text_encoder", "model", |name| name.contains(".layers."))
}

/// Trains four steps in one go, and two and two; checks the LoRA's modules.
fn trains(arch: &str, changes: Value, expected: impl Fn(&Place) -> BTreeSet<String>) -> Place {
    let place = Place::new(arch);
    place.train("whole", changes.clone());
    let config = place.config("parts", changes);
    place.run(&["train", &config, "--set", "train.steps=2"]).good();
    place.run(&["train", &config, "--resume"]).good();
    place.assert_same_run("whole", "parts");
    let lora = place.lora("whole/run/run.safetensors");
    assert_eq!(lora.modules.iter().map(|m| m.module.clone()).collect::<BTreeSet<_>>(), expected(&place));
    for module in &lora.modules {
        assert!(module.up.iter().any(|v| *v != 0.0), "{} was not trained", module.module);
    }
    assert!(place.rows("whole").iter().all(|row| row.skipped == 0 && row.grad_norm.is_some_and(|norm| norm > 0.0)));
    place
}

fn union(sets: &[BTreeSet<String>]) -> BTreeSet<String> {
    sets.iter().flatten().cloned().collect()
}

#[test]
fn the_transformers_alone() {
    trains("sd15", json!({}), transformers);
    trains("sd21", json!({"train": {"dtype": "bf16", "min_snr_gamma": 5}}), transformers);
}

#[test]
fn convolutions_too() {
    let expected = |place: &Place| union(&[transformers(place), convolutions(place)]);
    trains("sd15", json!({"network": {"conv": 4, "conv_alpha": 2}}), expected);
    trains("sd21", json!({"network": {"type": "locon"}, "train": {"dtype": "bf16"}}), expected);
}

#[test]
fn the_text_encoder_too_at_a_rate_of_its_own() {
    let expected = |place: &Place| union(&[transformers(place), text_encoder(place)]);
    trains("sd15", json!({"train": {"train_text_encoder": true, "text_encoder_lr": 5e-4}}), expected);
    trains("sd21", json!({"train": {"train_text_encoder": true, "dtype": "bf16", "batch_size": 2}}), expected);
}

#[test]
fn the_text_encoder_alone_up_to_the_layer_that_clip_skip_leaves() {
    let train = json!({"train_unet": false, "train_text_encoder": true});
    trains("sd15", json!({"train": train, "model": {"clip_skip": 2}}), |place| {
        text_encoder(place).into_iter().filter(|name| !name.contains(".layers.2.")).collect()
    });
}

#[test]
fn shuffled_captions_go_through_the_text_encoder_in_every_step() {
    let changes = json!({"datasets": [{"shuffle_tokens": true, "token_dropout_rate": 0.2, "keep_tokens": 1}], "train": {"batch_size": 2}});
    let place = trains("sd15", changes, transformers);
    place.train("still", json!({"train": {"batch_size": 2}}));
    assert!(place.lora_bytes("still") != place.lora_bytes("whole"));
}

#[test]
fn long_captions_fill_several_chunks_or_are_cut() {
    let place = Place::new("sd15");
    place.write("pictures/2.txt", "a blue pattern with many words, ".repeat(30));
    let texts = |train: Value| {
        let config = place.config("planned", json!({"train": train}));
        let plan = place.run(&["plan", &config, "--json"]).good().stdout;
        serde_json::from_str::<Value>(&plan).unwrap()["texts"].clone()
    };
    let chunked = texts(json!({}));
    assert!(chunked["chunks"].as_u64() > Some(1) && chunked["chunked"] == 1 && chunked["truncated"] == 0, "{chunked}");
    let cut = texts(json!({"long_captions": "truncate"}));
    assert!(cut["chunks"] == 1 && cut["truncated"] == 1, "{cut}");
    for (name, train) in [
        ("cached", json!({"batch_size": 2})),
        ("encoded", json!({"batch_size": 2, "train_text_encoder": true})),
        ("truncated", json!({"batch_size": 2, "long_captions": "truncate"})),
    ] {
        place.train(name, json!({"train": train}));
        assert!(place.lora(&format!("{name}/run/run.safetensors")).modules.iter().all(|m| m.up.iter().any(|v| *v != 0.0)));
    }
    assert!(place.lora_bytes("cached") != place.lora_bytes("truncated"));
}

#[test]
fn chosen_modules_alone() {
    let network = json!({"only_if_contains": ["attn2"], "ignore_if_contains": ["to_out"]});
    trains("sd15", json!({"network": network}), |place| {
        transformers(place).into_iter().filter(|name| name.contains("attn2") && !name.contains("to_out")).collect()
    });
}

#[test]
fn a_single_file_trains_like_the_folder_of_the_same_model() {
    let place = Place::new("sd15");
    let assets = concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets");
    for (name, model) in [("folder", "tiny-emoji"), ("single", "tiny-emoji.safetensors")] {
        let model = json!({"name_or_path": format!("{assets}/{model}")});
        place.train(name, json!({"model": model, "cache_dir": format!("{name}/cache"), "train": {"train_text_encoder": true}}));
    }
    let losses = |file: &str| place.rows(file).into_iter().map(|r| r.loss.map(f64::to_bits)).collect::<Vec<_>>();
    assert_eq!(losses("folder"), losses("single"));
    let modules = |file: &str| place.lora(&format!("{file}/run/run.safetensors")).modules;
    assert!(modules("folder") == modules("single"));
}
