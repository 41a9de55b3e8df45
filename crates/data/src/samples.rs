//! Samples as decoders give them, row by row and channel beside channel, as one of the kinds of picture that `colour` knows.

use anyhow::{Context, Result};
use image::{DynamicImage, ImageBuffer};

pub enum Samples {
    Eight(Vec<u8>),
    Sixteen(Vec<u16>),
}

impl Samples {
    /// Appends a number in 0…1; what is beyond is cut to it.
    pub fn push(&mut self, value: f32) {
        let value = value.clamp(0.0, 1.0);
        match self {
            Samples::Eight(values) => values.push((value * 255.0 + 0.5) as u8),
            Samples::Sixteen(values) => values.push((value * 65535.0 + 0.5) as u16),
        }
    }
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
        self.colours() + usize::from(self.has_alpha())
    }

    pub fn colours(self) -> usize {
        if self.is_grey() { 1 } else { 3 }
    }

    pub fn is_grey(self) -> bool {
        matches!(self, Channels::Grey | Channels::GreyAlpha)
    }

    pub fn has_alpha(self) -> bool {
        matches!(self, Channels::GreyAlpha | Channels::Rgba)
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
