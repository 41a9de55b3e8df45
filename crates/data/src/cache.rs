//! Tensors that are computed once: latents and text embeddings, in memory or on disk.
//!
//! The key is a hash of everything that the tensors depend on: the content of the picture, its crop, size and mirroring, the
//! version of the resampler, the identity of the model, the data type, and the version of this format. So an entry is right or is
//! not found; names and dates of files mean nothing. On disk an entry is one safetensors file that carries its key and a
//! checksum, written atomically: a run that is killed at any moment goes on where it was. A file that is damaged or of another
//! make is counted, told, and made again.

use crate::pixels::{self, Look};
use anyhow::{Context, Result, ensure};
use base::{DType, Shape};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Changes whenever the meaning of a key or the layout of a file does.
const FORMAT: &str = "velatura cache 1";

/// Largest entry that is read back.
const LARGEST_FILE: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// Hashes labelled parts; lengths are hashed too, so that parts can't run into each other.
    pub fn of(parts: &[(&str, &[u8])]) -> Key {
        let mut hash = Sha256::new();
        for (label, value) in std::iter::once(&("format", FORMAT.as_bytes())).chain(parts) {
            for piece in [label.as_bytes(), value] {
                hash.update((piece.len() as u64).to_le_bytes());
                hash.update(piece);
            }
        }
        Key(hash.finalize().into())
    }

    /// The latents of a picture (by the hash of its file) as it is brought to a bucket. `encoder` identifies the VAE's weights and
    /// settings.
    pub fn latents(content: &[u8; 32], look: Look, encoder: &str, dtype: DType) -> Key {
        Key::of(&[
            ("kind", b"latents"),
            ("picture", content),
            ("bucket", look.bucket.to_string().as_bytes()),
            ("flip", &[u8::from(look.flip)]),
            ("background", &look.background),
            ("pixels", pixels::VERSION.as_bytes()),
            ("encoder", encoder.as_bytes()),
            ("dtype", dtype.name().as_bytes()),
        ])
    }

    /// The embedding of a text. `encoder` identifies weights, tokenizer and settings.
    pub fn text(text: &str, encoder: &str, dtype: DType) -> Key {
        Key::of(&[("kind", b"text"), ("text", text.as_bytes()), ("encoder", encoder.as_bytes()), ("dtype", dtype.name().as_bytes())])
    }

    pub fn hex(&self) -> String {
        hex(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Named tensors in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub tensors: Vec<(String, Shape, Vec<f32>)>,
}

impl Entry {
    pub fn tensor(&self, name: &str) -> Option<(&Shape, &[f32])> {
        self.tensors.iter().find(|t| t.0 == name).map(|t| (&t.1, t.2.as_slice()))
    }
}

/// What a run did with a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Counts {
    /// Made in this run.
    pub encoded: u64,
    /// Found on disk from an earlier run.
    pub reused: u64,
    /// Found and not used: damaged, or of another format.
    pub unusable: u64,
}

/// Where entries are kept.
pub struct Cache {
    folder: Option<PathBuf>,
    /// Whether new entries go to the folder; else to memory.
    writes: bool,
    memory: Mutex<HashMap<Key, Arc<Entry>>>,
    encoded: AtomicU64,
    reused: AtomicU64,
    unusable: Mutex<Vec<String>>,
}

impl Cache {
    /// Entries live as long as the process, in its memory.
    pub fn in_memory() -> Cache {
        Cache {
            folder: None,
            writes: false,
            memory: Mutex::default(),
            encoded: AtomicU64::new(0),
            reused: AtomicU64::new(0),
            unusable: Mutex::default(),
        }
    }

    /// Entries live in a folder, which is made if it doesn't exist, and take no memory.
    pub fn on_disk(folder: &Path) -> Result<Cache> {
        base::fs::create_dir(folder).context("the cache needs its folder; set cache_dir to one that can be written")?;
        for inner in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            base::fs::sweep_parts(&inner.path());
        }
        Ok(Cache { folder: Some(folder.to_path_buf()), writes: true, ..Cache::in_memory() })
    }

    /// Entries of a folder are used if it is there, but nothing in it is touched: new ones live in memory.
    pub fn over(folder: &Path) -> Cache {
        Cache { folder: Some(folder.to_path_buf()), ..Cache::in_memory() }
    }

    /// The entry, or `None` if it has to be made.
    pub fn get(&self, key: &Key) -> Option<Arc<Entry>> {
        if let Some(entry) = self.memory.lock().unwrap_or_else(PoisonError::into_inner).get(key) {
            return Some(entry.clone());
        }
        let path = self.path(key)?;
        if let Some(taken) = taken(&path) {
            // First of all: it will be so in the next run too.
            let line = format!("{} is in the way; remove it, or what belongs there is made anew in every run", taken.display());
            self.unusable.lock().unwrap_or_else(PoisonError::into_inner).insert(0, line);
            return None;
        }
        match if path.exists() { read(&path, key) } else { return None } {
            Ok(entry) => Some(Arc::new(entry)),
            Err(error) => {
                self.unusable.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{error:#}"));
                None
            }
        }
    }

    /// Is the entry there, and whole? Then it counts as reused. For the pass that fills a cache.
    pub fn check(&self, key: &Key) -> bool {
        let found = self.get(key).is_some();
        self.reused.fetch_add(u64::from(found), Ordering::Relaxed);
        found
    }

    /// Keeps an entry that was just made. Values that are not finite are an error: they would poison every step.
    pub fn put(&self, key: &Key, entry: Entry) -> Result<Arc<Entry>> {
        for (name, shape, values) in &entry.tensors {
            ensure!(shape.elements() == values.len(), "`{name}` has {} values for the shape {shape}", values.len());
            let bad = values.iter().filter(|v| !v.is_finite()).count();
            ensure!(bad == 0, "{bad} of the {} values of `{name}` are not finite; nothing was cached", values.len());
        }
        let entry = Arc::new(entry);
        match self.path(key).filter(|path| self.writes && taken(path).is_none()) {
            Some(path) => write(&path, key, &entry)?,
            None => drop(self.memory.lock().unwrap_or_else(PoisonError::into_inner).insert(*key, entry.clone())),
        }
        self.encoded.fetch_add(1, Ordering::Relaxed);
        Ok(entry)
    }

    pub fn counts(&self) -> Counts {
        let unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner).len() as u64;
        Counts { encoded: self.encoded.load(Ordering::Relaxed), reused: self.reused.load(Ordering::Relaxed), unusable }
    }

    /// One line about entries (of `what`) that had to be made again, with the first reason.
    pub fn complaint(&self, what: &str) -> Option<String> {
        let unusable = self.unusable.lock().unwrap_or_else(PoisonError::into_inner);
        unusable
            .first()
            .map(|first| format!("{} cached {what} could not be used and are made again, the first because {first}", unusable.len()))
    }

    /// `<folder>/<first two digits>/<key>.safetensors`: no folder grows beyond what file systems like.
    fn path(&self, key: &Key) -> Option<PathBuf> {
        let name = key.hex();
        self.folder.as_ref().map(|folder| folder.join(&name[..2]).join(format!("{name}.safetensors")))
    }
}

/// What no entry can replace: a folder in its place, or something else in place of the folder that it belongs into.
fn taken(path: &Path) -> Option<&Path> {
    let parent = path.parent().filter(|parent| parent.symlink_metadata().is_ok() && !parent.is_dir());
    parent.or_else(|| path.is_dir().then_some(path))
}

fn write(path: &Path, key: &Key, entry: &Entry) -> Result<()> {
    let data: Vec<Vec<u8>> = entry.tensors.iter().map(|t| t.2.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let tensors = || entry.tensors.iter().zip(&data).map(|((name, shape, _), data)| (name.as_str(), shape.dims(), data.as_slice()));
    let views =
        tensors().map(|(name, shape, data)| Ok((name, TensorView::new(Dtype::F32, shape.to_vec(), data)?))).collect::<Result<Vec<_>>>()?;
    let metadata = HashMap::from([
        ("format".to_string(), FORMAT.to_string()),
        ("key".to_string(), key.hex()),
        ("checksum".to_string(), checksum(tensors())),
    ]);
    let file = safetensors::serialize(views, Some(metadata)).context("a cache entry can't be laid out as safetensors")?;
    if let Some(parent) = path.parent() {
        base::fs::create_dir(parent)?;
    }
    base::fs::write_atomic(path, &file)
}

fn read(path: &Path, key: &Key) -> Result<Entry> {
    let bytes = base::fs::read_regular(path, LARGEST_FILE)?;
    let (_, header) = SafeTensors::read_metadata(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
    let metadata = header.metadata().clone().unwrap_or_default();
    let field = |name: &str| metadata.get(name).map(String::as_str).unwrap_or_default();
    ensure!(field("format") == FORMAT, "{} is of another format", path.display());
    ensure!(field("key") == key.hex(), "{} holds the entry of another key", path.display());
    let file = SafeTensors::deserialize(&bytes).with_context(|| format!("{} is damaged", path.display()))?;
    let mut tensors = file.tensors();
    tensors.sort_by(|a, b| a.0.cmp(&b.0));
    let sum = checksum(tensors.iter().map(|(name, t)| (name.as_str(), t.shape(), t.data())));
    ensure!(sum == field("checksum"), "{} is damaged (its checksum is wrong)", path.display());
    let tensors = tensors.into_iter().map(|(name, t)| {
        let values = base::dtype::to_f32(DType::F32, t.data()).filter(|_| t.dtype() == Dtype::F32);
        Ok((name, Shape::new(t.shape()), values.with_context(|| format!("{} holds another data type", path.display()))?))
    });
    Ok(Entry { tensors: tensors.collect::<Result<_>>()? })
}

/// SHA-256 over names, shapes and values, in the order of the names.
fn checksum<'a>(tensors: impl Iterator<Item = (&'a str, &'a [usize], &'a [u8])>) -> String {
    let mut sorted: Vec<_> = tensors.collect();
    sorted.sort_by_key(|t| t.0);
    let mut hash = Sha256::new();
    for (name, shape, data) in sorted {
        hash.update(format!("{name} {shape:?} {} ", data.len()));
        hash.update(data);
    }
    hex(&hash.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bucket::Bucket;

    fn entry(value: f32) -> Entry {
        Entry {
            tensors: vec![("a".into(), Shape::from([1, 2, 2]), vec![value, 1.0, -2.5, 1e-30]), ("b".into(), Shape::from([1]), vec![7.0])],
        }
    }

    fn key(n: u8) -> Key {
        Key::latents(&[n; 32], look(64, false), "vae", DType::F32)
    }

    /// What the pass that fills a cache does with an entry.
    fn fill(cache: &Cache, key: &Key, entry: Entry) -> Arc<Entry> {
        if cache.check(key) { cache.get(key).unwrap() } else { cache.put(key, entry).unwrap() }
    }

    fn look(height: u32, flip: bool) -> Look {
        Look { bucket: Bucket::new(64, height), flip, background: [255; 3] }
    }

    #[test]
    fn keys_differ_in_everything_that_they_depend_on() {
        let keys = [
            key(0),
            key(1),
            Key::latents(&[0; 32], look(72, false), "vae", DType::F32),
            Key::latents(&[0; 32], look(64, true), "vae", DType::F32),
            Key::latents(&[0; 32], Look { background: [0; 3], ..look(64, false) }, "vae", DType::F32),
            Key::latents(&[0; 32], look(64, false), "other", DType::F32),
            Key::latents(&[0; 32], look(64, false), "vae", DType::BF16),
            Key::text("", "vae", DType::F32),
            Key::of(&[("a", b"bc"), ("d", b"")]),
            Key::of(&[("a", b"b"), ("cd", b"")]),
        ];
        let distinct: std::collections::BTreeSet<Key> = keys.into_iter().collect();
        assert_eq!(distinct.len(), 10);
    }

    #[test]
    fn a_second_run_finds_everything_and_encodes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        for (run, counts) in [(0, Counts { encoded: 3, ..Counts::default() }), (1, Counts { reused: 3, ..Counts::default() })] {
            let cache = Cache::on_disk(dir.path()).unwrap();
            for n in 0..3 {
                assert_eq!(*fill(&cache, &key(n), entry(f32::from(n))), entry(f32::from(n)), "run {run}");
            }
            assert_eq!(cache.counts(), counts);
        }
    }

    #[test]
    fn damaged_and_foreign_files_are_told_and_made_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::on_disk(dir.path()).unwrap();
        (0..5).for_each(|n| drop(cache.put(&key(n), entry(1.0)).unwrap()));
        let path = |n| cache.path(&key(n)).unwrap();
        let mut bytes = std::fs::read(path(0)).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        std::fs::write(path(0), &bytes).unwrap();
        std::fs::write(path(1), &bytes[..last / 2]).unwrap();
        std::fs::write(path(2), b"").unwrap();
        std::fs::copy(path(4), path(3)).unwrap();
        for n in 0..4 {
            assert!(cache.get(&key(n)).is_none(), "entry {n}");
        }
        assert_eq!(cache.counts().unusable, 4);
        assert!(cache.complaint("latents").unwrap().contains("checksum"));
        cache.put(&key(0), entry(1.0)).unwrap();
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(4)).is_some());
    }

    #[test]
    fn an_entry_whose_place_is_taken_by_a_folder_stays_in_memory_and_the_place_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::on_disk(dir.path()).unwrap();
        let path = |n| cache.path(&key(n)).unwrap();
        std::fs::create_dir_all(path(0).join("in it")).unwrap();
        // The folder of entries itself may be a file.
        std::fs::write(path(1).parent().unwrap(), "").unwrap();
        for n in 0..2 {
            assert!(!cache.check(&key(n)));
            cache.put(&key(n), entry(f32::from(n))).unwrap();
            assert_eq!(*cache.get(&key(n)).unwrap(), entry(f32::from(n)));
        }
        assert!(path(0).join("in it").is_dir() && path(1).parent().unwrap().is_file());
        assert_eq!(cache.counts(), Counts { encoded: 2, reused: 0, unusable: 2 });
        let told = cache.complaint("latents").unwrap();
        assert!(told.contains(&path(1).parent().unwrap().display().to_string()) && told.contains("remove it"), "{told}");
        cache.put(&key(2), entry(1.0)).unwrap();
        assert!(path(2).is_file());
    }

    #[test]
    fn a_cache_over_a_folder_reads_it_and_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::on_disk(dir.path()).unwrap();
        cache.put(&key(0), entry(0.0)).unwrap();
        let files = || walkdir::WalkDir::new(dir.path()).into_iter().count();
        let before = files();
        let over = Cache::over(dir.path());
        assert_eq!(*fill(&over, &key(0), entry(7.0)), entry(0.0));
        for _ in 0..2 {
            assert_eq!(*fill(&over, &key(1), entry(1.0)), entry(1.0));
        }
        assert_eq!(over.counts(), Counts { encoded: 1, reused: 2, unusable: 0 });
        assert!(files() == before && cache.get(&key(1)).is_none());
        assert!(Cache::over(&dir.path().join("missing")).get(&key(0)).is_none() && files() == before);
    }

    #[test]
    fn memory_keeps_entries_and_numbers_that_are_not_finite_are_refused() {
        let cache = Cache::in_memory();
        assert!(cache.get(&key(0)).is_none());
        cache.put(&key(0), entry(2.0)).unwrap();
        assert_eq!(cache.get(&key(0)).unwrap().tensor("a").unwrap().1[0], 2.0);
        assert!(cache.put(&key(1), entry(f32::NAN)).unwrap_err().to_string().contains("`a`"));
        assert!(cache.get(&key(1)).is_none());
    }
}
