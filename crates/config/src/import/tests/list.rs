//! THE list of options: every one is read, and none is forgotten.

use super::super::flags::{FILE, Flag, Kind, Meaning, NETWORK_ARGS, PICTURES, RUN};
use super::*;
use serde_json::Value;

fn all() -> impl Iterator<Item = &'static Flag> {
    [RUN, PICTURES, FILE, NETWORK_ARGS].into_iter().flatten()
}

#[test]
fn no_flag_is_listed_twice_and_every_name_that_one_has_here_exists() {
    let schema = &*crate::schema::WHOLE;
    let properties = &schema["properties"];
    let mut seen = std::collections::BTreeSet::new();
    for flag in [RUN, PICTURES, FILE].into_iter().flatten() {
        assert!(seen.insert(flag.name), "{} is listed twice", flag.name);
    }
    for flag in all() {
        let Meaning::Is(key) = flag.meaning else { continue };
        let mut at = properties;
        for part in key.split('.') {
            at = if at[part]["items"].is_object() { &at[part]["items"]["properties"] } else { &at[part] };
            at = if at["properties"].is_object() { &at["properties"] } else { at };
        }
        assert!(at.is_object(), "{}: the config has no {key}", flag.name);
    }
}

/// So that a flag that was refused or passed over for want of a key is not forgotten when the key comes.
#[test]
fn a_flag_that_has_no_key_here_has_none_of_its_name() {
    let schema = &*crate::schema::WHOLE;
    let known = |section: &Value, name: &str| {
        let key = &section[name];
        key.is_object() && key["deprecated"] != true
    };
    for flag in all() {
        let (Meaning::Refused(..) | Meaning::Nothing(_)) = flag.meaning else { continue };
        let properties = &schema["properties"];
        // Without `sample`: sd-scripts' guidance_scale is one of training.
        let sections = ["train", "model", "network", "dataloader", "save", "memory", "logging"];
        let sections = sections.map(|name| &properties[name]["properties"]);
        for section in sections.into_iter().chain([properties, &properties["datasets"]["items"]["properties"]]) {
            assert!(!known(section, flag.name), "{} is a key of the config now: let import/flags.rs say Is(\"…\")", flag.name);
        }
    }
}

/// Every option of the list can be given, alone, in both forms, without a panic, and is either taken or refused by its name.
#[test]
fn every_flag_of_the_list_is_read_from_files_and_command_lines() {
    for flag in [RUN, PICTURES].into_iter().flatten() {
        let (word, toml) = match flag.kind {
            Kind::Switch => ("", "true"),
            Kind::Text | Kind::Any => (" x", "\"x\""),
            Kind::Whole => (" 3", "3"),
            Kind::Number => (" 0.5", "0.5"),
            Kind::Texts => (" a=1 b=2", "[\"a=1\", \"b=2\"]"),
            Kind::Sizes => (" 512,768", "\"512,768\""),
        };
        let base = "pretrained_model_name_or_path = \"m\"\ntrain_data_dir = \"d\"\nresolution = 512\noutput_name = \"a\"\n";
        let base: String = base.lines().filter(|line| !line.starts_with(flag.name)).map(|line| format!("{line}\n")).collect();
        let files = [
            ("a.sh", format!("train_network.py {}--{}{word}", flags_of(&base), flag.name)),
            ("a.toml", format!("{base}{} = {toml}\n", flag.name)),
        ];
        for (name, content) in &files {
            match try_import(&[(name, content)], 1) {
                Ok(_) => {}
                // What the config itself refuses is named as the config names it.
                Err(error) => {
                    let error = format!("{error:#}");
                    let native = error.contains("the imported config") || error.contains("not supported yet");
                    assert!(error.contains(flag.name) || native, "{content}: {error}");
                }
            }
        }
    }
}

/// `a = "b"` lines as flags.
fn flags_of(toml: &str) -> String {
    toml.lines().map(|line| format!("--{} ", line.replace(" = ", "=").replace('"', ""))).collect()
}
