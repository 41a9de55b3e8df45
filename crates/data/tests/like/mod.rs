//! Pictures beside what a reference decoder makes of them.

use super::Decoded;

/// The same size, and no value further from the other than `most`, nor on the mean further than `mean`.
#[track_caller]
pub fn assert_like(name: &str, found: &Decoded, expected: &Decoded, most: u8, mean: f64) {
    assert_eq!((found.rgb.width, found.rgb.height), (expected.rgb.width, expected.rgb.height), "{name}");
    assert_eq!(found.alpha.is_some(), expected.alpha.is_some(), "{name}");
    let values = |picture: &Decoded| [picture.rgb.pixels.clone(), picture.alpha.clone().unwrap_or_default()].concat();
    let away: Vec<u8> = values(found).iter().zip(values(expected)).map(|(a, b)| a.abs_diff(b)).collect();
    let (furthest, sum) = (*away.iter().max().unwrap(), away.iter().map(|away| f64::from(*away)).sum::<f64>());
    assert!(furthest <= most && sum / away.len() as f64 <= mean, "{name}: {furthest} at most, {} on the mean", sum / away.len() as f64);
}
