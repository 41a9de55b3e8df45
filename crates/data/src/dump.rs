//! The exact pictures that are encoded, as PNG files for people (and tests) to look at.

use crate::dataset::{Dataset, Item};
use crate::decode::Rgb;
use crate::mask::MaskSource;
use crate::report::ImageRow;
use crate::scan;
use anyhow::{Context, Result, ensure};
use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

/// Longest stem in bytes: with what is added to it the name stays under the 255 that file systems allow.
const LONGEST_STEM: usize = 180;

impl Dataset {
    /// Writes every picture that a run can meet to `folder`, as it goes to the VAE. `done` hears of each.
    pub fn dump_pixels(&self, folder: &Path, mut done: impl FnMut(u64)) -> Result<()> {
        self.check_dump(folder)?;
        let views = self.views();
        for (count, ((item, flip), name)) in views.iter().zip(self.dump_names()).enumerate() {
            let path = folder.join(&name);
            if let Some(parent) = path.parent() {
                base::fs::create_dir(parent)?;
            }
            base::fs::write_atomic(&path, &png(&self.pixels(*item, *flip)?)?)?;
            done(count as u64 + 1);
        }
        Ok(())
    }

    /// Inside a dataset's folder the next scan would take the dump for pictures of the user's; inside one of masks it would replace them.
    fn check_dump(&self, folder: &Path) -> Result<()> {
        let whole = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_path_buf());
        let pictures = self.options.iter().map(|options| ("dataset", &options.folder));
        let masks = self.options.iter().filter_map(|options| match &options.mask.as_ref()?.source {
            MaskSource::Folder(folder) => Some(("mask", folder)),
            MaskSource::Alpha => None,
        });
        for (kind, users) in pictures.chain(masks).filter(|(_, users)| users.is_dir()) {
            ensure!(
                !whole(folder).starts_with(whole(users)),
                "dump_pixels: {} lies in the {kind} folder {}; choose a folder outside of it",
                folder.display(),
                users.display()
            );
        }
        Ok(())
    }

    /// Names the files that a dump makes of each used row of [`Dataset::rows`].
    pub fn name_dumps(&self, rows: &mut [ImageRow]) {
        let mut names = self.dump_names().into_iter().map(|name| scan::relative(Path::new(""), &name));
        let mut views = self.views().into_iter().peekable();
        for (item, row) in rows.iter_mut().filter(|row| row.used).enumerate() {
            while views.next_if(|view| view.0 == item).is_some() {
                row.dumped.extend(names.next());
            }
        }
    }

    /// The name of each view's file, below the folder: the picture's own with `.png`, behind its extension where others differ in that
    /// alone; its bucket where it comes in several; `_flipped` for mirrored ones; and a number if all that is not enough.
    fn dump_names(&self) -> Vec<PathBuf> {
        let file = |entry: usize| self.entries[entry].picture.file.as_str();
        let mut by_stem: HashMap<PathBuf, BTreeSet<&str>> = HashMap::new();
        (0..self.entries.len()).for_each(|entry| by_stem.entry(stem(file(entry))).or_default().extend([file(entry)]));
        let mut sizes: HashMap<usize, usize> = HashMap::new();
        self.items.iter().for_each(|item| *sizes.entry(item.entry).or_default() += 1);
        let mut taken = HashSet::new();
        let name = |(item, flip): (usize, bool)| {
            let Item { entry, bucket, .. } = self.items[item];
            let path = stem(file(entry));
            let path = if by_stem[&path].len() > 1 { inside(Path::new(file(entry))) } else { path };
            let size = if sizes[&entry] > 1 { format!("_{}x{}", bucket.width, bucket.height) } else { String::new() };
            let mirrored = if flip { "_flipped" } else { "" };
            let own = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let numbered = |n: usize| {
                let number = if n == 1 { String::new() } else { format!("_{n}") };
                path.with_file_name(format!("{own}{size}{mirrored}{number}.png"))
            };
            let free = (1..).map(numbered).find(|name| taken.insert(name.clone()));
            free.expect("some number is free")
        };
        self.views().into_iter().map(name).collect()
    }
}

/// A picture's path without its last extension.
fn stem(file: &str) -> PathBuf {
    inside(&Path::new(file).with_extension(""))
}

/// A path without ways out of the folder, its name cut to what file systems take.
fn inside(path: &Path) -> PathBuf {
    let inner: PathBuf = path.components().filter(|part| matches!(part, Component::Normal(_))).collect();
    let name = inner.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let mut end = name.len().min(LONGEST_STEM);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    inner.with_file_name(&name[..end])
}

fn png(rgb: &Rgb) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    let encoder = PngEncoder::new(&mut out);
    encoder.write_image(&rgb.pixels, rgb.width, rgb.height, ExtendedColorType::Rgb8).context("a picture can't be written as PNG")?;
    Ok(out)
}
