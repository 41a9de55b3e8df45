//! Identities of a base model's components, remembered between runs: hashing the encoders at every start would take longer than all the
//! rest before the first step.
//!
//! What was hashed once is trusted as long as each of the checkpoint's files has the same path, length, inode, and times of its last
//! changes: of its content, and (on Unix) of anything about it, a time that programs can't set back. A file that was changed a moment ago
//! is not remembered, as a further change might leave no trace in a coarse clock.

use anyhow::Result;
use sha2::{Digest, Sha256};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use weights::Checkpoint;

/// Changes whenever the meaning of an identity does.
const FORMAT: &str = "velatura identity 1";
/// Age from which a file's times tell every further change.
const SETTLED: Duration = Duration::from_secs(3);

/// Where identities are remembered.
pub struct Identities {
    folder: Option<PathBuf>,
    /// Whether new ones are written.
    writes: bool,
    settled: Duration,
}

/// What tells the versions of a checkpoint's files apart, and when the last of them changed.
#[derive(PartialEq)]
struct Stamp {
    text: String,
    changed: SystemTime,
}

impl Identities {
    /// Remembered in `folder`, which is made when it is needed.
    pub fn kept(folder: &Path) -> Identities {
        Identities { folder: Some(folder.to_path_buf()), writes: true, settled: SETTLED }
    }

    /// Found in `folder` if they are there; nothing in it is touched.
    pub fn over(folder: &Path) -> Identities {
        Identities { writes: false, ..Identities::kept(folder) }
    }

    /// Made anew each time.
    pub fn forgotten() -> Identities {
        Identities { folder: None, writes: false, settled: SETTLED }
    }

    /// [`Checkpoint::identity`], read back if it is known.
    pub fn of(&self, checkpoint: &Checkpoint, component: &str) -> Result<String> {
        let stamp = self.folder.as_ref().and_then(|_| Stamp::of(checkpoint));
        let path = self.folder.as_ref().zip(stamp.as_ref()).map(|(folder, stamp)| folder.join(stamp.key(component)));
        if let Some(known) = path.as_ref().and_then(|path| std::fs::read_to_string(path).ok()).filter(|text| is_identity(text)) {
            return Ok(known);
        }
        let identity = checkpoint.identity(component)?;
        // The same files after they were read, and old enough.
        let stamp = stamp.filter(|stamp| stamp.changed.elapsed().is_ok_and(|age| age >= self.settled));
        if let Some(path) = path.filter(|_| self.writes && stamp.is_some() && stamp == Stamp::of(checkpoint)) {
            // If it can't be, it is hashed again in the next run.
            let _ = path.parent().map_or(Ok(()), base::fs::create_dir).and_then(|()| base::fs::write_atomic(&path, identity.as_bytes()));
        }
        Ok(identity)
    }
}

fn is_identity(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit())
}

impl Stamp {
    /// None where the system does not say enough.
    fn of(checkpoint: &Checkpoint) -> Option<Stamp> {
        let mut stamp = Stamp { text: String::new(), changed: SystemTime::UNIX_EPOCH };
        for file in checkpoint.files() {
            let path = std::fs::canonicalize(file.path()).ok()?;
            let meta = std::fs::metadata(&path).ok()?;
            let (changed, more) = times(&meta)?;
            stamp.changed = stamp.changed.max(changed);
            stamp.text += &format!("{} {} {more}\n", path.display(), meta.len());
        }
        Some(stamp)
    }

    /// A name for the identity of one component of these files.
    fn key(&self, component: &str) -> String {
        let hash = Sha256::digest(format!("{FORMAT}\n{component}\n{}", self.text));
        hash.iter().map(|b| format!("{b:02x}")).collect()
    }
}

/// The time of a file's last change, and everything that differs between versions of it.
#[cfg(unix)]
fn times(meta: &Metadata) -> Option<(SystemTime, String)> {
    use std::os::unix::fs::MetadataExt;
    let time = |seconds: i64, nanoseconds: i64| {
        SystemTime::UNIX_EPOCH.checked_add(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?))
    };
    let changed = time(meta.ctime(), meta.ctime_nsec())?.max(time(meta.mtime(), meta.mtime_nsec())?);
    let numbers = [meta.dev() as i64, meta.ino() as i64, meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
    Some((changed, format!("{numbers:?}")))
}

#[cfg(not(unix))]
fn times(meta: &Metadata) -> Option<(SystemTime, String)> {
    let changed = meta.modified().ok()?;
    Some((changed, format!("{:?}", changed.duration_since(SystemTime::UNIX_EPOCH).ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tiny(dir: &Path) -> PathBuf {
        let path = dir.join("model");
        models::tiny::make_tiny("sd15", &path, 0).unwrap();
        path
    }

    fn remembered(dir: &Path) -> Vec<PathBuf> {
        std::fs::read_dir(dir).map(|entries| entries.flatten().map(|e| e.path()).collect()).unwrap_or_default()
    }

    #[test]
    fn a_known_identity_is_read_back_and_a_changed_file_is_hashed_again() {
        let dir = tempfile::tempdir().unwrap();
        let (path, folder) = (tiny(dir.path()), dir.path().join("identity"));
        let identities = Identities { settled: Duration::ZERO, ..Identities::kept(&folder) };
        let vae = |identities: &Identities| identities.of(&Checkpoint::open(&path).unwrap(), "vae").unwrap();
        let first = vae(&identities);
        let [note] = &remembered(&folder)[..] else { panic!("one note") };
        // What is written there is what comes back: nothing was hashed.
        std::fs::write(note, "0".repeat(64)).unwrap();
        assert_eq!(vae(&identities), "0".repeat(64));
        assert_eq!(vae(&Identities::over(&folder)), "0".repeat(64));
        assert_ne!(identities.of(&Checkpoint::open(&path).unwrap(), "text_encoder").unwrap(), "0".repeat(64));
        // A damaged note counts as none.
        std::fs::write(note, "0").unwrap();
        assert_eq!(vae(&identities), first);
        // Other bytes of the same length under the same name, with the old date put back.
        let file = path.join("vae/diffusion_pytorch_model.safetensors");
        let date = std::fs::metadata(&file).unwrap().modified().unwrap();
        let mut bytes = std::fs::read(&file).unwrap();
        let half = bytes.len() / 2;
        bytes[half..].iter_mut().for_each(|b| *b ^= 1);
        std::fs::write(&file, bytes).unwrap();
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(date).unwrap();
        #[cfg(unix)]
        assert_ne!(vae(&identities), first);
    }

    #[test]
    fn nothing_is_remembered_of_a_file_that_just_changed_or_where_nothing_may_be_written() {
        let dir = tempfile::tempdir().unwrap();
        let (path, folder) = (tiny(dir.path()), dir.path().join("identity"));
        let checkpoint = Checkpoint::open(&path).unwrap();
        let over = Identities { settled: Duration::ZERO, ..Identities::over(&folder) };
        for identities in [Identities::kept(&folder), over, Identities::forgotten()] {
            assert_eq!(identities.of(&checkpoint, "vae").unwrap(), checkpoint.identity("vae").unwrap());
            assert_eq!(remembered(&folder).len(), 0);
        }
    }
}
