//! How values are written.

use super::*;

#[test]
fn numbers_are_read_in_every_usual_spelling() {
    let config = with("train: {lr: 1e-4, steps: 1e3, max_grad_norm: 1}\nsave: {every: 0}\nsample: {every: 0}");
    assert_eq!((config.train.lr, config.train.steps, config.train.max_grad_norm), (1e-4, 1000, 1.0));
    assert_eq!((config.save.save_every, config.sample.sample_every), (0, 0));
}

#[test]
fn names_and_texts_keep_their_letters() {
    for name in ["NO", "1.10", "0777", "1e3", "true", "style.v1.2", "Grün 猫"] {
        let text = MINIMAL.replace("name: a", &format!("name: {name}")) + &format!("trigger_word: {name}\n");
        let config = read(&text).config;
        assert_eq!((config.name.as_str(), config.trigger_word.as_deref()), (name, Some(name)));
        assert_eq!(read(&config.to_yaml().unwrap()).config, config);
    }
}

#[test]
fn names_that_no_file_can_have_are_refused() {
    for name in ["a/b", "con", "CON.txt", "com1", "x.", "'..'", "\"a\\tb\"", "a?b", "' '", &"é".repeat(101)] {
        assert_says(&refused(&MINIMAL.replace("name: a", &format!("name: {name}"))), &["name"]);
    }
    read(&MINIMAL.replace("name: a", &format!("name: {}", "é".repeat(100))));
}

#[test]
fn byte_order_mark_and_windows_line_ends_are_fine_and_other_encodings_are_refused_in_words() {
    let text = format!("\u{FEFF}{MINIMAL}").replace('\n', "\r\n");
    assert_eq!(load(text.as_bytes(), "c.yaml", &[]).unwrap().config.name, "a");
    let mut cyrillic = MINIMAL.as_bytes().to_vec();
    cyrillic.extend(b"trigger_word: \xEA\xEE\xF2\n");
    assert_says(&format!("{:#}", load(&cyrillic, "c.yaml", &[]).unwrap_err()), &["c.yaml:5", "save the file as UTF-8"]);
    assert_says(&format!("{:#}", load(b"\xFF\xFEn\0", "c.yaml", &[]).unwrap_err()), &["UTF-16"]);
}

#[test]
fn paths_are_trimmed_and_home_is_expanded() {
    let home = std::env::var("HOME").unwrap();
    assert_eq!(with("output: ' /data/x '").training_folder, Path::new("/data/x"));
    assert_eq!(with("output: ~/x").training_folder, Path::new(&home).join("x"));
    assert_eq!(with("output: $HOME/x").training_folder, Path::new(&home).join("x"));
    assert_eq!(with("output: rel/x").training_folder, Path::new("rel/x"));
    assert_eq!(with("output: rel/x").run_folder(), Path::new("rel/x/a"));
}

#[test]
fn sizes_in_the_memory_budget() {
    for (text, bytes) in [("8GB", 8_000_000_000), ("8 GiB", 8 << 30), ("1e3", 1000), ("0", 0), ("1.5k", 1500)] {
        assert_eq!(with(&format!("memory: {{budget: {text}}}")).memory.budget, bytes, "{text}");
    }
    assert_says(&refused_with("memory: {budget: lots}"), &["memory.budget", "lots"]);
}
