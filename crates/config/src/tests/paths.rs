//! Paths and names: what looks like a variable, a placeholder or nothing that a file can be called.

use super::*;

const PATHS: [&str; 8] = [
    "training_folder",
    "cache_dir",
    "dump_pixels",
    "model.name_or_path",
    "model.vae_path",
    "network.pretrained_lora_path",
    "datasets[0].folder_path",
    "datasets[0].mask_path",
];

/// A config that says one path.
fn with(key: &str, value: &str) -> Result<Loaded> {
    let mut config =
        serde_json::json!({"name": "a", "model": {"name_or_path": "m"}, "network": {}, "datasets": [{"folder_path": "/imgs"}]});
    match key.rsplit_once('.') {
        None => config[key] = value.into(),
        Some(("datasets[0]", key)) => config["datasets"][0][key] = value.into(),
        Some((section, key)) => config[section][key] = value.into(),
    }
    load(config.to_string().as_bytes(), "c.yaml", &[])
}

#[track_caller]
fn refused(key: &str, value: &str, words: &[&str]) {
    let message = format!("{:#}", with(key, value).expect_err(value));
    for word in words.iter().chain([&key, &"c.yaml:1"]) {
        assert!(message.contains(word), "`{word}` is not in: {message}");
    }
}

#[test]
fn variables_in_paths_are_refused_by_name_instead_of_becoming_folders() {
    for key in PATHS {
        for (value, shown) in [
            ("./$MYOUT/runs", "$MYOUT"),
            ("${VAR}/x", "${VAR}"),
            ("/no such place/a${VAR}b", "${VAR}"),
            ("$env:OUT/x", "$env"),
            ("$HOMES/x", "$HOMES"),
            ("/data/$HOME", "$HOME"),
            ("~bob/x", "~bob"),
            ("%APPDATA%\\x", "%APPDATA%"),
        ] {
            refused(key, value, &[shown, "write the path itself"]);
        }
        refused(key, "/data/a\u{0}b", &["\\u{0}", "control character"]);
        for value in ["/data/a$", "/data/$5", "/data/a~b", "/data/~a", "100%/b%", "~/x", "$HOME/x"] {
            with(key, value).unwrap_or_else(|e| panic!("{key}: {value}: {e:#}"));
        }
    }
}

/// Or a run in such a folder could not read its own config.
#[test]
fn a_folder_that_is_really_called_like_a_variable_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("my$folder");
    std::fs::create_dir(&folder).unwrap();
    let inside = folder.join("output").display().to_string();
    assert_eq!(with("training_folder", &inside).unwrap().config.training_folder.display().to_string(), inside);
    let message = format!("{:#}", with("training_folder", &format!("{inside}/$VAR")).unwrap_err());
    assert!(message.contains("$VAR"), "{message}");
}

#[test]
fn placeholders_and_variables_are_no_names_of_runs() {
    for name in ["[name]", "a [name]", "${HOME}", "$USER", "[trigger]"] {
        refused("name", name, &["can't stand in a name"]);
    }
    assert_eq!(with("name", "[v2] 5$").unwrap().config.name, "[v2] 5$");
}

#[test]
fn the_name_of_the_run_is_put_into_every_path() {
    for key in PATHS {
        let yaml = with(key, "/data/[name]/x").unwrap().config.to_yaml().unwrap();
        assert!(yaml.contains("/data/a/x") && !yaml.contains("[name]"), "{key}: {yaml}");
    }
}
