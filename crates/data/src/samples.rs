//! Samples as decoders give them, row by row and channel beside channel, as one of the kinds of picture that `colour` knows.

use anyhow::{Context, Result};
use image::{DynamicImage, ImageBuffer};

pub enum Samples {
    Eight(Vec<u8>),
    Sixteen(Vec<u16>),
}

/// What a pixel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Channels {
    Grey,
    GreyAlpha,
    Rgb,
    Rgba,
}

impl Channels {
    pub fn new(colours: usize, has_alpha: bool) -> Channels {
        match (colours, has_alpha) {
            (1, false) => Channels::Grey,
            (1, true) => Channels::GreyAlpha,
            (_, false) => Channels::Rgb,
            (_, true) => Channels::Rgba,
        }
    }

    pub fn count(self) -> usize {
        match self {
            Channels::Grey => 1,
            Channels::GreyAlpha => 2,
            Channels::Rgb => 3,
            Channels::Rgba => 4,
        }
    }
}

/// The samples as a picture; there must be enough of them.
pub fn picture(samples: Samples, channels: Channels, (width, height): (u32, u32)) -> Result<DynamicImage> {
    let image = match samples {
        Samples::Eight(values) => match channels {
            Channels::Grey => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageLuma8),
            Channels::GreyAlpha => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageLumaA8),
            Channels::Rgb => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageRgb8),
            Channels::Rgba => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageRgba8),
        },
        Samples::Sixteen(values) => match channels {
            Channels::Grey => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageLuma16),
            Channels::GreyAlpha => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageLumaA16),
            Channels::Rgb => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageRgb16),
            Channels::Rgba => ImageBuffer::from_raw(width, height, values).map(DynamicImage::ImageRgba16),
        },
    };
    image.context("a decoder gave too few samples")
}
