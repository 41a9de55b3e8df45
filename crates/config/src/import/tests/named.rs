//! Files that other sources name: each is found, and read once.

use super::*;

const DATASET: &str = "[[datasets]]\nresolution = 512\n[[datasets.subsets]]\nimage_dir = \"/a\"\n";
const SETTINGS: &str = "pretrained_model_name_or_path = \"m\"\noutput_name = \"x\"\ndataset_config = \"ds.toml\"\n";

fn datasets(imported: &Imported) -> Vec<String> {
    let config = crate::load(imported.yaml.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}")).config;
    config.datasets.iter().map(|dataset| dataset.folder_path.display().to_string()).collect()
}

#[track_caller]
fn error(result: Result<Imported>, words: &[&str]) {
    let error = format!("{:#}", result.expect_err("it is accepted"));
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

#[test]
fn a_dataset_file_that_is_given_and_named_counts_once() {
    for order in [["tr.toml", "ds.toml"], ["ds.toml", "tr.toml"], ["ds.toml", "ds.toml"]] {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in [("tr.toml", SETTINGS), ("ds.toml", DATASET)] {
            std::fs::write(dir.path().join(name), content).unwrap();
        }
        let sources = order.map(|name| Source::File(dir.path().join(name)));
        assert_eq!(datasets(&import(&sources).unwrap()), ["/a"], "{order:?}");
    }
}

#[test]
fn a_second_dataset_file_is_refused_by_name() {
    let files = [("tr.toml", SETTINGS), ("other.toml", DATASET), ("ds.toml", DATASET)];
    error(try_import(&files, 2), &["other.toml", "ds.toml", "one dataset file"]);
    error(try_import(&[("a.toml", DATASET), ("b.toml", DATASET)], 2), &["a.toml", "b.toml", "one dataset file"]);
}

/// The command line counts before the file, and what it names before what the file names.
#[test]
fn a_dataset_file_named_on_the_command_line_takes_the_place_of_that_of_the_settings_file() {
    let script = "train_network.py --config_file=tr.toml --dataset_config=mine.toml";
    let mine = DATASET.replace("/a", "/b");
    let files = [("a.sh", script), ("tr.toml", SETTINGS), ("ds.toml", DATASET), ("mine.toml", mine.as_str())];
    assert_eq!(datasets(&try_import(&files, 1).unwrap()), ["/b"]);
}

#[test]
fn what_a_settings_file_names_is_found_beside_it_however_it_is_reached() {
    let dir = tempfile::tempdir().unwrap();
    let settings = format!("{SETTINGS}sample_prompts = \"prompts.txt\"\nsample_every_n_steps = 9\n");
    for (name, content) in [("tr.toml", settings.as_str()), ("ds.toml", DATASET), ("prompts.txt", "a cat\n")] {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let file = dir.path().join("tr.toml");
    let words = ["train_network.py".to_string(), format!("--config_file={}", file.display())].to_vec();
    for source in [Source::File(file), Source::Words(words)] {
        let imported = import(&[source]).unwrap();
        assert_eq!(datasets(&imported), ["/a"]);
        assert!(imported.yaml.contains("a cat"), "{}", imported.yaml);
    }
}

#[test]
fn a_missing_file_is_told_by_the_name_that_was_given() {
    let missing = |script: &str| try_import(&[("a.sh", script)], 1);
    error(missing("train_network.py --config_file=nofile.toml"), &["--config_file", "nofile.toml is not a file", "working folder"]);
    error(missing("train_network.py --config_file nofile"), &["nofile.toml is not a file"]);
    assert!(!format!("{:#}", missing("train_network.py --config_file=nofile.toml").unwrap_err()).contains("toml.toml"));
}

/// As in sd-scripts, which follows `--config_file` of the command line only.
#[test]
fn a_settings_file_that_names_itself_is_read_once() {
    let settings = format!("{SETTINGS}config_file = \"tr.toml\"\n");
    let imported = try_import(&[("tr.toml", settings.as_str()), ("ds.toml", DATASET)], 1).unwrap();
    noted(&imported.notes, &["tr.toml:4: config_file has no effect"]);
}
