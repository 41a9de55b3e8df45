//! LoRA files go through layouts and back, and into new runs, without changing what they do.

use crate::place::Place;
use serde_json::json;
use weights::lora::{LoraFile, LoraModule};

/// ΔW = (alpha/rank) · up · down, [out, in · kh · kw].
fn delta(module: &LoraModule) -> Vec<f32> {
    let (rank, width) = (module.rank(), module.down.len() / module.rank());
    let mut product = vec![0.0; module.up.len() / rank * width];
    for (row, up) in product.chunks_exact_mut(width).zip(module.up.chunks_exact(rank)) {
        for (u, down) in up.iter().zip(module.down.chunks_exact(width)) {
            row.iter_mut().zip(down).for_each(|(sum, d)| *sum += module.scale() * u * d);
        }
    }
    product
}

/// Both LoRAs adapt the same modules by the same amounts, up to `limit` of the largest change.
#[track_caller]
fn assert_same_effect(a: &LoraFile, b: &LoraFile, limit: f32) {
    let names = |file: &LoraFile| file.modules.iter().map(|m| m.module.clone()).collect::<Vec<_>>();
    assert_eq!(names(a), names(b));
    for (a, b) in a.modules.iter().zip(&b.modules) {
        let (left, right) = (delta(a), delta(b));
        let largest = right.iter().fold(0f32, |most, v| most.max(v.abs()));
        assert!(largest > 0.0, "{} does nothing", a.module);
        let away = left.iter().zip(&right).fold(0f32, |most, (l, r)| most.max((l - r).abs()));
        assert!(away <= limit * largest, "{}: ΔW is {away:e} away, of {largest:e}", a.module);
    }
}

/// A trained LoRA of linear layers, convolutions and the text encoder, whose alpha is not its rank.
fn trained(place: &Place) {
    let network = json!({"linear": 4, "linear_alpha": 6, "conv": 3, "conv_alpha": 1.5});
    place.train("first", json!({"network": network, "train": {"train_text_encoder": true, "lr": 0.01}, "save": {"dtype": "float32"}}));
}

#[test]
fn converting_there_and_back_keeps_what_a_lora_does() {
    let place = Place::new("sd15");
    trained(&place);
    place.run(&["convert", "--to", "diffusers", "first/run/run.safetensors", "diffusers.safetensors"]).good();
    place.run(&["convert", "--to", "kohya", "diffusers.safetensors", "kohya.safetensors"]).good();
    let first = place.lora("first/run/run.safetensors");
    for file in ["diffusers.safetensors", "kohya.safetensors"] {
        assert_same_effect(&place.lora(file), &first, 1e-6);
        let report = place.run(&["inspect", file, "--json"]).good().stdout;
        let report: serde_json::Value = serde_json::from_str(&report).unwrap();
        assert_eq!(report.to_string().matches("\"module\":").count(), first.modules.len());
    }
    let text = place.run(&["inspect", "first/run/run.safetensors"]).good().stdout;
    for word in ["kohya", "ss_network_dim", "ss_output_name", "text_encoder"] {
        assert!(text.contains(word), "{word} is missing in {text}");
    }
    assert!(!text.contains(&place.folder().display().to_string()), "a private path is in the metadata");
    let names = weights::safetensors::File::open(&place.path("kohya.safetensors")).unwrap().names().map(str::to_string).collect::<Vec<_>>();
    assert!(names.iter().any(|n| n == "lora_te_text_model_encoder_layers_0_self_attn_q_proj.lora_down.weight"), "{names:?}");
}

#[test]
fn converting_replaces_a_file_only_when_told_to() {
    let place = Place::new("sd15");
    place.train("first", json!({"train": {"steps": 1}}));
    place.write("there.safetensors", "mine");
    let arguments = ["convert", "--to", "diffusers", "first/run/run.safetensors", "there.safetensors"];
    let error = place.run(&arguments).error();
    assert!(error.contains("there.safetensors exists already") && error.contains("--over"), "{error}");
    assert_eq!(place.read("there.safetensors"), b"mine");
    place.run(&[&arguments[..], &["--over"]].concat()).good();
    place.run(&["inspect", "there.safetensors"]).good();
}

#[test]
fn a_run_that_starts_from_a_lora_goes_on_from_its_effect() {
    let place = Place::new("sd15");
    trained(&place);
    place.run(&["convert", "--to", "diffusers", "first/run/run.safetensors", "diffusers.safetensors"]).good();
    let first = place.lora("first/run/run.safetensors");
    for (name, file) in [("from_kohya", "first/run/run.safetensors"), ("from_diffusers", "diffusers.safetensors")] {
        let network = json!({"linear": 4, "linear_alpha": 6, "conv": 3, "conv_alpha": 1.5, "pretrained_lora_path": file});
        let train = json!({"train_text_encoder": true, "steps": 1, "lr": 1e-12});
        let done = place.train(name, json!({"network": network, "train": train, "save": {"dtype": "float32"}}));
        assert!(done.stderr.contains("starting from the LoRA"), "{}", done.stderr);
        assert_same_effect(&place.lora(&format!("{name}/run/run.safetensors")), &first, 1e-5);
    }
    // A resumed run needs its state only.
    std::fs::remove_file(place.path("diffusers.safetensors")).unwrap();
    place.run(&["train", "from_diffusers.yaml", "--resume", "--set", "train.steps=2"]).good();
}

#[test]
fn a_lora_that_does_not_fit_the_run_is_refused_with_the_key_to_change() {
    let place = Place::new("sd15");
    trained(&place);
    let refused = |network: serde_json::Value, text: bool| {
        let config = place.config("refused", json!({"network": network, "train": {"train_text_encoder": text}}));
        let error = place.run(&["train", &config, "--over"]).error();
        assert_eq!(place.run(&["plan", &config]).error(), error, "the plan sees what the run would");
        error
    };
    let file = "first/run/run.safetensors";
    let error = refused(json!({"linear": 8, "conv": 3, "pretrained_lora_path": file}), true);
    assert!(error.contains("rank 4") && error.contains("network.linear"), "{error}");
    let error = refused(json!({"linear": 4, "conv": 5, "pretrained_lora_path": file}), true);
    assert!(error.contains("rank 3") && error.contains("network.conv"), "{error}");
    let error = refused(json!({"linear": 4, "conv": 3, "pretrained_lora_path": file}), false);
    assert!(error.contains("text_encoder"), "{error}");
    let error = refused(json!({"linear": 4, "pretrained_lora_path": "model/unet/diffusion_pytorch_model.safetensors"}), false);
    assert!(error.contains("diffusion_pytorch_model.safetensors"), "{error}");
}

#[test]
fn the_diffusers_layout_is_written_on_request() {
    let place = Place::new("sd15");
    let change = |layout: &str| json!({"save": {"layout": layout, "dtype": "float32"}});
    place.train("kohya", change("kohya"));
    place.train("diffusers", change("diffusers"));
    let names = |file: &str| {
        let file = weights::safetensors::File::open(&place.path(file)).unwrap();
        file.names().map(str::to_string).collect::<Vec<_>>()
    };
    assert!(names("kohya/run/run.safetensors").iter().all(|n| n.starts_with("lora_unet_")));
    assert!(names("diffusers/run/run.safetensors").iter().all(|n| n.starts_with("unet.") && n.ends_with(".weight")));
    assert_same_effect(&place.lora("diffusers/run/run.safetensors"), &place.lora("kohya/run/run.safetensors"), 1e-6);
}

#[test]
fn the_type_to_save_in_is_a_setting_and_values_that_vanish_in_it_are_told() {
    let place = Place::new("sd15");
    let said = ["fp32", "bf16", "fp16"].map(|dtype| {
        let done = place.train(dtype, json!({"train": {"lr": 1e-9}, "save": {"dtype": dtype}}));
        (done.stderr.contains("became 0"), place.lora(&format!("{dtype}/run/run.safetensors")))
    });
    assert_eq!(said.each_ref().map(|(told, _)| *told), [false, false, true]);
    let left = said.map(|(_, lora)| lora.modules.iter().any(|m| m.up.iter().any(|v| *v != 0.0)));
    assert_eq!(left, [true, true, false]);
}
