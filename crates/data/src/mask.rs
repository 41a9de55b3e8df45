//! How much each part of a picture counts: from its transparency, or from pictures of a second folder.
//!
//! A mask goes the way of its picture: turned upright by its own EXIF tag, cut to the same part, mirrored with it. It ends at the size
//! of the latents, each weight the mean of the pixels below it. White counts 1 and black `min_value` (the other way round if inverted);
//! then all weights of a picture are divided by their mean, so that a small subject counts as much as a large one, unless they are to
//! stay as they are. A mask that leaves nothing of its picture is an error here and not a weight of 0: such a picture would take the
//! place of one that teaches something.

use crate::bucket::{Bucket, fit};
use crate::cache::Key;
use crate::decode;
use crate::scan::{self, Picture, Rejected};
use anyhow::{Context, Result, anyhow, ensure};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::F32;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Part of the key of what is computed here.
pub const VERSION: &str = "mask box 2";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    White,
    Black,
}

/// What the weights of a picture come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// A mean of 1: each picture counts as much as one without a mask.
    Mean,
    /// What the mask says.
    AsIs,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaskSource {
    /// The picture's own alpha channel; a picture without one counts whole.
    Alpha,
    /// A folder with a picture of the same path and name (whatever the extension) for each; one that has none counts whole.
    Folder(PathBuf),
}

#[derive(Clone, Debug, PartialEq)]
pub struct MaskOptions {
    pub source: MaskSource,
    /// Which colour marks what counts.
    pub inside: Inside,
    /// What the rest counts, between 0 and 1.
    pub min_value: f32,
    pub level: Level,
    /// Pixels of a picture, in each direction, below one weight: what the VAE makes one latent of.
    pub factor: u32,
}

/// Where the mask of a picture is.
#[derive(Clone, Debug, PartialEq)]
pub enum Mask {
    Alpha,
    /// A picture of the same shape.
    File(Picture),
}

impl Mask {
    /// Key of a picture's weights in a bucket: everything that [`weights`] makes them from.
    pub fn key(&self, picture: &Picture, options: &MaskOptions, bucket: Bucket) -> Key {
        let (kind, content): (&[u8], _) = match self {
            Mask::Alpha => (b"alpha", &picture.content),
            Mask::File(mask) => (b"file", &mask.content),
        };
        Key::of(&[
            ("kind", b"mask"),
            ("of", kind),
            ("content", content),
            ("picture", format!("{}x{}", picture.width, picture.height).as_bytes()),
            ("bucket", bucket.to_string().as_bytes()),
            ("factor", &options.factor.to_le_bytes()),
            ("inside", format!("{:?}", options.inside).as_bytes()),
            ("min", &options.min_value.to_le_bytes()),
            ("level", format!("{:?}", options.level).as_bytes()),
            ("version", VERSION.as_bytes()),
        ])
    }
}

/// The masks of a folder, by the path of their pictures without its extension.
pub struct Masks {
    by_stem: BTreeMap<PathBuf, Result<Picture, Rejected>>,
    /// Those that belong to a picture.
    used: BTreeSet<PathBuf>,
}

fn stem(file: &str) -> PathBuf {
    Path::new(file).with_extension("")
}

/// The name under which the mask of a picture is looked for, for people.
pub fn wanted(picture: &Picture) -> String {
    format!("{}.*", stem(&picture.file).display())
}

impl Masks {
    pub fn read(folder: &Path) -> Result<Masks> {
        ensure!(folder.is_dir(), "mask_path: {} is no folder that is there; give the folder that the masks are in", folder.display());
        let found = scan::scan(folder, true).context("in mask_path")?;
        let mut by_stem: BTreeMap<PathBuf, Result<Picture, Rejected>> = BTreeMap::new();
        for rejected in found.rejected {
            by_stem.insert(stem(&rejected.file), Err(rejected));
        }
        for picture in found.pictures {
            let stem = stem(&picture.file);
            let file = picture.file.clone();
            if let Some(Ok(first)) = by_stem.insert(stem.clone(), Ok(picture)) {
                let reason = format!("{file} has the same name: remove one of them");
                by_stem.insert(stem, Err(Rejected { file: first.file, reason }));
            }
        }
        Ok(Masks { by_stem, used: BTreeSet::new() })
    }

    /// The mask of a picture; an error if it can't be used or has another shape.
    pub fn of(&mut self, picture: &Picture) -> Result<Option<Mask>> {
        let stem = stem(&picture.file);
        let Some(found) = self.by_stem.get(&stem) else { return Ok(None) };
        self.used.insert(stem);
        let mask = found.as_ref().map_err(|r| anyhow!("its mask {} can't be used: {}", r.file, r.reason))?;
        let (across, down) = (f64::from(mask.width) / f64::from(picture.width), f64::from(mask.height) / f64::from(picture.height));
        // One of its pixels more or less comes from rounding when it was scaled.
        let off = (across - down).abs() * f64::from(picture.width.min(picture.height));
        ensure!(
            off <= across.max(down).max(1.0),
            "its mask {} has another shape: {}×{} for {}×{}",
            mask.path.display(),
            mask.width,
            mask.height,
            picture.width,
            picture.height
        );
        Ok(Some(Mask::File(mask.clone())))
    }

    /// Whether any belongs to a picture.
    pub fn fit(&self) -> bool {
        !self.used.is_empty()
    }

    /// Names of those that belong to no picture.
    pub fn left_over(&self) -> Vec<&str> {
        let unused = self.by_stem.iter().filter(|(stem, _)| !self.used.contains(*stem));
        unused.map(|(_, found)| found.as_ref().map_or_else(|r| r.file.as_str(), |p| p.file.as_str())).collect()
    }
}

/// The weights of a picture as it is brought to `bucket`, not mirrored: `[height / factor, width / factor]`.
pub fn weights(picture: &Picture, mask: &Mask, options: &MaskOptions, bucket: Bucket) -> Result<Vec<f32>> {
    let file = if let Mask::File(mask) = mask { mask } else { picture };
    let decoded = decode::decode(&file.read()?, [0; 3]).with_context(|| file.path.display().to_string())?;
    let (width, height) = (decoded.rgb.width, decoded.rgb.height);
    let mut values: Vec<u8> = match mask {
        Mask::Alpha => decoded.alpha.unwrap_or_else(|| vec![255; width as usize * height as usize]),
        Mask::File(_) => decoded.rgb.pixels.chunks_exact(3).map(grey).collect(),
    };
    if options.inside == Inside::Black {
        // Before means are taken: those of zeros are exactly 0, which tells a mask that leaves nothing.
        values.iter_mut().for_each(|value| *value = 255 - *value);
    }
    let size = (bucket.width / options.factor, bucket.height / options.factor);
    let mut weights = shrink(&values, (width, height), picture, bucket, size)?;
    for weight in &mut weights {
        *weight = options.min_value + (1.0 - options.min_value) * weight.clamp(0.0, 1.0);
    }
    ensure!(
        weights.iter().any(|weight| *weight > 0.0),
        "its {} leaves nothing of it at {bucket}: all that is used of it counts 0 (mask_min_value above 0 would let it count)",
        if let Mask::File(mask) = mask { format!("mask {}", mask.path.display()) } else { "alpha channel".to_string() }
    );
    if options.level == Level::Mean {
        let mean = weights.iter().map(|w| f64::from(*w)).sum::<f64>() / weights.len() as f64;
        weights.iter_mut().for_each(|weight| *weight = (f64::from(*weight) / mean) as f32);
    }
    Ok(weights)
}

/// The weights of the mirrored picture.
pub fn mirror(weights: &mut [f32], width: usize) {
    weights.chunks_exact_mut(width).for_each(<[f32]>::reverse);
}

/// What making the weights of a picture takes: decoding its mask, and the mask's channel in bytes and in f32.
pub fn bytes(picture: &Picture, mask: &Mask) -> u64 {
    let source = match mask {
        Mask::Alpha => picture,
        Mask::File(mask) => mask,
    };
    source.decoding_bytes + 5 * u64::from(source.width) * u64::from(source.height)
}

/// Luma of Rec. 601.
fn grey(pixel: &[u8]) -> u8 {
    let [r, g, b] = [pixel[0], pixel[1], pixel[2]].map(u32::from);
    ((299 * r + 587 * g + 114 * b + 500) / 1000) as u8
}

/// The part of a mask that lies under what is used of its picture, as means in 0…1.
fn shrink(values: &[u8], mask: (u32, u32), picture: &Picture, bucket: Bucket, size: (u32, u32)) -> Result<Vec<f32>> {
    let pixels: Vec<F32> = values.iter().map(|v| F32::new(f32::from(*v) / 255.0)).collect();
    let (across, down) = (f64::from(mask.0) / f64::from(picture.width), f64::from(mask.1) / f64::from(picture.height));
    let [left, top, width, height] = fit((picture.width, picture.height), bucket).crop;
    let [left, width] = within(left * across, width * across, f64::from(mask.0));
    let [top, height] = within(top * down, height * down, f64::from(mask.1));
    let source = TypedImageRef::new(mask.0, mask.1, &pixels).context("a mask has too few pixels")?;
    let mut target = TypedImage::<F32>::new(size.0, size.1);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Box)).crop(left, top, width, height);
    Resizer::new().resize_typed(&source, &mut target, &options).context("a mask can't be brought to the size of the latents")?;
    Ok(target.pixels().iter().map(|pixel| pixel.0).collect())
}

/// A stretch cut to what there is: scaling it may have carried it over the edge by a rounding.
fn within(start: f64, length: f64, total: f64) -> [f64; 2] {
    let start = start.clamp(0.0, total);
    [start, length.min(total - start)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use image::{DynamicImage, GrayImage, ImageFormat, Luma, Rgba, RgbaImage};
    use std::io::Cursor;

    fn put(folder: &Path, name: &str, image: DynamicImage) {
        let mut out = Cursor::new(Vec::new());
        image.write_to(&mut out, ImageFormat::Png).unwrap();
        std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
        std::fs::write(folder.join(name), out.into_inner()).unwrap();
    }

    fn options(source: MaskSource) -> MaskOptions {
        MaskOptions { source, inside: Inside::White, min_value: 0.0, level: Level::Mean, factor: 8 }
    }

    /// White left of `edge`.
    fn half(width: u32, height: u32, edge: u32) -> DynamicImage {
        DynamicImage::ImageLuma8(GrayImage::from_fn(width, height, |x, _| Luma([if x < edge { 255 } else { 0 }])))
    }

    fn picture(folder: &Path, file: &str) -> Picture {
        scan::scan(folder, true).unwrap().pictures.into_iter().find(|p| p.file == file).unwrap()
    }

    #[test]
    fn masks_of_a_folder_are_found_by_name_and_go_the_way_of_their_picture() {
        let dir = tempfile::tempdir().unwrap();
        let (set, masks) = (dir.path().join("set"), dir.path().join("masks"));
        for name in ["deep/a.b.png", "bare.png", "wrong.png"] {
            put(&set, name, half(64, 32, 64));
        }
        put(&masks, "deep/a.b.webp", half(128, 64, 64));
        put(&masks, "wrong.png", half(64, 64, 32));
        let mut found = Masks::read(&masks).unwrap();
        assert!(found.of(&picture(&set, "bare.png")).unwrap().is_none());
        assert!(found.of(&picture(&set, "wrong.png")).unwrap_err().to_string().contains("another shape"));
        let picture = picture(&set, "deep/a.b.png");
        let mask = found.of(&picture).unwrap().unwrap();
        let rows = |bucket, flip, options: &MaskOptions| {
            let mut all = weights(&picture, &mask, options, bucket).unwrap();
            if flip {
                mirror(&mut all, bucket.width as usize / 8);
            }
            let mean = all.iter().sum::<f32>() / all.len() as f32;
            assert!((mean - 1.0).abs() < 1e-5, "mean {mean}");
            all[..bucket.width as usize / 8].to_vec()
        };
        let white = options(MaskSource::Folder(masks.clone()));
        assert_eq!(rows(Bucket::new(64, 32), false, &white), [2.0, 2.0, 2.0, 2.0, 0.0, 0.0, 0.0, 0.0]);
        assert_eq!(rows(Bucket::new(64, 32), true, &white), [0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0]);
        let black = MaskOptions { inside: Inside::Black, min_value: 0.5, ..white.clone() };
        let expected = [2.0 / 3.0, 4.0 / 3.0];
        let found = rows(Bucket::new(64, 32), false, &black);
        assert!((found[0] - expected[0]).abs() < 1e-5 && (found[7] - expected[1]).abs() < 1e-5, "{found:?}");
        // The middle square is used: half of it is white.
        assert_eq!(rows(Bucket::new(32, 32), false, &white), [2.0, 2.0, 0.0, 0.0]);
    }

    #[test]
    fn transparency_is_a_mask_and_one_that_leaves_nothing_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let clear = |edge: u32| RgbaImage::from_fn(32, 32, |x, _| Rgba([9, 9, 9, if x < edge { 255 } else { 0 }]));
        put(dir.path(), "half.png", DynamicImage::ImageRgba8(clear(8)));
        put(dir.path(), "none.png", DynamicImage::ImageRgba8(clear(0)));
        put(dir.path(), "full.png", DynamicImage::ImageRgba8(clear(32)));
        let speck = RgbaImage::from_fn(512, 512, |x, y| Rgba([9, 9, 9, u8::from((x, y) == (300, 20))]));
        put(dir.path(), "speck.png", DynamicImage::ImageRgba8(speck));
        put(dir.path(), "whole.png", half(32, 32, 1));
        let of = |file: &str, options: &MaskOptions| weights(&picture(dir.path(), file), &Mask::Alpha, options, Bucket::new(32, 32));
        let alpha = options(MaskSource::Alpha);
        assert_eq!(of("half.png", &alpha).unwrap()[..4], [4.0, 0.0, 0.0, 0.0]);
        assert_eq!(of("half.png", &MaskOptions { level: Level::AsIs, ..alpha.clone() }).unwrap()[..4], [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(of("whole.png", &alpha).unwrap(), [1.0; 16]);
        let inverted = MaskOptions { inside: Inside::Black, ..alpha.clone() };
        for (file, options) in [("none.png", &alpha), ("full.png", &inverted)] {
            let error = of(file, options).unwrap_err().to_string();
            assert!(error.contains("leaves nothing") && error.contains("mask_min_value"), "{error}");
        }
        // However little it is, it is not nothing; and what little there is of a mask counts.
        assert_eq!(of("none.png", &MaskOptions { min_value: 1e-6, ..alpha.clone() }).unwrap(), [1.0; 16]);
        assert_eq!(of("speck.png", &alpha).unwrap().iter().filter(|weight| **weight > 0.0).count(), 1);
    }

    #[test]
    fn masks_that_can_not_be_used_are_told_with_their_picture_and_those_of_no_picture_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let (set, masks) = (dir.path().join("set"), dir.path().join("masks"));
        for name in ["cut.png", "twice.png", "good.png"] {
            put(&set, name, half(32, 32, 16));
        }
        for name in ["cut.png", "twice.png", "twice.bmp", "good.png", "goood.png"] {
            put(&masks, name, half(32, 32, 16));
        }
        let whole = std::fs::read(masks.join("cut.png")).unwrap();
        std::fs::write(masks.join("cut.png"), &whole[..whole.len() - 20]).unwrap();
        let mut found = Masks::read(&masks).unwrap();
        let mut error = |file: &str| found.of(&picture(&set, file)).unwrap_err().to_string();
        let (cut, twice) = (error("cut.png"), error("twice.png"));
        assert!(cut.contains("its mask cut.png can't be used"), "{cut}");
        assert!(twice.contains("twice.bmp") && twice.contains("twice.png"), "{twice}");
        assert!(found.of(&picture(&set, "good.png")).unwrap().is_some());
        assert_eq!(found.left_over(), ["goood.png"]);
    }

    #[test]
    fn whatever_changes_weights_changes_their_key() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "a.png", half(32, 32, 8));
        put(dir.path(), "b.png", half(32, 32, 9));
        let [a, b] = ["a.png", "b.png"].map(|file| picture(dir.path(), file));
        let (square, plain) = (Bucket::new(32, 32), options(MaskSource::Alpha));
        let keys = [
            Mask::Alpha.key(&a, &plain, square),
            Mask::Alpha.key(&b, &plain, square),
            Mask::File(b.clone()).key(&a, &plain, square),
            Mask::File(b.clone()).key(&Picture { width: 64, ..a.clone() }, &plain, square),
            Mask::Alpha.key(&a, &plain, Bucket::new(32, 16)),
            Mask::Alpha.key(&a, &MaskOptions { factor: 4, ..plain.clone() }, square),
            Mask::Alpha.key(&a, &MaskOptions { inside: Inside::Black, ..plain.clone() }, square),
            Mask::Alpha.key(&a, &MaskOptions { min_value: 0.1, ..plain.clone() }, square),
            Mask::Alpha.key(&a, &MaskOptions { level: Level::AsIs, ..plain.clone() }, square),
        ];
        assert_eq!(keys.iter().collect::<BTreeSet<_>>().len(), keys.len());
    }
}
