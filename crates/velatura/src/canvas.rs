//! A picture to draw on: pixels, rectangles, other pictures, and letters of eight pixels.

use font8x8::UnicodeFonts;
use train::sample::Picture;

const PAPER: [u8; 3] = [255; 3];
pub const INK: [u8; 3] = [40; 3];

/// Width and height of a letter.
pub const LETTER: usize = 8;

pub struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Canvas {
    pub fn new(width: usize, height: usize) -> Canvas {
        Canvas { width, height, pixels: PAPER.repeat(width * height) }
    }

    pub fn set(&mut self, x: usize, y: usize, color: [u8; 3]) {
        if x < self.width && y < self.height {
            let at = (y * self.width + x) * 3;
            self.pixels[at..at + 3].copy_from_slice(&color);
        }
    }

    pub fn picture(&mut self, left: usize, top: usize, picture: &Picture, zoom: usize) {
        for y in 0..picture.height as usize * zoom {
            for x in 0..picture.width as usize * zoom {
                let at = ((y / zoom) * picture.width as usize + x / zoom) * 3;
                self.set(left + x, top + y, [picture.pixels[at], picture.pixels[at + 1], picture.pixels[at + 2]]);
            }
        }
    }

    /// Eight pixels a letter; letters that the font lacks are left blank.
    pub fn text(&mut self, left: usize, top: usize, text: &str) {
        for (i, letter) in text.chars().enumerate() {
            let glyph = font8x8::BASIC_FONTS.get(letter).unwrap_or_default();
            for (y, row) in glyph.iter().enumerate() {
                for x in (0..8).filter(|x| row >> x & 1 == 1) {
                    self.set(left + i * 8 + x, top + y, INK);
                }
            }
        }
    }

    /// Every pixel of a rectangle.
    pub fn fill(&mut self, [left, top]: [usize; 2], [width, height]: [usize; 2], color: [u8; 3]) {
        for y in top..top + height {
            for x in left..left + width {
                self.set(x, y, color);
            }
        }
    }

    pub fn finish(self) -> Picture {
        Picture { width: self.width as u32, height: self.height as u32, pixels: self.pixels, parameters: String::new() }
    }
}
