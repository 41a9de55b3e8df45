//! How much each part of a picture counts: from its transparency, or from pictures of a second folder.
//!
//! A mask goes the way of its picture: turned upright by its own EXIF tag, cut to the same part, mirrored with it. It ends at the size
//! of the latents, each weight the mean of the pixels below it. White counts 1 and black `min_value` (the other way round if inverted);
//! then all weights of a picture are divided by their mean, so that a small subject counts as much as a large one.

use crate::bucket::{Bucket, fit};
use crate::decode::{self, LARGEST_FILE};
use crate::scan::{self, Picture, Rejected};
use anyhow::{Context, Result, ensure};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::F32;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Part of the key of what is computed here.
pub const VERSION: &str = "mask box 1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inside {
    White,
    Black,
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
}

/// Where the mask of a picture is.
#[derive(Clone, Debug, PartialEq)]
pub enum Mask {
    Alpha,
    /// A picture of the same shape.
    File(Picture),
}

/// The masks of a folder, by the path of their pictures without its extension.
pub struct Masks {
    by_stem: BTreeMap<PathBuf, Picture>,
    /// Files in the folder that can't be used.
    pub rejected: Vec<Rejected>,
}

impl Masks {
    pub fn read(folder: &Path) -> Result<Masks> {
        let found = scan::scan(folder, true).context("in mask_path")?;
        let by_stem = found.pictures.into_iter().map(|picture| (Path::new(&picture.file).with_extension(""), picture));
        Ok(Masks { by_stem: by_stem.collect(), rejected: found.rejected })
    }

    /// The mask of a picture; an error if it has another shape.
    pub fn of(&self, picture: &Picture) -> Result<Option<Mask>> {
        let Some(mask) = self.by_stem.get(&Path::new(&picture.file).with_extension("")) else { return Ok(None) };
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
}

/// The weights of a picture as it is brought to `bucket`: `[height / factor, width / factor]`, with a mean of 1.
pub fn weights(picture: &Picture, mask: &Mask, options: &MaskOptions, view: (Bucket, bool), factor: u32) -> Result<Vec<f32>> {
    let (bucket, flip) = view;
    let (path, name) = match mask {
        Mask::Alpha => (&picture.path, "alpha channel"),
        Mask::File(mask) => (&mask.path, "mask"),
    };
    let bytes = base::fs::read(path, LARGEST_FILE)?;
    let decoded = decode::decode(&bytes, [0; 3]).with_context(|| path.display().to_string())?;
    let (width, height) = (decoded.rgb.width, decoded.rgb.height);
    let values: Vec<u8> = match mask {
        Mask::Alpha => decoded.alpha.unwrap_or_else(|| vec![255; width as usize * height as usize]),
        Mask::File(_) => decoded.rgb.pixels.chunks_exact(3).map(grey).collect(),
    };
    let size = (bucket.width / factor, bucket.height / factor);
    let mut weights = shrink(&values, (width, height), picture, bucket, size)?;
    for weight in &mut weights {
        let inside = if options.inside == Inside::White { *weight } else { 1.0 - *weight };
        *weight = options.min_value + (1.0 - options.min_value) * inside.clamp(0.0, 1.0);
    }
    if flip {
        weights.chunks_exact_mut(size.0 as usize).for_each(<[f32]>::reverse);
    }
    let mean = weights.iter().map(|w| f64::from(*w)).sum::<f64>() / weights.len().max(1) as f64;
    ensure!(mean > 1e-4, "the {name} of {} leaves nothing of it: all that is used of it counts 0", path.display());
    weights.iter_mut().for_each(|weight| *weight = (f64::from(*weight) / mean) as f32);
    Ok(weights)
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
        MaskOptions { source, inside: Inside::White, min_value: 0.0 }
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
        let found = Masks::read(&masks).unwrap();
        assert!(found.of(&picture(&set, "bare.png")).unwrap().is_none());
        assert!(found.of(&picture(&set, "wrong.png")).unwrap_err().to_string().contains("another shape"));
        let picture = picture(&set, "deep/a.b.png");
        let mask = found.of(&picture).unwrap().unwrap();
        let rows = |bucket, flip, options: &MaskOptions| {
            let all = weights(&picture, &mask, options, (bucket, flip), 8).unwrap();
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
        put(dir.path(), "whole.png", half(32, 32, 1));
        let of =
            |file: &str, options: &MaskOptions| weights(&picture(dir.path(), file), &Mask::Alpha, options, (Bucket::new(32, 32), false), 8);
        let alpha = options(MaskSource::Alpha);
        assert_eq!(of("half.png", &alpha).unwrap()[..4], [4.0, 0.0, 0.0, 0.0]);
        assert_eq!(of("whole.png", &alpha).unwrap(), [1.0; 16]);
        assert!(of("none.png", &alpha).unwrap_err().to_string().contains("leaves nothing"));
        assert_eq!(of("none.png", &MaskOptions { min_value: 0.1, ..alpha }).unwrap(), [1.0; 16]);
    }
}
