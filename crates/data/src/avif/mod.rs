//! AVIF: AV1 pictures in the container of HEIF (`container`), to pictures as `decode` wants them (`rgb`).
//!
//! The container is read here, since what is beside the stream decides what is seen: transparency is a picture of its own, a large
//! picture may be a grid of small ones, and turns, mirrors and crops are properties. Streams go to `av1`.

mod boxes;
mod container;
mod rgb;

use crate::av1::{Decoder, Picture};
use crate::cicp::Cicp;
use crate::decode::{Upright, admit};
use crate::format::Format;
use crate::gate::DECODING;
use crate::samples::picture;
use anyhow::{Context, Result, bail, ensure};
use boxes::{Reader, name};
use container::{Container, Mirror, Property};
use image::DynamicImage;
use rgb::{Alpha, convert};

/// What decoding takes for each pixel, here and in the decoder's process: planes of three deep channels twice, the picture, and
/// what is made of it.
const PIXEL_BYTES: u64 = 24;

pub fn read(bytes: &[u8]) -> Result<Upright> {
    let container = Container::read(bytes)?;
    let primary = container.primary;
    let (width, height) = container.size(primary)?;
    let pixels = admit(Format::Avif, width.into(), height.into())?;
    let room = DECODING.enter(pixels * PIXEL_BYTES);
    let mut decoder = Decoder::start()?;
    let colours = decode(&container, primary, &mut decoder)?;
    let alpha_item = container.alpha_of(primary);
    let alpha = alpha_item.map(|item| decode_alpha(&container, item, &colours, &mut decoder)).transpose();
    let alpha = alpha.context("its transparency can't be read")?;
    drop(decoder);
    let cicp = cicp(&container, primary, &colours)?;
    let (icc, warning) = profile(&container, primary, cicp)?;
    let is_multiplied = alpha_item.is_some_and(|alpha| container.references(*b"prem", primary).contains(&alpha));
    let alpha = alpha.as_ref().map(|picture| Alpha { picture, is_multiplied });
    let (samples, channels) = convert(&colours, cicp, alpha)?;
    let mut image = picture(samples, channels, (width, height))?;
    for property in container.properties(primary)? {
        image = transform(image, property)?;
    }
    let animated = container.is_animated.then(|| "animated: only the first frame is used".to_string());
    let warnings = animated.into_iter().chain(warning).collect();
    Ok(Upright { image, icc, warnings, room })
}

/// An item's picture, as it is before turns and crops.
fn decode(container: &Container, item: u32, decoder: &mut Decoder) -> Result<Picture> {
    match &container.kind(item)? {
        b"av01" => decode_stream(container, item, decoder),
        b"grid" => decode_grid(container, item, decoder),
        b"hvc1" | b"hev1" => bail!("an HEIC picture, which can't be read here; convert it to PNG"),
        kind => bail!("an AVIF picture of the kind {}, which can't be read here; convert it to PNG", name(*kind)),
    }
}

/// The transparency of a picture, which must be of its size.
fn decode_alpha(container: &Container, item: u32, colours: &Picture, decoder: &mut Decoder) -> Result<Picture> {
    let (width, height) = container.size(item)?;
    ensure!((width as usize, height as usize) == (colours.width, colours.height), "damaged AVIF file: it has another size");
    decode(container, item, decoder)
}

fn decode_stream(container: &Container, item: u32, decoder: &mut Decoder) -> Result<Picture> {
    let size = container.size(item)?;
    admit(Format::Avif, size.0.into(), size.1.into())?;
    let operating_point = container.properties(item)?.into_iter().find_map(|property| match property {
        Property::OperatingPoint(point) => Some(*point),
        _ => None,
    });
    decoder.decode(&container.data(item)?, size, operating_point.unwrap_or_default())
}

/// A picture that is cut into tiles of one size; what reaches over its right and lower edge is left out.
fn decode_grid(container: &Container, item: u32, decoder: &mut Decoder) -> Result<Picture> {
    let data = container.data(item)?;
    let mut data = Reader(&data);
    let (_, flags) = (data.byte()?, data.byte()?);
    let (rows, columns) = (usize::from(data.byte()?) + 1, usize::from(data.byte()?) + 1);
    let length = if flags & 1 == 1 { 4 } else { 2 };
    let size = (data.number(length)? as u32, data.number(length)? as u32);
    let tiles = container.references(*b"dimg", item);
    ensure!(tiles.len() == rows * columns, "damaged AVIF file: a grid of {rows} × {columns} tiles with {} of them", tiles.len());
    ensure!(size == container.size(item)?, "damaged AVIF file: a grid that has another size than declared");
    let tile = container.size(tiles[0])?;
    ensure!(covers(tile, (columns, rows), size), "damaged AVIF file: a grid whose tiles don't fit it");
    let mut whole: Option<Picture> = None;
    for (number, id) in tiles.iter().enumerate() {
        ensure!(&container.kind(*id)? == b"av01" && container.size(*id)? == tile, "damaged AVIF file: a grid of unequal tiles");
        let part = decode_stream(container, *id, decoder)?;
        let whole = whole.get_or_insert_with(|| blank(&part, size));
        ensure!(
            (part.reply.layout, part.reply.depth) == (whole.reply.layout, whole.reply.depth),
            "damaged AVIF file: a grid of unequal tiles"
        );
        lay(&part, whole, (number % columns, number / columns))?;
    }
    whole.context("damaged AVIF file: an empty grid")
}

/// Whether tiles fill a picture, and none lies outside it. What reaches over its edges is bounded: nobody asked for room for it.
fn covers(tile: (u32, u32), (columns, rows): (usize, usize), whole: (u32, u32)) -> bool {
    const MOST_OVER: u64 = 1 << 24;
    let pixels = |(width, height): (u32, u32)| u64::from(width) * u64::from(height);
    let fills = |side: u32, count: usize, whole: u32| {
        let (side, count, whole) = (u64::from(side), count as u64, u64::from(whole));
        side * count >= whole && side * (count - 1) < whole
    };
    fills(tile.0, columns, whole.0) && fills(tile.1, rows, whole.1) && pixels(tile) <= pixels(whole) + MOST_OVER
}

/// A picture of another size like `part`.
fn blank(part: &Picture, (width, height): (u32, u32)) -> Picture {
    let (width, height) = (width as usize, height as usize);
    Picture { width, height, reply: part.reply, samples: vec![0; part.reply.bytes((width, height))] }
}

/// Lays a tile into its place.
fn lay(part: &Picture, whole: &mut Picture, (column, row): (usize, usize)) -> Result<()> {
    let (layout, bytes) = (part.reply.layout, part.reply.sample_bytes());
    for plane in 0..layout.planes() {
        let (left, top) = layout.plane(plane, (column * part.width, row * part.height));
        let (part_width, part_height) = layout.plane(plane, (part.width, part.height));
        let (width, height) = layout.plane(plane, (whole.width, whole.height));
        let (wide, high) = (part_width.min(width.saturating_sub(left)), part_height.min(height.saturating_sub(top)));
        for y in 0..high {
            whole.row_mut(plane, top + y)[left * bytes..(left + wide) * bytes].copy_from_slice(&part.row(plane, y)[..wide * bytes]);
        }
    }
    Ok(())
}

/// How colours are written: what the container says goes before what the stream says.
fn cicp(container: &Container, item: u32, picture: &Picture) -> Result<Cicp> {
    let stored = container.properties(item)?.into_iter().find_map(|property| match property {
        Property::Cicp(cicp) => Some(*cicp),
        _ => None,
    });
    let reply = picture.reply;
    let (primaries, transfer, matrix) = (reply.primaries.into(), reply.transfer.into(), reply.matrix.into());
    Ok(stored.unwrap_or(Cicp { primaries, transfer, matrix, is_full_range: reply.is_full_range }))
}

/// The profile of the colours, if they aren't sRGB's, and a warning about it.
fn profile(container: &Container, item: u32, cicp: Cicp) -> Result<(Option<Vec<u8>>, Option<String>)> {
    cicp.admit()?;
    let icc = container.properties(item)?.into_iter().find_map(|property| match property {
        Property::Icc(icc) => Some(icc.to_vec()),
        _ => None,
    });
    if icc.is_some() {
        return Ok((icc, None));
    }
    Ok(match cicp.profile() {
        Ok(profile) => (profile, None),
        Err(why) => (None, Some(format!("its code points of colours (nclx) are not used: {why:#}"))),
    })
}

fn transform(image: DynamicImage, property: &Property) -> Result<DynamicImage> {
    Ok(match property {
        Property::Turn(1) => image.rotate270(),
        Property::Turn(2) => image.rotate180(),
        Property::Turn(3) => image.rotate90(),
        Property::Mirror(Mirror::Vertical) => image.flipv(),
        Property::Mirror(Mirror::Horizontal) => image.fliph(),
        Property::Crop(numbers) => crop(image, *numbers)?,
        _ => image,
    })
}

/// The clean aperture: its size, and how far its middle is from the picture's.
fn crop(image: DynamicImage, [width, width_of, height, height_of, right, right_of, down, down_of]: [u32; 8]) -> Result<DynamicImage> {
    let fraction = |numerator: f64, denominator: u32| numerator / f64::from(denominator);
    let (width, height) = (fraction(width.into(), width_of), fraction(height.into(), height_of));
    // Offsets have a sign.
    let (right, down) = (fraction((right as i32).into(), right_of), fraction((down as i32).into(), down_of));
    let left = (f64::from(image.width()) - width) / 2.0 + right;
    let top = (f64::from(image.height()) - height) / 2.0 + down;
    let fits = |start: f64, length: f64, whole: u32| start >= 0.0 && length >= 1.0 && start + length <= whole.into();
    let is_whole = [left, top, width, height].iter().all(|number| number.fract() == 0.0);
    ensure!(
        is_whole && fits(left, width, image.width()) && fits(top, height, image.height()),
        "damaged AVIF file: a crop that doesn't fit into it"
    );
    Ok(image.crop_imm(left as u32, top as u32, width as u32, height as u32))
}
