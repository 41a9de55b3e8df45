//! JPEG XL, as a bare codestream or in its container, by the decoder of the browsers.
//!
//! The decoder turns the picture upright and divides colours by their alpha where the file multiplied them. Colours come out in the
//! file's own space, or in sRGB where that space is only a profile for a codec that works in a space of its own (XYB).

use crate::decode::{Upright, admit};
use crate::format::Format;
use crate::gate::DECODING;
use crate::samples::{Channels, Samples, picture};
use anyhow::{Result, anyhow, bail, ensure};
use jxl::api::{
    AlphaMode, Endianness, Event, ExtraChannel, JxlBasicInfo, JxlBitDepth, JxlColorEncoding, JxlColorProfile, JxlColorType, JxlDataFormat,
    JxlDecoder, JxlDecoderOptions, JxlOutputBuffer, JxlPixelFormat, JxlTransferFunction, ProfileLevel,
};

/// What the decoder holds of a picture for each of its samples, beside what it is asked for: measured, two to three.
const SAMPLE_BYTES: u64 = 4;

pub fn read(bytes: &[u8]) -> Result<Upright> {
    let frame = Frame::of(&decoder_of(bytes, None)?.0)?;
    let room = DECODING.enter(frame.held());
    // A frame may be larger than its picture, but not so that the room above means nothing.
    let (mut decoder, mut input) = decoder_of(bytes, Some(frame.samples() * 2 + (1 << 20)))?;
    decoder.set_pixel_format(frame.format()).map_err(damaged)?;
    let icc = profile(&decoder)?;
    let (samples, more) = frame.decode(&mut decoder, &mut input)?;
    let image = picture(samples, frame.channels, (frame.width, frame.height))?;
    let warnings = more.then(|| "animated: only the first frame is used".to_string()).into_iter().collect();
    Ok(Upright { image, icc, warnings, room })
}

fn damaged(error: jxl::error::Error) -> anyhow::Error {
    anyhow!("damaged JPEG XL file: {error}")
}

/// A decoder that has read the header, and the input behind it. Frames of more than `most_samples` are an error.
fn decoder_of(bytes: &[u8], most_samples: Option<u64>) -> Result<(JxlDecoder, &[u8])> {
    let mut options = JxlDecoderOptions::default();
    options.alpha_mode = AlphaMode::Unpremultiplied;
    options.max_profile_level = ProfileLevel::Main10;
    options.sample_limit = most_samples.map(|samples| usize::try_from(samples).unwrap_or(usize::MAX));
    let (mut decoder, mut input) = (JxlDecoder::new(options), bytes);
    step(&mut decoder, &mut input, None)?;
    Ok((decoder, input))
}

/// Reads to the next event; that the bytes end before it is an error.
fn step(decoder: &mut JxlDecoder, input: &mut &[u8], buffer: Option<&mut [JxlOutputBuffer]>) -> Result<Event> {
    match decoder.process(input, buffer, None).map_err(damaged)? {
        Event::NeedMoreInput { .. } => bail!("cut short: the end of the picture is missing"),
        event => Ok(event),
    }
}

/// The profile of the colours that come out, if they aren't sRGB's.
fn profile(decoder: &JxlDecoder) -> Result<Option<Vec<u8>>> {
    let curve = match decoder.embedded_color_profile().and_then(JxlColorProfile::transfer_function) {
        Some(JxlTransferFunction::PQ) => Some("PQ"),
        Some(JxlTransferFunction::HLG) => Some("HLG"),
        _ => None,
    };
    if let Some(curve) = curve {
        bail!("an HDR picture ({curve}), which can't be read here; convert it to PNG in sRGB");
    }
    let Some(profile) = decoder.output_color_profile() else { return Ok(None) };
    let srgb = [false, true].map(|grey| JxlColorProfile::Simple(JxlColorEncoding::srgb(grey)));
    if srgb.iter().any(|srgb| srgb.same_color_encoding(profile)) {
        return Ok(None);
    }
    Ok(profile.try_as_icc().map(|icc| icc.into_owned()))
}

/// What is asked for: the first frame, in as many bits as hold what the file says.
struct Frame {
    width: u32,
    height: u32,
    channels: Channels,
    is_deep: bool,
    extra_channels: usize,
}

impl Frame {
    fn of(decoder: &JxlDecoder) -> Result<Frame> {
        let info = decoder.basic_info().ok_or_else(|| anyhow!("damaged JPEG XL file: it has no header"))?;
        let (width, height) = info.size;
        admit(Format::JpegXl, width as u64, height as u64)?;
        let profile = decoder.embedded_color_profile();
        ensure!(!profile.is_some_and(JxlColorProfile::is_cmyk), "a JPEG XL picture in CMYK, which can't be read here; convert it to PNG");
        let is_grey = decoder.current_pixel_format().is_some_and(|format| format.color_type.is_grayscale());
        Ok(Frame {
            width: u32::try_from(width)?,
            height: u32::try_from(height)?,
            channels: Channels::new(if is_grey { 1 } else { 3 }, has_alpha(info)),
            is_deep: !matches!(info.bit_depth, JxlBitDepth::Int { bits_per_sample: ..=8 }),
            extra_channels: info.extra_channels.len(),
        })
    }

    /// Samples that the decoder counts for a frame of the picture's size.
    fn samples(&self) -> u64 {
        u64::from(self.width.max(16)) * u64::from(self.height) * (3 + self.extra_channels as u64)
    }

    /// Bytes that decoding takes, and what is made of the picture after it.
    fn held(&self) -> u64 {
        let pixels = u64::from(self.width) * u64::from(self.height);
        let bytes = self.channels.count() * if self.is_deep { 2 } else { 1 };
        self.samples() * SAMPLE_BYTES + pixels * (bytes as u64 + 4)
    }

    fn format(&self) -> JxlPixelFormat {
        let color_type = match self.channels {
            Channels::Grey => JxlColorType::Grayscale,
            Channels::GreyAlpha => JxlColorType::GrayscaleAlpha,
            Channels::Rgb => JxlColorType::Rgb,
            Channels::Rgba => JxlColorType::Rgba,
        };
        let deep = JxlDataFormat::U16 { endianness: Endianness::native(), bit_depth: 16 };
        let format = if self.is_deep { deep } else { JxlDataFormat::U8 { bit_depth: 8 } };
        // Alpha comes beside the colours; no other channel is wanted.
        JxlPixelFormat { color_type, color_data_format: Some(format), extra_channel_format: vec![None; self.extra_channels] }
    }

    /// The frame, and whether there are more.
    fn decode(&self, decoder: &mut JxlDecoder, input: &mut &[u8]) -> Result<(Samples, bool)> {
        step(decoder, input, None)?;
        let row = self.width as usize * self.channels.count();
        let mut samples = if self.is_deep {
            Samples::Sixteen(vec![0; row * self.height as usize])
        } else {
            Samples::Eight(vec![0; row * self.height as usize])
        };
        let buffer = match &mut samples {
            Samples::Eight(values) => JxlOutputBuffer::new(values, self.height as usize, row),
            Samples::Sixteen(values) => JxlOutputBuffer::new(bytemuck::cast_slice_mut(values), self.height as usize, row * 2),
        };
        match step(decoder, input, Some(&mut [buffer]))? {
            Event::FrameComplete { has_more_frames } => Ok((samples, has_more_frames)),
            event => bail!("damaged JPEG XL file: {event:?} where a picture should be"),
        }
    }
}

fn has_alpha(info: &JxlBasicInfo) -> bool {
    info.extra_channels.iter().any(|channel| channel.ec_type == ExtraChannel::Alpha)
}
