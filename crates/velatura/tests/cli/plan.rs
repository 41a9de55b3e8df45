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
    let mean = format!("batches hold {:.2} pictures on average", plan["mean_batch_size"].as_f64().unwrap());
    let text = place.run(&["plan", &config]).good().stdout;
    assert!(text.contains(&mean), "{mean} is missing in: {text}");
    let rows = place.rows("epochs");
    assert_eq!(plan["steps"], rows.len() as u64);
    assert_eq!(plan["epochs"], 3.0);
    assert_eq!(rows.last().unwrap().epoch, 3.0);
    let shown: usize = rows.iter().map(|row| row.files.len()).sum();
    assert_eq!(shown, 3 * 7 * 2, "every picture comes up repeats × epochs times");
}

/// What the program itself takes differs by some pages from start to start.
fn without_process(mut plan: Value) -> Value {
    for key in ["process", "whole", "whole_training"] {
        assert!(plan["memory"].as_object_mut().unwrap().remove(key).unwrap().as_u64() > Some(0), "{key}");
    }
    plan
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
    assert_eq!(without_process(plan(&place, &config)), without_process(before));
    assert!(!place.exists("planned") && !place.exists("cache"));
    let text = place.run(&["plan", &config]).good().stdout;
    assert!(text.contains("peak") && text.contains("4 steps"), "{text}");
}

#[test]
fn a_run_beyond_the_budget_is_refused_before_it_starts() {
    let place = with_large_pictures();
    let config = place.config("large", json!({"memory": {"budget": "1 MB"}, "train": {"batch_size": 2}}));
    let error = place.run(&["train", &config]).error();
    assert!(error.contains("memory.budget"), "{error}");
    assert!(!place.exists("large/run"));
    // Less than everything computed again takes: what would be enough is named.
    let mut larger = large();
    larger["train"]["batch_size"] = json!(8);
    larger["datasets"][0]["num_repeats"] = json!(2);
    let config = place.config("large", larger.clone());
    let least = number(&plan(&place, &config)["memory"]["whole"]);
    let error = place.run(&["train", &config, "--memory-budget", &(least - (12 << 20)).to_string()]).error();
    for word in ["memory.budget", "gradient_checkpointing", "train.batch_size: 1", "datasets[].resolution", "network.linear"] {
        assert!(error.contains(word), "{word}: {error}");
    }
    larger["train"]["gradient_checkpointing"] = json!(false);
    let forbidding = place.config("kept", larger);
    let error = place.run(&["plan", &forbidding, "--memory-budget", &least.to_string()]).error();
    assert!(error.contains("gradient_checkpointing: false"), "{error}");
}

/// A run whose activations are most of its memory.
fn large() -> Value {
    json!({"train": {"batch_size": 4}, "datasets": [{"folder_path": "large", "resolution": 256}]})
}

/// With the pictures of such a run.
fn with_large_pictures() -> Place {
    let place = Place::new("sd15");
    std::fs::create_dir(place.path("large")).unwrap();
    for i in 0..4u8 {
        let picture = image::RgbImage::from_fn(256, 256, |x, y| image::Rgb([x as u8 ^ i, y as u8, i * 50]));
        picture.save(place.path(&format!("large/{i}.png"))).unwrap();
        place.write(&format!("large/{i}.txt"), format!("a large pattern, number {i}"));
    }
    place
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no whole number"))
}

#[test]
fn a_budget_chooses_what_fits_and_recomputes_no_more_than_it_must() {
    let place = with_large_pictures();
    let config = place.config("budget", large());
    let with = |setting: &str, budget: &str| {
        let set = format!("train.gradient_checkpointing={setting}");
        let done = place.run(&["plan", &config, "--json", "--set", &set, "--memory-budget", budget]).good();
        serde_json::from_str::<Value>(&done.stdout).unwrap()["memory"].clone()
    };
    let (all, none) = (with("true", "100GB"), with("false", "100GB"));
    // The program itself, which counts too, differs by some pages from one process to the next.
    let (least, most) = (number(&all["whole"]), number(&none["whole"]) + (4 << 20));
    assert!(least + (20 << 20) < most, "{least} {most}");
    let everything = all["recompute"]["extra_seconds"].as_f64().unwrap();
    let mut extras = Vec::new();
    for eighth in (1..=8).rev() {
        let budget = least + (most - least) * eighth / 8;
        let memory = with("auto", &budget.to_string());
        assert!(number(&memory["whole"]) <= budget, "{memory}");
        assert_eq!(number(&memory["whole"]), number(&memory["peak"]) + number(&memory["process"]));
        let extra = memory["recompute"]["extra_seconds"].as_f64().unwrap();
        assert!(extra <= everything, "budget {budget}: {extra} of {everything}");
        extras.push(extra);
    }
    let choices: std::collections::BTreeSet<u64> = extras.iter().map(|extra| extra.to_bits()).collect();
    assert!(choices.len() > 3, "{extras:?}");
    assert!(extras[0] == 0.0 && extras[2] > 0.0 && extras[5] > extras[2] && extras[5] < 0.9 * everything, "{extras:?} of {everything}");
    // A list is a floor.
    let listed = with("[mid_block]", &((least + most) / 2).to_string());
    let segments: Vec<&str> = listed["recompute"]["segments"].as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    assert!(segments.iter().any(|s| s.contains("mid_block")) && segments.iter().any(|s| !s.contains("mid_block")), "{segments:?}");
    let text = place.run(&["plan", &config, "--memory-budget", &((least + most) / 2).to_string()]).good().stdout;
    assert!(text.contains("for the budget") && text.contains("more time a step"), "{text}");
}

/// Both keep two bytes for each number; where bf16 has no instructions of its own, the kernels need the same scratch too.
#[test]
fn fp16_is_planned_with_as_many_bytes_as_bf16() {
    let place = Place::new("sd15");
    let memory = |dtype: &str| {
        let config = place.config(dtype, json!({"train": {"batch_size": 4, "dtype": dtype}}));
        let done = place.command(&["plan", &config, "--json"]).env("VELATURA_ISA", "portable").output().unwrap();
        let mut plan: Value = serde_json::from_slice(&done.stdout).unwrap();
        let memory = plan["memory"].as_object_mut().unwrap();
        memory.retain(|key, _| !["process", "whole", "whole_training", "base_weights_by_type"].contains(&key.as_str()));
        Value::Object(std::mem::take(memory))
    };
    let (half, brain, full) = (memory("fp16"), memory("bf16"), memory("fp32"));
    assert_eq!(half, brain);
    assert!(number(&half["arena"]) * 3 < number(&full["arena"]) * 2, "{half} {full}");
}

/// Bytes that the process may take more or less than was planned: code that runs later than the plan, and the system's own accounts.
fn allowed(planned: u64) -> u64 {
    planned / 100 + (32 << 20)
}

#[test]
fn the_memory_that_a_run_uses_is_what_was_planned() {
    let place = with_large_pictures();
    let picture = json!({"prompts": ["a red pattern"], "width": 256, "height": 256, "sample_steps": 1, "sample_every": 1});
    let change = |checkpointing: bool, resolution: u32| {
        json!({"train": {"batch_size": 4, "steps": 1, "gradient_checkpointing": checkpointing}, "sample": picture,
            "datasets": [{"folder_path": "large", "resolution": resolution}]})
    };
    for (file, checkpointing, resolution) in [("encoding", true, 256), ("kept", false, 192), ("again", true, 192)] {
        let config = place.config(file, change(checkpointing, resolution));
        let memory = plan(&place, &config)["memory"].clone();
        let done = place.run(&["train", &config]).good();
        let report: train::usage::Report = serde_json::from_slice(&place.read(&format!("{file}/run/memory.json"))).unwrap();
        assert!(report.process_bytes.abs_diff(number(&memory["process"])) < 16 << 20, "{report:?}");
        assert!(done.stderr.contains(&report.training.to_string()), "{}", done.stderr);
        // The second and third run find their texts, and the third its pictures too.
        assert_eq!(report.encoding.is_some(), file != "again");
        for usage in report.encoding.into_iter().chain([report.training]) {
            assert!(usage.used_bytes.abs_diff(usage.planned_bytes) <= allowed(usage.planned_bytes), "{file}: {report:?} {memory}");
        }
    }
    let lora = "kept/run/run.safetensors";
    let drawn = place.run(&["sample", "--model", "model", "--lora", lora, "--prompt", "a red pattern", "--steps", "1"]).good();
    let (_, line) = drawn.stderr.split_once("memory of sampling: ").unwrap();
    let bytes: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse::<u64>().ok()).map(|mb| mb * 1_000_000).collect();
    let [planned, used] = bytes[..] else { panic!("{line}") };
    assert!(planned > 0 && planned.abs_diff(used) <= allowed(planned), "{line}");
}

#[test]
fn a_budget_changes_no_result_and_holds() {
    let place = with_large_pictures();
    let mut change = large();
    change["train"] = json!({"batch_size": 4, "steps": 2, "gradient_checkpointing": false});
    place.train("kept", change.clone());
    let plan = plan(&place, "kept.yaml");
    let mut chosen = change;
    chosen["train"]["gradient_checkpointing"] = json!("auto");
    let config = place.config("chosen", chosen);
    let arena = number(&plan["memory"]["arena"]);
    let budget = (number(&plan["memory"]["whole"]) - arena / 3).to_string();
    let done = place.run(&["train", &config, "--memory-budget", &budget]).good();
    assert!(done.stderr.contains("for the budget"), "{}", done.stderr);
    let losses =
        |file: &str| place.rows(file).into_iter().map(|r| (r.loss.map(f64::to_bits), r.grad_norm.map(f64::to_bits))).collect::<Vec<_>>();
    assert_eq!(losses("kept"), losses("chosen"));
    let modules = |file: &str| place.lora(&format!("{file}/run/run.safetensors")).modules;
    assert!(modules("kept") == modules("chosen"));
}
