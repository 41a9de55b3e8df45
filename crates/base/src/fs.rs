//! The one door to files: every error names the path, and every write is atomic.

use anyhow::{Context, Result};
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Reads a whole file that is expected to be at most `limit` bytes.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let too_large = || format!("{} is larger than the {} allowed for it", path.display(), crate::human(limit));
    let file = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
    let stated = file.metadata().map_or(0, |about| about.len());
    anyhow::ensure!(stated <= limit, too_large());
    let mut bytes = Vec::new();
    file.take(limit + 1).read_to_end(&mut bytes).with_context(|| format!("can't read {}", path.display()))?;
    // It may have grown, or be no file that has a length.
    anyhow::ensure!(bytes.len() as u64 <= limit, too_large());
    Ok(bytes)
}

/// The same for files of a dataset: a pipe or a device among them would be waited for without an end.
pub fn read_regular(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let about = std::fs::metadata(path).with_context(|| format!("can't open {}", path.display()))?;
    anyhow::ensure!(about.is_file(), "{} is not a regular file", path.display());
    read(path, limit)
}

/// Reads a UTF-8 text file that is expected to be at most 64 MB.
pub fn read_text(path: &Path) -> Result<String> {
    String::from_utf8(read(path, 64_000_000)?).ok().with_context(|| format!("{} is not UTF-8 text", path.display()))
}

/// Makes a folder and its parents.
pub fn create_dir(path: &Path) -> Result<()> {
    std::fs::create_dir_all(path).with_context(|| format!("can't make the folder {}", path.display()))
}

/// Replaces `path` by `bytes`: temporary name in the same folder, sync, rename, sync of the folder.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    write_atomic_with(path, |out| out.write_all(bytes).context("write failed"))
}

/// Like [`write_atomic`], with the content streamed by `fill`; on an error the old file stays and the temporary one is removed.
pub fn write_atomic_with(path: &Path, fill: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    let part = part_path(path);
    let result = (|| {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(&part)?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        fill(&mut out)?;
        out.flush()?;
        out.get_ref().sync_all()?;
        drop(out);
        std::fs::rename(&part, path)?;
        sync_parent(path);
        Ok(())
    })();
    if result.is_err() {
        let _ = std::fs::remove_file(&part);
    }
    result.map_err(|e: anyhow::Error| e.context(format!("can't write {}", path.display())))
}

/// Removes temporary files that a killed process left in `folder`; those of living processes stay. Errors don't matter: it is litter.
pub fn sweep_parts(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid =
            name.strip_prefix('.').and_then(|n| n.strip_suffix(".part")).and_then(|n| n.rsplit_once('.')).map(|(_, pid)| pid.to_string());
        // Only where the system tells which processes live.
        let dead =
            pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && Path::new("/proc/self").exists() && !Path::new("/proc").join(pid).exists());
        if dead {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}

/// Renames a finished folder into place and syncs the parent.
pub fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to).with_context(|| format!("can't rename {} to {}", from.display(), to.display()))?;
    sync_parent(to);
    Ok(())
}

/// Bytes that this user may still write to the file system of `path`; none where the system does not say.
pub fn free_bytes(path: &Path) -> Option<u64> {
    let about = rustix::fs::statvfs(path).ok()?;
    Some(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Makes a rename durable. Not every file system can sync a folder, and the data itself is synced already: errors are ignored.
fn sync_parent(path: &Path) {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Ok(dir) = File::open(parent) {
        let _ = dir.sync_all();
    }
}

/// `.<name>.<pid>.part` beside `path`, cut so that it stays under the 255 bytes that file systems allow.
fn part_path(path: &Path) -> PathBuf {
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut end = name.len().min(200);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    path.with_file_name(format!(".{}.{}.part", &name[..end], std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_temporary_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        write_atomic(&path, b"old").unwrap();
        let failed = write_atomic_with(&path, |out| {
            out.write_all(b"half of the ne")?;
            anyhow::bail!("disk full")
        });
        assert!(format!("{:#}", failed.unwrap_err()).contains("a.txt"));
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn parts_of_dead_processes_are_swept_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let names = [".a.txt.4294967294.part", &format!(".b.txt.{}.part", std::process::id()), ".c.part", "d.4294967294.part"];
        names.iter().for_each(|name| std::fs::write(dir.path().join(name), "x").unwrap());
        sweep_parts(dir.path());
        let left: Vec<bool> = names.iter().map(|name| dir.path().join(name).exists()).collect();
        assert_eq!(left, [false, true, true, true]);
    }

    #[test]
    fn free_space_is_told_for_folders_that_exist() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()).is_some_and(|bytes| bytes > 0));
        assert_eq!(free_bytes(&dir.path().join("nowhere")), None);
    }

    #[test]
    fn reading_stops_at_the_limit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big");
        std::fs::write(&path, [0; 100]).unwrap();
        assert!(read(&path, 99).unwrap_err().to_string().contains("larger"));
        assert_eq!(read(&path, 100).unwrap().len(), 100);
    }
}
