//! Large pictures through the autoencoder in overlapping tiles, blended linearly where they overlap, so that memory does not grow with
//! the picture. Pure planning and arithmetic on the host: the caller runs one tile at a time, all tiles of a picture being of one size.
//!
//! Blending is out = a + (b − a)·t: equal values stay equal to the last bit, so what no tile changes is exact.

use anyhow::{Result, ensure};

/// A map `[height, width, channels]` of one picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Map {
    pub height: usize,
    pub width: usize,
    pub channels: usize,
    pub data: Vec<f32>,
}

/// Sizes in latent pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiling {
    /// Largest side of a tile.
    pub tile: usize,
    /// Least overlap of neighbours.
    pub overlap: usize,
}

impl Default for Tiling {
    /// 512 pixels and a quarter of overlap at a factor of 8.
    fn default() -> Tiling {
        Tiling { tile: 64, overlap: 16 }
    }
}

/// Tiles along one axis: all of one length, evenly spread, the first at 0 and the last at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    pub length: usize,
    pub starts: Vec<usize>,
}

impl Axis {
    fn new(total: usize, tiling: Tiling) -> Axis {
        if total <= tiling.tile {
            return Axis { length: total, starts: vec![0] };
        }
        let steps = (total - tiling.tile).div_ceil(tiling.tile - tiling.overlap);
        let starts = (0..=steps).map(|i| (i * (total - tiling.tile) + steps / 2) / steps).collect();
        Axis { length: tiling.tile, starts }
    }
}

/// The tiles of a picture of a size in latent pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiles {
    pub rows: Axis,
    pub columns: Axis,
}

impl Tiles {
    /// `size`: height and width in latent pixels.
    pub fn new(size: [usize; 2], tiling: Tiling) -> Result<Tiles> {
        ensure!(tiling.overlap < tiling.tile, "tiles of {} latent pixels can't overlap by {}", tiling.tile, tiling.overlap);
        ensure!(size[0] > 0 && size[1] > 0, "an empty picture has no tiles");
        Ok(Tiles { rows: Axis::new(size[0], tiling), columns: Axis::new(size[1], tiling) })
    }

    /// Height and width of every tile, in latent pixels: the shape that a tile's graph is built for.
    pub fn tile_size(&self) -> [usize; 2] {
        [self.rows.length, self.columns.length]
    }

    pub fn count(&self) -> usize {
        self.rows.starts.len() * self.columns.starts.len()
    }
}

/// Encodes `pixels` tile by tile: `run` turns `[h·factor, w·factor, 3]` into `[h, w, 2C]`.
pub fn encode(pixels: &Map, factor: usize, tiling: Tiling, run: &mut dyn FnMut(&Map) -> Result<Map>) -> Result<Map> {
    ensure!(
        pixels.height.is_multiple_of(factor) && pixels.width.is_multiple_of(factor),
        "a picture of {}×{} pixels is no multiple of the VAE's factor {factor}",
        pixels.width,
        pixels.height
    );
    let tiles = Tiles::new([pixels.height / factor, pixels.width / factor], tiling)?;
    in_tiles(pixels, &tiles, factor, 1, run)
}

/// Decodes `latents` tile by tile: `run` turns `[h, w, C]` into `[h·factor, w·factor, 3]`.
pub fn decode(latents: &Map, factor: usize, tiling: Tiling, run: &mut dyn FnMut(&Map) -> Result<Map>) -> Result<Map> {
    let tiles = Tiles::new([latents.height, latents.width], tiling)?;
    in_tiles(latents, &tiles, 1, factor, run)
}

/// `before` and `after`: pixels per latent pixel in the source and in the result.
fn in_tiles(source: &Map, tiles: &Tiles, before: usize, after: usize, run: &mut dyn FnMut(&Map) -> Result<Map>) -> Result<Map> {
    let [height, width] = tiles.tile_size();
    let mut strips = Vec::new();
    for row in &tiles.rows.starts {
        let mut strip = Vec::new();
        for column in &tiles.columns.starts {
            let tile = source.cut([row * before, column * before], [height * before, width * before]);
            let result = run(&tile)?;
            let fits = result.height == height * after && result.width == width * after;
            ensure!(fits, "a tile of {width}×{height} latent pixels came back as {}×{}", result.width, result.height);
            strip.push(result.transposed());
        }
        strips.push(joined(strip, &tiles.columns, after).transposed());
    }
    Ok(joined(strips, &tiles.rows, after))
}

/// Joins maps from top to bottom: where one overlaps those before it, its share rises linearly.
fn joined(parts: Vec<Map>, axis: &Axis, scale: usize) -> Map {
    let mut parts = parts.into_iter();
    let mut out = parts.next().expect("an axis has at least one tile");
    for (part, start) in parts.zip(&axis.starts[1..]) {
        let (start, row) = (start * scale, out.width * out.channels);
        let overlap = out.height - start;
        for i in 0..overlap {
            let share = (i + 1) as f32 / (overlap + 1) as f32;
            let to = &mut out.data[(start + i) * row..][..row];
            to.iter_mut().zip(&part.data[i * row..]).for_each(|(a, b)| *a += (b - *a) * share);
        }
        out.data.extend_from_slice(&part.data[overlap * row..]);
        out.height = start + part.height;
    }
    out
}

impl Map {
    fn cut(&self, start: [usize; 2], size: [usize; 2]) -> Map {
        let width = size[1] * self.channels;
        let row = |i: usize| &self.data[((start[0] + i) * self.width + start[1]) * self.channels..][..width];
        Map { height: size[0], width: size[1], channels: self.channels, data: (0..size[0]).flat_map(|i| row(i).iter().copied()).collect() }
    }

    /// Rows become columns.
    fn transposed(&self) -> Map {
        let pixel = |i: usize, j: usize| &self.data[(i * self.width + j) * self.channels..][..self.channels];
        let data = (0..self.width).flat_map(|j| (0..self.height).flat_map(move |i| pixel(i, j).iter().copied())).collect();
        Map { height: self.width, width: self.height, channels: self.channels, data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ramp(height: usize, width: usize, channels: usize) -> Map {
        let data = (0..height * width * channels).map(|i| (i as f32 * 0.37).sin()).collect();
        Map { height, width, channels, data }
    }

    /// Each latent pixel becomes `factor`² equal pixels.
    fn enlarge(tile: &Map, factor: usize) -> Map {
        let pixel = |i: usize, j: usize| tile.cut([i / factor, j / factor], [1, 1]).data;
        let (height, width) = (tile.height * factor, tile.width * factor);
        let data = (0..height).flat_map(|i| (0..width).flat_map(move |j| pixel(i, j))).collect();
        Map { height, width, channels: tile.channels, data }
    }

    #[test]
    fn tiles_cover_every_axis_and_overlap_enough() {
        for total in 1..200 {
            for tiling in [Tiling { tile: 8, overlap: 2 }, Tiling { tile: 16, overlap: 0 }, Tiling { tile: 5, overlap: 4 }] {
                let axis = Axis::new(total, tiling);
                assert_eq!(axis.starts[0], 0);
                assert_eq!(axis.starts.last().unwrap() + axis.length, total);
                let enough = |w: &[usize]| w[1] > w[0] && w[0] + axis.length >= w[1] + tiling.overlap;
                assert!(axis.starts.windows(2).all(enough), "{total}: {axis:?}");
            }
        }
    }

    #[test]
    fn what_does_not_depend_on_the_tile_comes_back_exact() {
        let tiling = Tiling { tile: 6, overlap: 2 };
        let latents = ramp(13, 17, 4);
        let mut runs = 0;
        let decoded = decode(&latents, 2, tiling, &mut |tile| {
            runs += 1;
            assert_eq!((tile.height, tile.width), (6, 6));
            Ok(enlarge(tile, 2))
        });
        assert_eq!(decoded.unwrap(), enlarge(&latents, 2));
        assert_eq!(runs, Tiles::new([13, 17], tiling).unwrap().count());
        let pixels = ramp(24, 40, 3);
        let corner = |tile: &Map| {
            let data = (0..tile.height / 4).flat_map(|i| (0..tile.width / 4).flat_map(move |j| tile.cut([4 * i, 4 * j], [1, 1]).data));
            Map { height: tile.height / 4, width: tile.width / 4, channels: 3, data: data.collect() }
        };
        let encoded = encode(&pixels, 4, Tiling { tile: 4, overlap: 1 }, &mut |tile| Ok(corner(tile))).unwrap();
        assert_eq!(encoded, corner(&pixels));
    }

    #[test]
    fn tiles_that_disagree_meet_without_a_seam() {
        let mut level = 0.0;
        let flat = |value: f32, height, width| Map { height, width, channels: 1, data: vec![value; height * width] };
        let out = decode(&flat(0.0, 8, 20), 4, Tiling { tile: 12, overlap: 4 }, &mut |tile| {
            level += 1.0;
            Ok(flat(level, 4 * tile.height, 4 * tile.width))
        });
        let out = out.unwrap();
        assert_eq!((out.height, out.width, level), (32, 80, 2.0));
        let row = &out.data[..80];
        // Tiles 0..48 and 32..80: 16 pixels of overlap, so the step of 1 is spread over 17 differences.
        assert!(row.windows(2).all(|w| (0.0..=1.0 / 17.0 + 1e-6).contains(&(w[1] - w[0]))), "{row:?}");
        assert_eq!((row[0], row[79]), (1.0, 2.0));
    }

    #[test]
    fn a_picture_within_one_tile_is_run_once_and_untouched() {
        let latents = ramp(5, 9, 4);
        let mut runs = 0;
        let same = decode(&latents, 1, Tiling::default(), &mut |tile| {
            runs += 1;
            Ok(tile.clone())
        });
        assert_eq!((same.unwrap(), runs), (latents, 1));
    }

    #[test]
    fn impossible_tiles_are_refused() {
        assert!(Tiles::new([9, 9], Tiling { tile: 4, overlap: 4 }).is_err());
        let odd = ramp(9, 8, 3);
        assert!(encode(&odd, 8, Tiling::default(), &mut |t| Ok(t.clone())).unwrap_err().to_string().contains("8×9"));
    }
}
