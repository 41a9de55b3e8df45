//! The size that a picture is brought to. Pictures of one size can share a batch.
//!
//! The schemes that users know. All sides are multiples of a step (what the model needs) and at least one step.

use serde::{Serialize, Serializer};

/// Width and height in pixels; written as `[width, height]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bucket {
    pub width: u32,
    pub height: u32,
}

impl std::fmt::Display for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}×{}", self.width, self.height)
    }
}

impl Serialize for Bucket {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        [self.width, self.height].serialize(serializer)
    }
}

impl Bucket {
    pub fn new(width: u32, height: u32) -> Bucket {
        Bucket { width, height }
    }

    fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    fn ratio(self) -> f64 {
        f64::from(self.width) / f64::from(self.height)
    }
}

/// The size that a dataset is trained at: pictures are fitted to the area of this rectangle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resolution {
    pub width: u32,
    pub height: u32,
}

/// The side of a square.
impl From<u32> for Resolution {
    fn from(side: u32) -> Resolution {
        Resolution { width: side, height: side }
    }
}

impl Resolution {
    fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// Side of the square of the same area, rounded down.
    fn side(self) -> u32 {
        (self.area() as f64).sqrt() as u32
    }
}

/// As in a config: a number for a square, else `768x1152`.
impl Serialize for Resolution {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Resolution { width, height } = self;
        if width == height { serializer.serialize_u32(*width) } else { serializer.serialize_str(&format!("{width}x{height}")) }
    }
}

/// How sizes are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// ai-toolkit's: nearly every aspect ratio has its own size; a small picture stays small.
    Ratio,
    /// sd-scripts': a fixed list of sizes; a picture gets the one of nearest aspect ratio.
    List(Limits),
    /// sd-scripts' with `bucket_no_upscale`: a picture's own size, brought down to the area, in whole steps.
    OwnSize,
    /// The resolution itself for all.
    Fixed,
}

/// Shortest and longest side in sd-scripts' list. Where nothing is given they follow the resolution: 256 (half the resolution if that
/// is less) and 1024 (twice the resolution if that is more).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub min: Option<u32>,
    pub max: Option<u32>,
}

/// The bucket of a picture of `size` (width, height).
pub fn bucket(scheme: Scheme, size: (u32, u32), resolution: Resolution, step: u32) -> Bucket {
    let step = step.max(1);
    match scheme {
        Scheme::Ratio => by_ratio(size, resolution, step),
        Scheme::List(limits) => nearest_ratio(size, &list(resolution, limits, step)),
        Scheme::OwnSize => own_size(size, resolution, step),
        Scheme::Fixed => {
            let side = |length: u32| floor_to(f64::from(length), step);
            Bucket::new(side(resolution.width), side(resolution.height))
        }
    }
}

/// Largest enlargement that rounding a side up may cause: 512×511 becomes 512×512 rather than losing a whole step.
const ENLARGEMENT: f64 = 1.05;

/// Rounds both sides of the picture, scaled to the area (never enlarged), up or down to steps, and takes the combination within
/// the area whose own area is nearest; of two equal ones the one nearer in shape.
fn by_ratio((width, height): (u32, u32), resolution: Resolution, step: u32) -> Bucket {
    let limit = resolution.area();
    let target = (f64::from(width) * f64::from(height)).min(limit as f64);
    let scale = (target / (f64::from(width) * f64::from(height))).sqrt();
    let longest = (resolution.side() / step).max(1) * step * 4;
    let side = |length: u32| {
        let low = floor_to(f64::from(length) * scale, step).min(longest);
        [low, (low + step).min(longest)]
    };
    let shape = f64::from(width) / f64::from(height);
    let mut best: Option<(f64, f64, Bucket)> = None;
    for w in side(width) {
        for h in side(height) {
            let candidate = Bucket::new(w, h);
            let enlarged = fit((width, height), candidate).scale;
            if candidate.area() > limit || enlarged > ENLARGEMENT {
                continue;
            }
            let key = ((candidate.area() as f64 - target).abs(), (candidate.ratio() / shape).ln().abs(), candidate);
            if best.is_none_or(|b| (key.0, key.1) < (b.0, b.1)) {
                best = Some(key);
            }
        }
    }
    // Nothing qualifies only where the picture is smaller than a step: the smallest sizes are enlarged to.
    best.map_or_else(|| Bucket::new(side(width)[0], side(height)[0]), |b| b.2)
}

/// sd-scripts' list: for each width in steps the largest height within the area, both ways round, and the square.
pub fn list(resolution: Resolution, limits: Limits, step: u32) -> Vec<Bucket> {
    let side = resolution.side();
    let min = floor_to(f64::from(limits.min.unwrap_or(256.min(side / 2))), step);
    let max = limits.max.unwrap_or(1024.max(side.saturating_mul(2)));
    let max = floor_to(f64::from(max.max(resolution.width).max(resolution.height)), step);
    let square = floor_to(f64::from(side), step);
    let mut buckets = vec![Bucket::new(square, square)];
    for width in (min..=max).step_by(step as usize) {
        let height = floor_to((resolution.area() / u64::from(width)) as f64, step).min(max);
        if height >= min && u64::from(width) * u64::from(height) <= resolution.area() {
            buckets.extend([Bucket::new(width, height), Bucket::new(height, width)]);
        }
    }
    buckets.sort_unstable();
    buckets.dedup();
    buckets
}

fn nearest_ratio((width, height): (u32, u32), list: &[Bucket]) -> Bucket {
    let exact = Bucket::new(width, height);
    if list.contains(&exact) {
        return exact;
    }
    let difference = |b: &Bucket| (b.ratio() - exact.ratio()).abs();
    let nearest = list.iter().copied().min_by(|a, b| difference(a).total_cmp(&difference(b)));
    nearest.expect("the list always holds the square")
}

/// A picture beyond the area is brought down to it with one side a whole number of steps: the side that keeps the shape better. Then
/// (and for a smaller picture at once) what is beyond whole steps is cut off.
fn own_size((width, height): (u32, u32), resolution: Resolution, step: u32) -> Bucket {
    let (w, h) = (f64::from(width), f64::from(height));
    let whole = |(w, h): (f64, f64)| Bucket::new(floor_to(w, step), floor_to(h, step));
    if w * h <= resolution.area() as f64 {
        return whole((w, h));
    }
    let (shape, scale) = (w / h, (resolution.area() as f64 / (w * h)).sqrt());
    let across = f64::from(floor_to((w * scale).round(), step));
    let down = f64::from(floor_to((h * scale).round(), step));
    let candidates = [(across, across / shape), (down * shape, down)].map(|(w, h)| whole((w.round(), h.round())));
    let difference = |b: &Bucket| (b.ratio() - shape).abs();
    if difference(&candidates[0]) < difference(&candidates[1]) { candidates[0] } else { candidates[1] }
}

/// The largest multiple of `step` up to `length`, and at least one step.
fn floor_to(length: f64, step: u32) -> u32 {
    ((length / f64::from(step)).floor() as u32).max(1) * step
}

/// How a picture is laid onto its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// Bucket pixels per picture pixel; above 1 the picture is enlarged.
    pub scale: f64,
    /// Left, top, width, height of the part that is used, in pixels of the upright picture.
    pub crop: [f64; 4],
}

impl Fit {
    /// Share of the picture's area that is cut off.
    pub fn lost(&self, (width, height): (u32, u32)) -> f64 {
        1.0 - self.crop[2] * self.crop[3] / (f64::from(width) * f64::from(height))
    }
}

/// Covers the bucket: scale by the larger of the two quotients, cut equally on both sides of what hangs over.
pub fn fit((width, height): (u32, u32), bucket: Bucket) -> Fit {
    let (w, h) = (f64::from(width), f64::from(height));
    let (across, down) = (f64::from(bucket.width) / w, f64::from(bucket.height) / h);
    let scale = across.max(down);
    let used_width = if across >= down { w } else { (f64::from(bucket.width) / scale).min(w) };
    let used_height = if down >= across { h } else { (f64::from(bucket.height) / scale).min(h) };
    Fit { scale, crop: [(w - used_width) / 2.0, (h - used_height) / 2.0, used_width, used_height] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(scheme: Scheme, size: (u32, u32), resolution: u32, step: u32) -> Bucket {
        bucket(scheme, size, resolution.into(), step)
    }

    const LIST: Scheme = Scheme::List(Limits { min: None, max: None });

    #[test]
    fn ratio_buckets_stay_within_the_area_and_are_not_enlarged() {
        let ratio = |w, h, res, step| by(Scheme::Ratio, (w, h), res, step);
        assert_eq!(ratio(1024, 1024, 512, 64), Bucket::new(512, 512));
        assert_eq!(ratio(640, 480, 512, 64), Bucket::new(576, 448));
        assert_eq!(ratio(480, 640, 512, 64), Bucket::new(448, 576));
        assert_eq!(ratio(960, 1350, 512, 8), Bucket::new(432, 600));
        assert_eq!(ratio(100, 100, 512, 64), Bucket::new(64, 64));
        assert_eq!(ratio(512, 511, 512, 64), Bucket::new(512, 512));
        assert_eq!(ratio(16, 16, 512, 64), Bucket::new(64, 64));
        assert_eq!(ratio(64, 64, 64, 16), Bucket::new(64, 64));
    }

    #[test]
    fn any_picture_gets_a_bucket_of_whole_steps_that_it_covers() {
        let mut rng = base::Rng::new(5, "buckets", &[]);
        for _ in 0..20_000 {
            let exponent = |rng: &mut base::Rng| 2f64.powf(f64::from(rng.uniform()) * 14.0) as u32;
            let size = (exponent(&mut rng).max(1), exponent(&mut rng).max(1));
            let step = [4, 8, 16, 32, 64][rng.below(5) as usize];
            let square = 8 + rng.below(2000) as u32;
            let sides = [(square, square), (square, 8 + rng.below(2000) as u32)][rng.below(2) as usize];
            let resolution = Resolution { width: sides.0, height: sides.1 };
            let limits = Limits { min: [None, Some(128)][rng.below(2) as usize], max: [None, Some(1536)][rng.below(2) as usize] };
            let scheme = [Scheme::Ratio, Scheme::List(limits), Scheme::OwnSize, Scheme::Fixed][rng.below(4) as usize];
            let chosen = bucket(scheme, size, resolution, step);
            let case = format!("{scheme:?} {size:?} {resolution:?} {step} {chosen}");
            assert!(chosen.width >= step && chosen.width.is_multiple_of(step), "{case}");
            assert!(chosen.height >= step && chosen.height.is_multiple_of(step), "{case}");
            let fit = fit(size, chosen);
            let [left, top, width, height] = fit.crop;
            assert!(left >= 0.0 && top >= 0.0 && left + width <= f64::from(size.0) + 1e-6 && top + height <= f64::from(size.1) + 1e-6);
            assert!((width * fit.scale - f64::from(chosen.width)).abs() < 1e-6 * f64::from(chosen.width), "{case} {fit:?}");
            assert!((height * fit.scale - f64::from(chosen.height)).abs() < 1e-6 * f64::from(chosen.height), "{case} {fit:?}");
            let (steps_across, steps_down) = (size.0 >= step, size.1 >= step);
            if scheme == Scheme::OwnSize && steps_across && steps_down && chosen.width > step && chosen.height > step {
                assert!(fit.scale <= 1.0 + 1e-9, "enlarged: {case} {fit:?}");
            }
            if scheme == Scheme::Ratio && steps_across && steps_down && sides.0.min(sides.1) >= step {
                assert!(chosen.area() <= resolution.area().max(u64::from(step * 4 * resolution.side())), "{case}");
            }
        }
    }

    #[test]
    fn a_picture_turned_on_its_side_gets_its_bucket_turned_too() {
        let mut rng = base::Rng::new(6, "turned", &[]);
        for _ in 0..5_000 {
            let (w, h) = (64 + rng.below(3000) as u32, 64 + rng.below(3000) as u32);
            for scheme in [Scheme::Ratio, LIST, Scheme::OwnSize] {
                let (upright, turned) = (by(scheme, (w, h), 512, 64), by(scheme, (h, w), 512, 64));
                // sd-scripts compares shapes by quotients, which don't treat wide and tall alike.
                if scheme == Scheme::Ratio {
                    assert_eq!((upright.width, upright.height), (turned.height, turned.width), "{w}×{h}");
                }
                assert!(w.max(h) < 2 * w.min(h) || (w > h) == (upright.width > upright.height), "{scheme:?} {w}×{h} {upright}");
            }
        }
    }

    /// The list that sd-scripts makes for SD 1.5 with its defaults.
    #[test]
    fn the_fixed_list_holds_the_sizes_that_sd_scripts_users_know() {
        let list = list(512.into(), Limits { min: Some(256), max: Some(1024) }, 64);
        for (w, h) in [(512, 512), (768, 320), (320, 768), (640, 384), (448, 576), (1024, 256), (256, 1024), (832, 256)] {
            assert!(list.contains(&Bucket::new(w, h)), "{w}×{h} is not in {list:?}");
        }
        assert_eq!(nearest_ratio((1920, 1080), &list), Bucket::new(640, 384));
        assert_eq!(by(LIST, (300, 300), 512, 64), Bucket::new(512, 512));
    }

    #[test]
    fn limits_follow_a_resolution_beyond_the_usual_ones() {
        let wide = Resolution { width: 768, height: 1152 };
        assert_eq!(bucket(LIST, (768, 1152), wide, 64), Bucket::new(768, 1152));
        assert_eq!(bucket(LIST, (1536, 2304), wide, 64), Bucket::new(768, 1152));
        assert_eq!(by(LIST, (3000, 3000), 2048, 64), Bucket::new(2048, 2048));
        assert_eq!(bucket(Scheme::Fixed, (100, 100), wide, 64), Bucket::new(768, 1152));
        assert_eq!(by(Scheme::List(Limits { min: Some(512), max: Some(512) }), (900, 400), 768, 64), Bucket::new(768, 512));
    }

    /// sd-scripts' rule without enlarging, by hand: the picture is scaled to the area, one side rounded to steps, the other follows.
    #[test]
    fn without_enlarging_a_picture_keeps_its_own_size_in_whole_steps() {
        let own = |w, h, res| by(Scheme::OwnSize, (w, h), res, 64);
        assert_eq!(own(300, 200, 512), Bucket::new(256, 192));
        assert_eq!(own(1000, 1010, 1024), Bucket::new(960, 960));
        assert_eq!(own(2000, 2020, 1024), Bucket::new(960, 960));
        assert_eq!(own(2048, 2048, 1024), Bucket::new(1024, 1024));
        assert_eq!(own(1920, 1080, 512), Bucket::new(640, 384));
        assert_eq!(own(40, 4000, 512), Bucket::new(64, 3968));
        let fit = fit((1000, 1010), own(1000, 1010, 1024));
        assert!(fit.scale < 1.0 && (fit.lost((1000, 1010)) - 10.0 / 1010.0).abs() < 1e-9, "{fit:?}");
    }

    #[test]
    fn a_picture_and_its_bucket_are_both_upright_or_both_wide() {
        let tall = by(Scheme::Ratio, (960, 1350), 512, 64);
        let wide = by(Scheme::Ratio, (1350, 960), 512, 64);
        assert_eq!((tall.width, tall.height), (wide.height, wide.width));
        assert!(tall.height > tall.width);
        let fit = fit((100, 50), Bucket::new(50, 50));
        assert_eq!((fit.scale, fit.crop), (1.0, [25.0, 0.0, 50.0, 50.0]));
        assert_eq!(fit.lost((100, 50)), 0.5);
    }
}
