//! The hub's cache on disk: `models--owner--name/{refs,snapshots,blobs}`.

use super::select::needed;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

pub(super) enum Cached {
    Complete(PathBuf),
    /// What isn't there, for a message.
    Missing(String),
}

pub(super) fn model_dir(cache: &Path, id: &str) -> PathBuf {
    cache.join(format!("models--{}", id.replace('/', "--")))
}

/// The snapshot that `refs/main` points to, if it has everything that training needs.
pub(super) fn cached(cache: &Path, id: &str) -> Result<Cached> {
    let dir = model_dir(cache, id);
    let Ok(commit) = std::fs::read_to_string(dir.join("refs").join("main")) else {
        return Ok(Cached::Missing("it was never downloaded".to_owned()));
    };
    let commit = commit.trim();
    if !is_commit(commit) {
        return Ok(Cached::Missing("its refs/main is damaged".to_owned()));
    }
    let snapshot = dir.join("snapshots").join(commit);
    if !snapshot.is_dir() {
        return Ok(Cached::Missing("its snapshot is missing".to_owned()));
    }
    let files = listing(&snapshot)?;
    match needed(id, &files) {
        Err(error) => Ok(Cached::Missing(error.to_string())),
        Ok(needed) => match missing_shard(&snapshot, &needed) {
            Some(shard) => Ok(Cached::Missing(format!("{shard} is missing"))),
            None => Ok(Cached::Complete(entry(&snapshot, &needed))),
        },
    }
}

/// What to open: the checkpoint of a single-file repository, else the folder.
pub(super) fn entry(snapshot: &Path, needed: &[String]) -> PathBuf {
    match needed {
        [only] if !only.contains('/') => snapshot.join(only),
        _ => snapshot.to_owned(),
    }
}

/// A commit id: what server and cache may name a snapshot.
pub(super) fn is_commit(text: &str) -> bool {
    (7..=64).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Files two levels deep, with `/`. Links whose target is gone don't count.
fn listing(snapshot: &Path) -> Result<Vec<String>> {
    let list = |dir: &Path| -> Result<Vec<(String, PathBuf)>> {
        let context = || format!("can't list the folder {}", dir.display());
        let entries = std::fs::read_dir(dir).with_context(context)?.collect::<Result<Vec<_>, _>>().with_context(context)?;
        Ok(entries.into_iter().filter_map(|e| Some((e.file_name().to_str()?.to_owned(), e.path()))).collect())
    };
    let mut files = Vec::new();
    for (name, path) in list(snapshot)? {
        if path.is_dir() {
            files.extend(list(&path)?.into_iter().filter(|(_, path)| path.is_file()).map(|(inner, _)| format!("{name}/{inner}")));
        } else if path.is_file() {
            files.push(name);
        }
    }
    files.sort();
    Ok(files)
}

/// The first shard that an index names and that isn't there.
fn missing_shard(snapshot: &Path, needed: &[String]) -> Option<String> {
    let indexes = needed.iter().filter(|path| path.ends_with(".json") && path.contains(".index."));
    for index in indexes {
        let folder = index.split('/').next().unwrap_or_default();
        let text = base::fs::read_text(&snapshot.join(index)).unwrap_or_default();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let names = value.get("weight_map").and_then(|map| map.as_object()).into_iter().flatten().filter_map(|(_, file)| file.as_str());
        if let Some(name) = names.into_iter().find(|name| !snapshot.join(folder).join(name).is_file()) {
            return Some(format!("{folder}/{name}"));
        }
    }
    None
}
