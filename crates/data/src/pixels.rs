//! The exact picture that is encoded: cropped about its centre to the bucket's shape, resampled once, mirrored if asked.
//!
//! Scaling by max(bucket/picture) and cutting off what hangs over is the same as taking the centred part with the bucket's shape
//! and resampling that (Lanczos, three lobes): no rounding between the two, and no large picture in between.

use crate::bucket::{Bucket, fit};
use crate::decode::Rgb;
use anyhow::{Context, Result};
use fast_image_resize::images::{TypedImage, TypedImageRef};
use fast_image_resize::pixels::U8x3;
use fast_image_resize::{FilterType, ResizeAlg, ResizeOptions, Resizer};

/// Names what turns a decoded picture into these pixels; part of the key of whatever is computed from them.
pub const VERSION: &str = "sRGB centre-crop lanczos3 2";

/// The settings that change a picture's pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    pub bucket: Bucket,
    pub flip: bool,
    /// What transparent parts are laid over.
    pub background: [u8; 3],
}

/// Brings a picture to the size of a bucket.
pub fn to_bucket(picture: &Rgb, bucket: Bucket, flip: bool) -> Result<Rgb> {
    let fits = (picture.width, picture.height) == (bucket.width, bucket.height);
    let mut out = if fits { picture.clone() } else { resample(picture, bucket)? };
    if flip {
        mirror(&mut out);
    }
    Ok(out)
}

fn resample(picture: &Rgb, bucket: Bucket) -> Result<Rgb> {
    let [left, top, width, height] = fit((picture.width, picture.height), bucket).crop;
    // Of one pixel type: a resizer that finds the type at run time compiles the code of all of them.
    let source = TypedImageRef::<U8x3>::from_buffer(picture.width, picture.height, &picture.pixels)
        .context("a decoded picture has too few pixels")?;
    let mut pixels = vec![0; bucket.width as usize * bucket.height as usize * 3];
    let mut target = TypedImage::<U8x3>::from_buffer(bucket.width, bucket.height, &mut pixels).context("a bucket has too few pixels")?;
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Lanczos3)).crop(left, top, width, height);
    Resizer::new().resize_typed(&source, &mut target, &options).with_context(|| format!("can't bring the picture to {bucket}"))?;
    Ok(Rgb { width: bucket.width, height: bucket.height, pixels })
}

/// Exchanges left and right.
fn mirror(picture: &mut Rgb) {
    for row in picture.pixels.chunks_exact_mut(picture.width as usize * 3) {
        let (mut left, mut right) = (0, row.len() - 3);
        while left < right {
            (0..3).for_each(|c| row.swap(left + c, right + c));
            left += 3;
            right -= 3;
        }
    }
}

/// `[height, width, 3]`, 0…255 as −1…1.
pub fn to_f32(picture: &Rgb) -> Vec<f32> {
    picture.pixels.iter().map(|v| f32::from(*v) / 127.5 - 1.0).collect()
}
