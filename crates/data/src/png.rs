//! The chunks of a PNG file, for what its decoder passes over.

use crate::cicp::Cicp;
use anyhow::{Context, Result, ensure};
use moxcms::{Chromaticity, ColorPrimaries, ColorProfile, ToneReprCurve, XyY};

/// The content of the first chunk of a kind, wherever in the file it stands.
pub fn chunk(bytes: &[u8], kind: [u8; 4]) -> Option<&[u8]> {
    let mut rest = bytes.get(8..)?;
    loop {
        let length = u32::from_be_bytes(rest.get(..4)?.try_into().ok()?) as usize;
        let content = rest.get(8..8usize.checked_add(length)?)?;
        if rest.get(4..8)? == kind {
            return Some(content);
        }
        rest = rest.get(length.checked_add(12)?..)?;
    }
}

/// The profile of a file's colours, and a warning about it: code points go before the profile that is embedded (`icc`), that before
/// the word that they are sRGB's, and that before gamma and primaries.
pub fn profile(bytes: &[u8], icc: Option<Vec<u8>>) -> Result<(Option<Vec<u8>>, Option<String>)> {
    let mut warning = None;
    if let Some(points) = chunk(bytes, *b"cICP") {
        match of_points(points)? {
            Ok(profile) => return Ok((profile, None)),
            Err(why) => warning = Some(format!("its code points of colours (cICP) are not used: {why:#}")),
        }
    }
    if icc.is_some() {
        return Ok((icc, warning));
    }
    if chunk(bytes, *b"iCCP").is_some() {
        return Ok((None, Some("its colour profile is not used: it is damaged".to_string())));
    }
    if chunk(bytes, *b"sRGB").is_some() {
        return Ok((None, warning));
    }
    match of_light(chunk(bytes, *b"gAMA"), chunk(bytes, *b"cHRM")) {
        Ok(profile) => Ok((profile, warning)),
        Err(why) => Ok((None, Some(format!("its gamma and primaries (gAMA, cHRM) are not used: {why:#}")))),
    }
}

/// The outer error refuses the picture, the inner one only its points.
fn of_points(points: &[u8]) -> Result<Result<Option<Vec<u8>>>> {
    let Some([primaries, transfer, matrix, range]) = points.first_chunk() else { return Ok(Err(anyhow::anyhow!("they are damaged"))) };
    let [primaries, transfer, matrix] = [*primaries, *transfer, *matrix].map(u16::from);
    let cicp = Cicp { primaries, transfer, matrix, is_full_range: *range == 1 };
    cicp.admit()?;
    if matrix != 0 || !cicp.is_full_range {
        return Ok(Err(anyhow::anyhow!("PNG files hold RGB in its full range, and they say otherwise")));
    }
    Ok(cicp.profile())
}

/// By the exponent of the curve and the primaries, each in 1/100000; nothing if they are sRGB's.
fn of_light(gamma: Option<&[u8]>, primaries: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
    /// What programs write for the curve of sRGB, which is none of an exponent.
    const SRGB: std::ops::RangeInclusive<f64> = 0.45..=0.46;
    let gamma = gamma.map(|bytes| numbers::<1>(bytes).map(|[gamma]| gamma)).transpose()?.filter(|gamma| !SRGB.contains(gamma));
    if gamma.is_none() && primaries.is_none() {
        return Ok(None);
    }
    let mut profile = ColorProfile::new_srgb();
    if let Some(gamma) = gamma {
        ensure!((0.1..=10.0).contains(&gamma), "there is no curve of gamma {gamma}");
        const STEPS: usize = 4096;
        let level = |i: usize| ((i as f64 / (STEPS - 1) as f64).powf(1.0 / gamma) * 65535.0).round() as u16;
        let curve = ToneReprCurve::Lut((0..STEPS).map(level).collect());
        (profile.red_trc, profile.green_trc, profile.blue_trc) = (Some(curve.clone()), Some(curve.clone()), Some(curve));
        profile.cicp = None;
    }
    if let Some(primaries) = primaries {
        let [white_x, white_y, rx, ry, gx, gy, bx, by] = numbers::<8>(primaries)?;
        let is_colour = |x: f64, y: f64| y > 0.0 && x + y <= 1.0;
        let area = (gx - rx) * (by - ry) - (bx - rx) * (gy - ry);
        let are_colours = [(white_x, white_y), (rx, ry), (gx, gy), (bx, by)].iter().all(|(x, y)| is_colour(*x, *y));
        ensure!(are_colours && area.abs() > 1e-3, "the primaries are no colours");
        let place = |x: f64, y: f64| Chromaticity::new(x as f32, y as f32);
        let primaries = ColorPrimaries { red: place(rx, ry), green: place(gx, gy), blue: place(bx, by) };
        profile.update_rgb_colorimetry(XyY::new(white_x, white_y, 1.0), primaries);
        profile.cicp = None;
    }
    profile.encode().map(Some).map_err(|error| anyhow::anyhow!("{error}"))
}

fn numbers<const N: usize>(bytes: &[u8]) -> Result<[f64; N]> {
    let (four, _) = bytes.as_chunks::<4>();
    let numbers = four.first_chunk::<N>().context("they are damaged")?;
    Ok(numbers.map(|number| f64::from(u32::from_be_bytes(number)) / 100_000.0))
}
