//! Which runs use which entries of a cache folder, and removing those that none uses.
//!
//! The rule: a run that starts writes a list of all entries that it uses, `runs/<hash of its folder's path>`, before it looks for the
//! first of them. A list counts as long as the run's folder exists. An entry is stale if no list that counts names it. So entries of a
//! run that is going on, or could be resumed, are never removed. Other files in the folder are left alone.

use crate::cache::Key;
use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

const RUNS: &str = "runs";

/// A run, and how many of a cache's entries it uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Use {
    pub run: PathBuf,
    pub entries: usize,
}

/// What is in a cache folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Inventory {
    pub entries: usize,
    pub bytes: u64,
    pub runs: Vec<Use>,
    pub stale: usize,
    pub stale_bytes: u64,
    /// Are the stale ones gone?
    pub removed: bool,
}

/// What happens to stale entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    Count,
    Remove,
}

/// Writes down that the run in the folder `run` uses `keys` and no others.
pub fn claim(cache: &Path, run: &Path, keys: &BTreeSet<Key>) -> Result<()> {
    let run = std::path::absolute(run).with_context(|| format!("{} has no absolute path", run.display()))?;
    let folder = cache.join(RUNS);
    base::fs::create_dir(&folder)?;
    base::fs::sweep_parts(&folder);
    let _lock = lock(cache)?;
    let name = Key::of(&[("run", run.to_string_lossy().as_bytes())]).hex();
    let mut text = format!("{}\n", run.display());
    keys.iter().for_each(|key| text.push_str(&(key.hex() + "\n")));
    base::fs::write_atomic(&folder.join(&name[..16]), text.as_bytes())
}

/// Nobody writes lists while somebody removes entries. File systems without locks do without.
fn lock(cache: &Path) -> Result<File> {
    let path = cache.join(RUNS).join(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.with_context(|| format!("can't open {}", path.display()))?;
    let _ = file.lock();
    Ok(file)
}

/// Counts what is there and, if it is asked for, removes what is stale.
pub fn collect(cache: &Path, stale: Stale) -> Result<Inventory> {
    ensure!(cache.is_dir(), "{} is no folder", cache.display());
    let folder = cache.join(RUNS);
    ensure!(folder.is_dir(), "{} is no cache of velatura's: it has no folder `{RUNS}`", cache.display());
    let _lock = lock(cache)?;
    let (mut runs, mut used) = (Vec::new(), BTreeSet::new());
    for (path, run, keys) in lists(&folder)? {
        if run.is_dir() {
            runs.push(Use { run, entries: keys.len() });
            used.extend(keys);
        } else if stale == Stale::Remove {
            std::fs::remove_file(&path).with_context(|| format!("can't remove {}", path.display()))?;
        }
    }
    let mut inventory = Inventory { runs, removed: stale == Stale::Remove, ..Inventory::default() };
    for (name, (path, bytes)) in entries(cache) {
        inventory.entries += 1;
        inventory.bytes += bytes;
        if used.contains(&name) {
            continue;
        }
        inventory.stale += 1;
        inventory.stale_bytes += bytes;
        if stale == Stale::Remove {
            std::fs::remove_file(&path).with_context(|| format!("can't remove {}", path.display()))?;
        }
    }
    Ok(inventory)
}

/// Every list: its path, its run's folder, and the entries that it names.
fn lists(folder: &Path) -> Result<Vec<(PathBuf, PathBuf, BTreeSet<String>)>> {
    let mut lists = Vec::new();
    let files = std::fs::read_dir(folder).with_context(|| format!("can't read {}", folder.display()))?;
    for path in files.flatten().map(|entry| entry.path()).filter(|path| !is_hidden(path)) {
        let text = base::fs::read_text(&path)?;
        let mut lines = text.lines();
        let Some(run) = lines.next().filter(|line| !line.is_empty()) else {
            bail!("{} names no run: nothing is removed as long as it is there; remove it if you know that no run needs it", path.display())
        };
        lists.push((path.clone(), PathBuf::from(run), lines.map(str::to_string).collect()));
    }
    lists.sort();
    Ok(lists)
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// Files that are named as entries are: by key, with path and size.
fn entries(cache: &Path) -> BTreeMap<String, (PathBuf, u64)> {
    let files = walkdir::WalkDir::new(cache).min_depth(3).max_depth(3).into_iter().flatten().filter(|entry| entry.file_type().is_file());
    let entry = |entry: walkdir::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let key = name.strip_suffix(".safetensors").filter(|key| key.len() == 64 && key.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let shard = entry.path().parent()?.file_name()?.to_string_lossy().into_owned();
        let bytes = entry.metadata().map_or(0, |meta| meta.len());
        (key[..2] == shard).then(|| (key.to_string(), (entry.path().to_path_buf(), bytes)))
    };
    files.filter_map(entry).collect()
}

impl fmt::Display for Inventory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} entries, {}", self.entries, base::human(self.bytes))?;
        self.runs.iter().try_for_each(|run| writeln!(f, "  {} used by {}", run.entries, run.run.display()))?;
        let verb = if self.removed { "removed" } else { "stale (--collect removes them)" };
        write!(f, "{} {verb}, {}", self.stale, base::human(self.stale_bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::{Cache, Entry};
    use base::Shape;

    fn key(n: u8) -> Key {
        Key::of(&[("n", &[n])])
    }

    fn filled(folder: &Path) -> Cache {
        let cache = Cache::on_disk(&folder.join("latents")).unwrap();
        for n in 0..6 {
            let entry = Entry { tensors: vec![("a".into(), Shape::from([1]), vec![f32::from(n)])] };
            cache.put(&key(n), entry).unwrap();
        }
        cache
    }

    #[test]
    fn only_what_no_living_run_uses_is_removed_and_foreign_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("cache");
        let cache = filled(&folder);
        let run = |name: &str, keys: &[u8]| {
            std::fs::create_dir_all(dir.path().join(name)).unwrap();
            claim(&folder, &dir.path().join(name), &keys.iter().map(|n| key(*n)).collect()).unwrap();
        };
        run("a", &[0, 1]);
        run("b", &[1, 2]);
        run("gone", &[3]);
        std::fs::remove_dir(dir.path().join("gone")).unwrap();
        let foreign = ["latents/ab/notes.txt", "latents/cd/short.safetensors", "model.safetensors"];
        for name in foreign {
            std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.join(name), "mine").unwrap();
        }
        let counted = collect(&folder, Stale::Count).unwrap();
        assert_eq!((counted.entries, counted.stale, counted.runs.len()), (6, 3, 2));
        assert!((0..6).all(|n| cache.get(&key(n)).is_some()) && counted.stale_bytes * 2 == counted.bytes);
        assert_eq!(collect(&folder, Stale::Remove).unwrap().stale, 3);
        assert_eq!((0..6).map(|n| cache.get(&key(n)).is_some()).collect::<Vec<_>>(), [true, true, true, false, false, false]);
        assert!(foreign.iter().all(|name| folder.join(name).exists()));
        // A run that starts anew with other pictures gives up those of before.
        run("a", &[0]);
        run("b", &[2]);
        assert_eq!(collect(&folder, Stale::Remove).unwrap().stale, 1);
        assert_eq!(collect(&folder, Stale::Count).unwrap(), Inventory { removed: false, ..collect(&folder, Stale::Remove).unwrap() });
    }

    #[test]
    fn a_folder_that_is_no_cache_and_a_list_that_can_not_be_read_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert!(collect(&dir.path().join("none"), Stale::Remove).is_err());
        assert!(collect(dir.path(), Stale::Remove).unwrap_err().to_string().contains("no cache"));
        let cache = filled(dir.path());
        claim(dir.path(), dir.path(), &BTreeSet::new()).unwrap();
        std::fs::write(dir.path().join("runs/0123"), "").unwrap();
        assert!(collect(dir.path(), Stale::Remove).unwrap_err().to_string().contains("0123"));
        assert!(cache.get(&key(0)).is_some());
    }
}
