//! Mistaken and hostile inputs: each ends with status 1 and one sentence that names the file or key.

use crate::place::Place;
use base::{DType, Shape};
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use weights::safetensors::{Entry, write};

#[track_caller]
fn refused(place: &Place, file: &str, changes: Value, words: &[&str]) {
    let config = place.config(file, changes);
    for command in ["train", "plan"] {
        let error = place.run(&[command, &config]).error();
        for word in words {
            assert!(error.contains(word), "{command} {file}: \"{word}\" is missing in: {error}");
        }
    }
    assert!(!place.exists(&format!("{file}/run/metrics.jsonl")));
}

fn tensors(place: &Place, file: &str, names: &[&str]) {
    let entry =
        |name: &&str| Entry { name: name.to_string(), dtype: DType::F32, shape: Shape::from([2, 2]), bytes: Cow::Owned(vec![0; 16]) };
    let entries: Vec<Entry> = names.iter().map(entry).collect();
    write(&place.path(file), &entries, &BTreeMap::new()).unwrap();
}

#[test]
fn what_is_no_model_is_named_for_what_it_is() {
    let place = Place::new("sd15");
    place.write("pointer.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4265146304\n");
    place.write("page.safetensors", "<!DOCTYPE html><html><body>Log in</body></html>");
    place.write("old.ckpt", b"PK\x03\x04archive/data.pkl");
    place.write("older.ckpt", b"\x80\x02}q\x00.");
    place.write("empty.safetensors", b"");
    place.write("huge_header.safetensors", [&u64::MAX.to_le_bytes()[..], b"{}"].concat());
    place.write("noise.safetensors", (0..4096u32).map(|i| ((i * i * 31) >> 3) as u8).collect::<Vec<u8>>());
    tensors(
        &place,
        "lora.safetensors",
        &["lora_unet_mid_block_attentions_0_proj_in.lora_down.weight", "lora_unet_mid_block_attentions_0_proj_in.lora_up.weight"],
    );
    tensors(&place, "xl.safetensors", &["conditioner.embedders.1.model.ln_final.weight", "model.diffusion_model.label_emb.0.0.weight"]);
    let cases: [(&str, &[&str]); 10] = [
        ("pointer.safetensors", &["git-lfs pointer", "GB", "git lfs pull"]),
        ("page.safetensors", &["web page"]),
        ("old.ckpt", &["pickle", "never unpickled"]),
        ("older.ckpt", &["pickle", "never unpickled"]),
        ("empty.safetensors", &["empty"]),
        ("huge_header.safetensors", &[]),
        ("noise.safetensors", &[]),
        ("lora.safetensors", &["LoRA"]),
        ("xl.safetensors", &["SDXL"]),
        ("nowhere.safetensors", &["doesn't exist"]),
    ];
    for (file, words) in cases {
        refused(&place, "wrong", json!({"model": {"name_or_path": file}}), &[words, &[file]].concat());
    }
}

#[test]
fn damaged_model_folders_are_refused() {
    let place = Place::new("sd15");
    let unet = "model/unet/diffusion_pytorch_model.safetensors";
    let bytes = place.read(unet);
    place.write(unet, &bytes[..bytes.len() / 2]);
    refused(&place, "wrong", json!({}), &["unet/diffusion_pytorch_model.safetensors"]);
    place.write(unet, "version https://git-lfs.github.com/spec/v1\nsize 100\n");
    refused(&place, "wrong", json!({}), &["git-lfs pointer"]);
    std::fs::remove_file(place.path(unet)).unwrap();
    refused(&place, "wrong", json!({}), &["unet"]);
    place.write(unet, bytes);
    place.write("model/unet/config.json", "{\"in_channels\": ");
    refused(&place, "wrong", json!({}), &["unet", "config.json"]);
    place.write("model/unet/config.json", "{}");
    refused(&place, "wrong", json!({}), &["unet"]);
    std::fs::create_dir(place.path("bare")).unwrap();
    refused(&place, "wrong", json!({"model": {"name_or_path": "bare"}}), &["bare"]);
}

#[test]
fn a_hub_id_without_network_says_what_stands_in_the_way() {
    let place = Place::new("sd15");
    let config = place.config("remote", json!({"model": {"name_or_path": "nobody/nothing"}}));
    let error = place.run(&["train", &config]).error();
    assert!(error.contains("nobody/nothing") && error.contains("HF_HUB_OFFLINE"), "{error}");
    // A port that nobody listens on any more.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let endpoint = format!("http://127.0.0.1:{port}");
    let output = place.command(&["plan", &config]).env_remove("HF_HUB_OFFLINE").env("HF_ENDPOINT", &endpoint).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let last = error.lines().last().unwrap();
    assert!(
        last.starts_with("error: ") && last.contains("nobody/nothing") && last.contains(&endpoint) && !error.contains("panicked"),
        "{error}"
    );
}

#[test]
fn datasets_without_a_usable_picture_are_refused() {
    let place = Place::new("sd15");
    let folder = |path: &str| json!({"datasets": [{"folder_path": path}]});
    refused(&place, "wrong", folder("nowhere"), &["nowhere"]);
    std::fs::create_dir(place.path("bare")).unwrap();
    refused(&place, "wrong", folder("bare"), &["bare"]);
    place.write("broken/a.png", b"\x89PNG\r\n\x1a\nand then nothing");
    place.write("broken/b.jpg", "<html>no picture</html>");
    refused(&place, "wrong", folder("broken"), &["broken"]);
    place.write("mixed/bad.png", b"\x89PNG\r\n\x1a\nand then nothing");
    std::fs::copy(place.path("pictures/0.png"), place.path("mixed/good.png")).unwrap();
    refused(&place, "wrong", json!({"datasets": [{"folder_path": "mixed", "bad_images": "stop"}]}), &["bad.png"]);
}

#[test]
fn wrong_keys_and_values_are_named_with_the_nearest_right_one() {
    let place = Place::new("sd15");
    refused(&place, "wrong", json!({"train": {"stesp": 3}}), &["stesp", "steps"]);
    refused(&place, "wrong", json!({"netwrok": {}}), &["netwrok", "network"]);
    refused(&place, "wrong", json!({"datasets": [{"folder": "x"}]}), &["folder", "folder_path"]);
    refused(&place, "wrong", json!({"train": {"lr": "fast"}}), &["lr"]);
    refused(&place, "wrong", json!({"train": {"steps": -1}}), &["steps"]);
    refused(&place, "wrong", json!({"train": {"optimizer": "adamv"}}), &["train.optimizer", "adamw"]);
    refused(&place, "wrong", json!({"network": {"only_if_contains": ["atn1.to_q"]}}), &["only_if_contains", "attn1.to_q"]);
    refused(
        &place,
        "wrong",
        json!({"train": {"gradient_checkpointing": ["midblock"]}}),
        &["gradient_checkpointing", "midblock", "unet.mid_block"],
    );
    refused(&place, "wrong", json!({"model": {"arch": "sdxl"}}), &["model.arch"]);
    refused(&place, "wrong", json!({"model": {"arch": "sd2"}}), &["model.arch"]);
    let error = place.run(&["train", "nowhere.yaml"]).error();
    assert!(error.contains("nowhere.yaml"), "{error}");
    place.write("broken.yaml", "name: [unclosed\n");
    let error = place.run(&["train", "broken.yaml"]).error();
    assert!(error.contains("broken.yaml"), "{error}");
}

#[test]
fn an_output_that_can_not_be_written_is_found_before_training() {
    let place = Place::new("sd15");
    place.write("file", "in the way");
    let config = place.config("blocked", json!({"training_folder": "file/below", "cache_dir": "cache"}));
    let error = place.run(&["train", &config]).error();
    assert!(error.contains("file/below"), "{error}");
    place.write("half/run", "in the way");
    let config = place.config("half", json!({}));
    let error = place.run(&["train", &config]).error();
    assert!(error.contains("half/run"), "{error}");
}

#[test]
fn no_number_of_epochs_is_longer_than_any_run_could_be() {
    let place = Place::new("sd15");
    for (epochs, repeats) in [(1_000_000_000u64, 1), (1_000_000, 100_000), (200_000_000, 1)] {
        let changes = json!({"train": {"steps": null, "epochs": epochs}, "datasets": [{"num_repeats": repeats}]});
        refused(&place, "endless", changes, &["train.epochs", &epochs.to_string(), "at most 1000000000 steps"]);
    }
}

#[test]
fn every_setting_that_is_wrong_is_told_at_once_with_its_place() {
    let place = Place::new("sd15");
    place.write(
        "many.yaml",
        "name: run\nmodel: {path: model, clip_skip: 99}\ndatasets:\n  - path: pictures\n    num_repeats: 0\ntrain:\n  batch_size: 0\n  lr: 1e9\n",
    );
    for command in [vec!["plan", "many.yaml"], vec!["config", "check", "many.yaml"]] {
        let error = place.run(&command).error();
        for part in [
            "4 keys",
            "many.yaml:2:22: model.clip_skip",
            "many.yaml:5:5: datasets[0].num_repeats",
            "many.yaml:7:3: train.batch_size",
            "many.yaml:8:3: train.lr",
        ] {
            assert!(error.contains(part), "no `{part}` in {error}");
        }
    }
    let error = place.run(&["plan", "many.yaml", "--set", "train.lr=1e-4", "--set", "train.batch_size=2000000"]).error();
    assert!(error.contains("--set train.batch_size=2000000: train.batch_size") && !error.contains("train.lr"), "{error}");
}
