//! `plan` tells before a run what the run then does.

use crate::place::Place;
use serde_json::{Value, json};

fn plan(place: &Place, config: &str) -> Value {
    serde_json::from_str(&place.run(&["plan", config, "--json"]).good().stdout).unwrap()
}

#[test]
fn the_planned_steps_pictures_and_memory_are_those_of_the_run() {
    let place = Place::new("sd15");
    place.write("pictures/broken.png", b"\x89PNG\r\n\x1a\nand then nothing");
    let changes = json!({
        "trigger_word": "zwx",
        "datasets": [{"num_repeats": 2}],
        "train": {"steps": null, "epochs": 3, "batch_size": 2, "gradient_accumulation": 2},
    });
    let config = place.config("epochs", changes);
    let plan = plan(&place, &config);

    let images = plan["images"].as_array().unwrap();
    assert_eq!(images.len(), 8);
    for image in images {
        let used = image["file"] != "broken.png";
        assert_eq!(image["used"], used, "{image}");
        if used {
            let bucket: Vec<u64> = image["bucket"].as_array().unwrap().iter().map(|side| side.as_u64().unwrap()).collect();
            assert!(bucket.len() == 2 && bucket.iter().all(|side| side % 16 == 0), "{image}");
            assert!(image["caption"].as_str().unwrap().contains("pattern"), "{image}");
            assert_eq!(image["repeats"], 2);
        } else {
            assert!(!image["reason"].as_str().unwrap().is_empty() && image["bucket"].is_null(), "{image}");
        }
    }
    let wide = images.iter().find(|i| i["file"] == "1.png").unwrap();
    assert!(wide["bucket"][0].as_u64() > wide["bucket"][1].as_u64(), "[width, height]: {wide}");
    assert_eq!(plan["config"]["train"]["batch_size"], 2);
    let memory = &plan["memory"];
    for key in ["base_weights", "adapters", "gradients", "optimizer_state", "inputs", "arena", "peak"] {
        assert!(memory[key].as_u64().unwrap() > 0, "{key}: {memory}");
    }
    assert!(memory["arenas"].as_array().unwrap().iter().all(|arena| arena["bytes"].as_u64() >= arena["floor_bytes"].as_u64()));

    place.run(&["train", &config]).good();
    let rows = place.rows("epochs");
    assert_eq!(plan["steps"], rows.len() as u64);
    assert_eq!(plan["epochs"], 3.0);
    assert_eq!(rows.last().unwrap().epoch, 3.0);
    let shown: usize = rows.iter().map(|row| row.files.len()).sum();
    assert_eq!(shown, 3 * 7 * 2, "every picture comes up repeats × epochs times");
}

#[test]
fn planning_reads_no_weights_and_writes_nothing() {
    let place = Place::new("sd15");
    let config = place.config("planned", json!({}));
    let before = plan(&place, &config);
    // The same headers over numbers that are all NaN: who looked at them would notice.
    for file in ["unet/diffusion_pytorch_model", "vae/diffusion_pytorch_model", "text_encoder/model"] {
        let file = format!("model/{file}.safetensors");
        let mut bytes = place.read(&file);
        let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        bytes[start..].fill(0xff);
        place.write(&file, bytes);
    }
    assert_eq!(plan(&place, &config), before);
    assert!(!place.exists("planned") && !place.exists("cache"));
    let text = place.run(&["plan", &config]).good().stdout;
    assert!(text.contains("peak") && text.contains("4 steps"), "{text}");
}

#[test]
fn a_run_beyond_the_budget_is_refused_before_it_starts() {
    let place = Place::new("sd15");
    let config = place.config("large", json!({"memory": {"budget": "1 MB"}}));
    let error = place.run(&["train", &config]).error();
    assert!(error.contains("memory.budget") && error.contains("gradient_checkpointing"), "{error}");
    assert!(!place.exists("large/run"));
}
