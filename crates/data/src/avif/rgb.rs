//! From luma and colour difference to red, green and blue (ITU-T H.273), in as many bits as the picture has.
//!
//! Colours that are sampled in halves are interpolated linearly between the middles of their pixels, as libavif does.

use crate::av1::{Layout, Picture};
use crate::cicp::Cicp;
use crate::samples::{Channels, Samples};
use anyhow::{Result, bail, ensure};

/// How the three planes become colours.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Matrix {
    /// They are green, blue and red.
    Identity,
    YCgCo,
    /// Shares of red and blue in luma.
    Luma {
        red: f32,
        blue: f32,
    },
}

impl Matrix {
    fn of(cicp: Cicp) -> Result<Matrix> {
        let luma = |red, blue| Matrix::Luma { red, blue };
        Ok(match (cicp.matrix, cicp.primaries) {
            (0, _) => Matrix::Identity,
            (1, _) | (12, 1) => luma(0.2126, 0.0722),
            (4, _) => luma(0.30, 0.11),
            (7, _) => luma(0.212, 0.087),
            (8, _) => Matrix::YCgCo,
            (9, _) | (12, 9) => luma(0.2627, 0.0593),
            // Nothing said: Rec. 601, as in JPEG files.
            (2 | 5 | 6, _) => luma(0.299, 0.114),
            (other, _) => bail!("an AVIF picture with the colour matrix {other}, which can't be read here; convert it to PNG"),
        })
    }

    /// From a pixel's planes, of which the latter two are around 0.
    fn apply(self, [y, u, v]: [f32; 3]) -> [f32; 3] {
        match self {
            Matrix::Identity => [v, y, u],
            Matrix::YCgCo => [y - u + v, y + u, y - u - v],
            Matrix::Luma { red, blue } => {
                let (r, b) = (y + 2.0 * (1.0 - red) * v, y + 2.0 * (1.0 - blue) * u);
                [r, (y - red * r - blue * b) / (1.0 - red - blue), b]
            }
        }
    }
}

/// Stored numbers to numbers in 0…1: subtract, then multiply.
#[derive(Clone, Copy)]
struct Scale {
    from: f32,
    factor: f32,
}

impl Scale {
    /// Of luma, grey, and whatever has no sign.
    fn unsigned(depth: u8, is_full_range: bool) -> Scale {
        let step = f32::from(1u16 << (depth - 8));
        if is_full_range {
            Scale { from: 0.0, factor: 1.0 / most(depth) }
        } else {
            Scale { from: 16.0 * step, factor: 1.0 / (219.0 * step) }
        }
    }

    /// Of colour differences.
    fn signed(depth: u8, is_full_range: bool) -> Scale {
        let step = f32::from(1u16 << (depth - 8));
        Scale { from: 128.0 * step, factor: if is_full_range { 1.0 / most(depth) } else { 1.0 / (224.0 * step) } }
    }

    fn apply(self, row: &mut [f32]) {
        row.iter_mut().for_each(|value| *value = (*value - self.from) * self.factor);
    }
}

fn most(depth: u8) -> f32 {
    f32::from((1u16 << depth) - 1)
}

/// The transparency of a picture, and whether its colours are multiplied by it already.
pub struct Alpha<'a> {
    pub picture: &'a Picture,
    pub is_multiplied: bool,
}

/// The colours of a picture, and its transparency beside them.
pub fn convert(picture: &Picture, cicp: Cicp, alpha: Option<Alpha>) -> Result<(Samples, Channels)> {
    let (layout, depth) = (picture.reply.layout, picture.reply.depth);
    let matrix = if layout == Layout::Grey { Matrix::Identity } else { Matrix::of(cicp)? };
    ensure!(
        matrix != Matrix::Identity || matches!(layout, Layout::Grey | Layout::Full),
        "damaged AVIF file: colours in halves without luma"
    );
    let channels = Channels::new(layout.planes(), alpha.is_some());
    let values = picture.width * picture.height * channels.count();
    let mut samples = if depth == 8 { Samples::Eight(Vec::with_capacity(values)) } else { Samples::Sixteen(Vec::with_capacity(values)) };
    let mut rows = Rows::new(picture, cicp, matrix);
    let mut cover = alpha.map(|alpha| Cover::new(alpha, picture.width));
    for y in 0..picture.height {
        rows.read(y);
        cover.iter_mut().for_each(|cover| cover.read(y));
        for x in 0..picture.width {
            let colours = rows.colours(x);
            let colours = cover.as_ref().map_or(colours, |cover| cover.divide(colours, x));
            colours[..channels.colours()].iter().for_each(|colour| samples.push(*colour));
            cover.iter().for_each(|cover| samples.push(cover.row[x]));
        }
    }
    Ok((samples, channels))
}

/// A row of transparency.
struct Cover<'a> {
    alpha: Alpha<'a>,
    scale: Scale,
    row: Vec<f32>,
}

impl Cover<'_> {
    fn new(alpha: Alpha, width: usize) -> Cover {
        let reply = alpha.picture.reply;
        Cover { alpha, scale: Scale::unsigned(reply.depth, reply.is_full_range), row: vec![0.0; width] }
    }

    fn read(&mut self, y: usize) {
        read_row(self.alpha.picture, 0, y, &mut self.row);
        self.scale.apply(&mut self.row);
    }

    /// Takes back that colours were multiplied. What is wholly transparent has no colour.
    fn divide(&self, colours: [f32; 3], x: usize) -> [f32; 3] {
        let alpha = self.row[x];
        if self.alpha.is_multiplied && alpha > 0.0 { colours.map(|colour| colour / alpha) } else { colours }
    }
}

/// A row of each plane, as wide as the picture.
struct Rows<'a> {
    picture: &'a Picture,
    matrix: Matrix,
    /// Of luma, and of colour.
    scales: [Scale; 2],
    planes: [Vec<f32>; 3],
    /// A row of a plane as it is stored, and the one that it is mixed with.
    stored: [Vec<f32>; 2],
}

impl Rows<'_> {
    fn new(picture: &Picture, cicp: Cicp, matrix: Matrix) -> Rows<'_> {
        let (row, depth) = (|| vec![0.0; picture.width], picture.reply.depth);
        let luma = Scale::unsigned(depth, cicp.is_full_range);
        let colour = if matrix == Matrix::Identity { luma } else { Scale::signed(depth, cicp.is_full_range) };
        Rows { picture, matrix, scales: [luma, colour], planes: [row(), row(), row()], stored: [row(), row()] }
    }

    fn colours(&self, x: usize) -> [f32; 3] {
        if self.picture.reply.layout == Layout::Grey {
            return [self.planes[0][x]; 3];
        }
        self.matrix.apply([self.planes[0][x], self.planes[1][x], self.planes[2][x]])
    }

    fn read(&mut self, y: usize) {
        let [luma, colour] = self.scales;
        read_row(self.picture, 0, y, &mut self.planes[0]);
        luma.apply(&mut self.planes[0]);
        for plane in 1..self.picture.reply.layout.planes() {
            self.read_colour(plane, y);
            colour.apply(&mut self.planes[plane]);
        }
    }

    fn read_colour(&mut self, plane: usize, y: usize) {
        let picture = self.picture;
        let (layout, size) = (picture.reply.layout, (picture.width, picture.height));
        let (width, height) = layout.plane(plane, size);
        let [near, far] = &mut self.stored;
        match layout {
            Layout::Full | Layout::Grey => read_row(picture, plane, y, &mut self.planes[plane]),
            Layout::Halves => {
                read_row(picture, plane, y, &mut near[..width]);
                widen(&near[..width], &mut self.planes[plane]);
            }
            Layout::Quarters => {
                read_row(picture, plane, y / 2, &mut near[..width]);
                read_row(picture, plane, neighbour(y, height), &mut far[..width]);
                near[..width].iter_mut().zip(far).for_each(|(near, far)| *near = 0.75 * *near + 0.25 * *far);
                widen(&near[..width], &mut self.planes[plane]);
            }
        }
    }
}

/// Of the halves, the second nearest to a place: the nearest is half of it.
fn neighbour(place: usize, halves: usize) -> usize {
    if place.is_multiple_of(2) { (place / 2).saturating_sub(1) } else { (place / 2 + 1).min(halves - 1) }
}

/// A row of halves to its full width.
fn widen(halves: &[f32], out: &mut [f32]) {
    for (x, value) in out.iter_mut().enumerate() {
        *value = 0.75 * halves[x / 2] + 0.25 * halves[neighbour(x, halves.len())];
    }
}

/// A row as it is stored.
fn read_row(picture: &Picture, plane: usize, y: usize, out: &mut [f32]) {
    let row = picture.row(plane, y);
    if picture.reply.sample_bytes() == 1 {
        out.iter_mut().zip(row).for_each(|(value, byte)| *value = f32::from(*byte));
    } else {
        out.iter_mut().zip(row.chunks_exact(2)).for_each(|(value, pair)| *value = f32::from(u16::from_ne_bytes([pair[0], pair[1]])));
    }
}
