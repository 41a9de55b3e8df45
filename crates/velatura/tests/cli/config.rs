//! `config init`, `check`, `import` and `schema`, and the run's own copy of what it was told.

use crate::place::Place;
use serde_json::{Value, json};
use std::process::Stdio;
use std::time::Duration;

#[test]
fn a_first_config_loads_and_plans_for_every_family_that_is_trained() {
    for (arch, side, v) in [("sd15", 128, false), ("sd21", 128, true)] {
        let place = Place::new(arch);
        let init = ["config", "init", "--model", "model", "--dataset", "pictures", "--output", "first.yaml"];
        let done = place.run(&init).good();
        assert!(done.stdout.trim_end().ends_with("first.yaml"), "{}", done.stdout);
        let text = String::from_utf8(place.read("first.yaml")).unwrap();
        assert!(text.contains(&format!("width: {side}")) && text.lines().filter(|line| line.contains('#')).count() > 10, "{text}");
        assert_eq!(text.contains("v_prediction"), v, "{text}");
        place.run(&["config", "check", "first.yaml"]).good();
        let plan: Value = serde_json::from_str(&place.run(&["plan", "first.yaml", "--json"]).good().stdout).unwrap();
        assert_eq!(plan["config"]["datasets"][0]["resolution"], json!([side]));
        // Twice is once too often.
        let error = place.run(&init).error();
        assert!(error.contains("first.yaml") && error.contains("not overwritten"), "{error}");
        assert_eq!(String::from_utf8(place.read("first.yaml")).unwrap(), text);
    }
}

#[test]
fn a_first_config_says_what_is_wrong_with_the_model_or_the_folder() {
    let place = Place::new("sd15");
    let error = place.run(&["config", "init", "--model", "nowhere.safetensors"]).error();
    assert!(error.contains("nowhere.safetensors"), "{error}");
    let error = place.run(&["config", "init", "--model", "model", "--dataset", "nowhere"]).error();
    assert!(error.contains("--dataset") && error.contains("nowhere"), "{error}");
    // A model that is not here is not downloaded for this.
    let done = place.run(&["config", "init", "--model", "nobody/nothing"]).good();
    assert!(done.stdout.contains("nobody/nothing") && done.stderr.contains("not on this machine"), "{done:?}");
    assert!(place.run(&["config", "init"]).good().stdout.contains("/path/to/model"));
}

#[test]
fn the_schema_is_json_and_a_config_is_checked_without_its_model() {
    let place = Place::new("sd15");
    let schema: Value = serde_json::from_str(&place.run(&["config", "schema"]).good().stdout).unwrap();
    assert!(schema["$defs"]["run"]["properties"]["train"]["properties"]["lr"].is_object());
    let config = place.config("a", json!({"model": {"name_or_path": "not-here"}, "train": {"xformers": true}}));
    let done = place.run(&["config", "check", &config]).good();
    assert!(done.stderr.contains("train.xformers has no effect"), "{done:?}");
    let error = place.run(&["config", "check", &config, "--set", "train.lrr=1", "--set", "train.b\nc=1", "--set", "trian=1"]).error();
    let lines: Vec<&str> = error.lines().collect();
    assert!(lines.len() == 4 && lines[0].starts_with("3 keys of ") && lines[0].ends_with("can't be used as they are:"), "{error}");
    assert!(lines[1].starts_with("  --set train.lrr=1: unknown key") && lines[2].starts_with("  --set train.b\\nc=1: "), "{error}");
    let error = place.run(&["config", "check", &config, "--set", "train.lrr=1"]).error();
    assert!(error.contains("train.lrr"), "{error}");
}

#[test]
fn a_kohya_script_is_imported_and_its_config_trains() {
    let place = Place::new("sd15");
    for file in ["0.png", "0.txt", "1.png", "1.txt"] {
        let bytes = place.read(&format!("pictures/{file}"));
        place.write(&format!("train/2_pattern/{file}"), bytes);
    }
    place.write("prompts.txt", "一个红色的图案 --w 64 --h 64 --s 2\n");
    place.write(
        "train.sh",
        "accelerate launch train_network.py --pretrained_model_name_or_path=model --train_data_dir=train --output_dir=out \\\n  \
         --output_name=k --resolution=64 --caption_extension=.txt --max_train_epochs=2 --save_every_n_epochs=1 --learning_rate=1e-3 \\\n  \
         --network_module=networks.lora --network_dim=4 --network_train_unet_only --sample_prompts=prompts.txt --sample_every_n_epochs=1 --xformers\n",
    );
    let done = place.run(&["config", "import", "train.sh", "--output", "k.yaml"]).good();
    assert!(done.stderr.contains("--xformers has no effect"), "{done:?}");
    // Whatever the locale, text is UTF-8.
    let output = place.command(&["train", "k.yaml"]).env("LC_ALL", "C").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8(place.read("out/k/config.yaml")).unwrap().contains("一个红色的图案"));
    // Two pictures, twice an epoch: an epoch is four steps.
    for file in
        ["out/k/k.safetensors", "out/k/k_000000004.safetensors", "out/k/samples/k_000000004_0.png", "out/k/samples/k_000000008_0.png"]
    {
        assert!(place.exists(file), "{file}");
    }
    assert!(!place.exists("out/k/k_000000008.safetensors"));
    let error = place.run(&["config", "import", "train.sh", "--output", "k.yaml"]).error();
    assert!(error.contains("not overwritten"), "{error}");
    let quoted =
        place.run(&["config", "import", "train_network.py --pretrained_model_name_or_path=m --train_data_dir=d --resolution=64"]).good();
    assert!(quoted.stdout.contains("resolution: 64"), "{}", quoted.stdout);
    let words = ["config", "import", "--", "train_network.py", "--netwrk_dim=4"];
    let error = place.run(&words).error();
    assert!(error.contains("--netwrk_dim") && error.contains("network_dim"), "{error}");
}

#[test]
fn a_run_keeps_its_own_copy_of_config_and_pictures_and_says_where_it_is() {
    let place = Place::new("sd15");
    place.write("pictures/broken.png", b"no picture");
    let config = place.config("kept", json!({"sample": {"prompts": ["a red pattern"], "width": 64, "height": 64, "sample_steps": 1}}));
    let done = place.run(&["train", &config]).good();
    let folder = place.path("kept/run");
    let folder = std::fs::canonicalize(folder).unwrap().display().to_string();
    assert!(done.stderr.contains("output: /") && done.stdout.trim_end().ends_with("kept/run/run.safetensors"), "{done:?}");
    assert!(done.stdout.contains(&folder), "{folder} is not in {}", done.stdout);
    place.write(&config, "name: other");
    place.write("pictures/0.txt", "edited later");
    let frozen = String::from_utf8(place.read("kept/run/config.yaml")).unwrap();
    assert!(frozen.contains("a red pattern"), "{frozen}");
    // And it is what the run's samples were made from.
    let samples: Vec<_> = std::fs::read_dir(place.path("kept/run/samples")).unwrap().flatten().collect();
    assert!(!samples.is_empty());
    for sample in samples {
        let bytes = std::fs::read(sample.path()).unwrap();
        assert!(String::from_utf8_lossy(&bytes).contains("a red pattern"), "{:?}", sample.path());
    }
    let list: Value = serde_json::from_slice(&place.read("kept/run/data.json")).unwrap();
    let rows = list.as_array().unwrap();
    assert_eq!(rows.iter().filter(|row| row["used"] == true).count(), 7);
    assert!(rows.iter().any(|row| row["file"] == "0.png" && row["caption"].as_str().unwrap().contains("number 0")), "{list}");
    assert!(rows.iter().any(|row| row["file"] == "broken.png" && row["reason"].is_string()), "{list}");
    // The copy is a config itself.
    place.run(&["config", "check", "kept/run/config.yaml"]).good();
}

#[test]
fn a_runs_own_copy_of_the_config_means_the_same_from_any_folder() {
    let place = Place::new("sd15");
    std::fs::create_dir(place.path("masks")).unwrap();
    std::fs::copy(place.path("pictures/0.png"), place.path("masks/0.png")).unwrap();
    place.train("first", json!({"train": {"steps": 2}, "datasets": [{"mask_path": "masks"}]}));
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let frozen = place.path("first/run/config.yaml").display().to_string();
    let run = |arguments: &[&str]| place.command(arguments).current_dir(place.path("elsewhere")).output().unwrap();
    let output = run(&["train", &frozen, "--resume", "--set", "train.steps=4"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && said.contains("going on after step 2"), "{said}");
    assert!(!said.contains("using the config's from here on"), "nothing but the length has changed: {said}");
    assert_eq!(std::fs::read_dir(place.path("elsewhere")).unwrap().count(), 0);
    assert_eq!(place.rows("first").len(), 4);
}

/// Killed at any moment, a run leaves copies of config and pictures that are whole, and two runs of one config have each their own.
#[test]
fn a_kill_at_any_moment_leaves_whole_copies_of_config_and_pictures() {
    let place = Place::new("sd15");
    let config = place.config("killed", json!({"train": {"steps": 2000}}));
    let copies = || ["config.yaml", "data.json"].map(|name| std::fs::read(place.path(&format!("killed/run/{name}"))).ok());
    let mut seen = 0;
    for moment in 0..50u64 {
        let mut child = place.command(&["train", &config, "--resume"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Later each time, over the stretch in which a run starts; a fast machine is far into its steps by then, which is as good.
        std::thread::sleep(Duration::from_millis(2 * moment));
        child.kill().unwrap();
        child.wait().unwrap();
        let [yaml, list] = copies();
        if let Some(yaml) = yaml {
            let loaded = config::load(&yaml, "config.yaml", &[]).unwrap_or_else(|e| panic!("moment {moment}: {e:#}"));
            assert_eq!((loaded.config.name.as_str(), loaded.config.train.steps), ("run", 2000));
            seen += 1;
        }
        if let Some(list) = list {
            let rows: Value = serde_json::from_slice(&list).unwrap_or_else(|e| panic!("moment {moment}: {e}"));
            assert_eq!(rows.as_array().unwrap().len(), 7);
        }
    }
    let mut child = place.command(&["train", &config, "--resume"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    while place.rows_so_far("killed") == 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let leftovers: Vec<_> = std::fs::read_dir(place.path("killed/run")).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert!(leftovers.iter().all(|name| !name.to_string_lossy().contains("part")), "{leftovers:?}");
    assert!(copies().iter().all(Option::is_some), "{seen} copies were seen on the way");

    place.run(&["train", &config, "--set", "name=other", "--set", "train.steps=1"]).good();
    let [of_killed, of_other] = ["run", "other"].map(|name| String::from_utf8(place.read(&format!("killed/{name}/config.yaml"))).unwrap());
    assert!(of_killed.contains("steps: 2000") && of_other.contains("steps: 1\n"), "{of_other}");
}

#[test]
fn a_config_from_standard_input_is_read_like_a_file() {
    let place = Place::new("sd15");
    let config = place.config("piped", json!({}));
    let file = std::fs::File::open(place.path(&config)).unwrap();
    let output = place.command(&["plan", "-", "--json", "--set", "train.steps=3"]).stdin(file).output().unwrap();
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan["steps"], 3);
    let file = std::fs::File::open(place.path(&config)).unwrap();
    let output = place.command(&["train", "-"]).stdin(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(place.exists("piped/run/run.safetensors"));
}
