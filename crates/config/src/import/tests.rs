//! Whole imports: files and commands as people have them.

use super::*;
use crate::RunConfig;
use tempfile::TempDir;

mod commands;
mod files;
mod list;
mod named;
mod usage;

/// Writes files into a folder and imports the first `sources` of them.
#[track_caller]
fn try_import(files: &[(&str, &str)], sources: usize) -> Result<Imported> {
    let dir = tempfile::tempdir().unwrap();
    import_in(&dir, files, sources)
}

fn import_in(dir: &TempDir, files: &[(&str, &str)], sources: usize) -> Result<Imported> {
    for (name, content) in files {
        std::fs::write(dir.path().join(name), content).unwrap();
    }
    let sources: Vec<Source> = files[..sources].iter().map(|(name, _)| Source::File(dir.path().join(name))).collect();
    import(&sources)
}

#[track_caller]
fn imported(name: &str, content: &str) -> (RunConfig, Vec<String>) {
    let imported = try_import(&[(name, content)], 1).unwrap_or_else(|e| panic!("{e:#}"));
    let loaded = crate::load(imported.yaml.as_bytes(), "c.yaml", &[]).unwrap_or_else(|e| panic!("{e:#}\n{}", imported.yaml));
    (loaded.config, imported.notes)
}

#[track_caller]
fn refused(name: &str, content: &str, words: &[&str]) {
    let error = format!("{:#}", try_import(&[(name, content)], 1).expect_err("it is accepted"));
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[track_caller]
fn noted(notes: &[String], words: &[&str]) {
    for word in words {
        assert!(notes.iter().any(|note| note.contains(word)), "no note about {word}: {notes:#?}");
    }
}

const TRAIN: &str =
    "train_network.py --train_data_dir d --resolution 512 --pretrained_model_name_or_path m --output_name a --network_dim 4 ";
