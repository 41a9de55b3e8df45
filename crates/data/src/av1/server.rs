//! The side of the decoder: the hidden command that decodes what comes on its standard input.

use super::{Layout, Reply, Request};
use anyhow::{Context, Result, bail, ensure};
use rav1d::Dav1dResult;
use rav1d::include::dav1d::data::Dav1dData;
use rav1d::include::dav1d::dav1d::{Dav1dContext, Dav1dSettings};
use rav1d::include::dav1d::headers::{
    DAV1D_PIXEL_LAYOUT_I400, DAV1D_PIXEL_LAYOUT_I420, DAV1D_PIXEL_LAYOUT_I422, DAV1D_PIXEL_LAYOUT_I444, Dav1dPixelLayout,
};
use rav1d::include::dav1d::picture::Dav1dPicture;
use rav1d::src::lib::{
    dav1d_close, dav1d_data_create, dav1d_data_unref, dav1d_default_settings, dav1d_get_picture, dav1d_open, dav1d_picture_unref,
    dav1d_send_data,
};
use std::io::{ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

/// Decodes until the input ends. The first failure ends the process: whoever asks sees that nothing comes.
pub fn serve(mut input: impl Read, mut output: impl Write) -> Result<()> {
    loop {
        let mut head = [0; Request::BYTES];
        match input.read_exact(&mut head) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            read => read?,
        }
        let request = Request::from_bytes(head);
        limits::set(u64::from(request.width) * u64::from(request.height), request.length.into());
        let mut stream = Vec::new();
        (&mut input).take(request.length.into()).read_to_end(&mut stream)?;
        ensure!(stream.len() == request.length as usize, "the stream ends too early");
        answer(request, &stream, &mut output)?;
        output.flush()?;
    }
}

fn answer(request: Request, stream: &[u8], output: &mut impl Write) -> Result<()> {
    let mut decoder = Decoder::open(&request)?;
    let picture = decoder.decode(stream)?;
    ensure!((picture.width(), picture.height()) == (request.width as usize, request.height as usize), "another size than declared");
    let reply = picture.reply()?;
    output.write_all(&reply.to_bytes())?;
    for plane in 0..reply.layout.planes() {
        let (width, height) = reply.layout.plane(plane, (picture.width(), picture.height()));
        for y in 0..height {
            output.write_all(picture.row(plane, y, width * reply.sample_bytes())?)?;
        }
    }
    Ok(())
}

struct Decoder(Option<Dav1dContext>);

impl Decoder {
    fn open(request: &Request) -> Result<Decoder> {
        let mut settings = MaybeUninit::<Dav1dSettings>::uninit();
        // SAFETY: it is written to, and nothing is read before.
        let mut settings = unsafe {
            dav1d_default_settings(NonNull::from(&mut settings).cast());
            settings.assume_init()
        };
        // One thread, which is this one; pictures beside each other have processes beside each other.
        (settings.n_threads, settings.max_frame_delay) = (1, 1);
        (settings.all_layers, settings.operating_point) = (0, request.operating_point.into());
        settings.frame_size_limit = request.width.saturating_mul(request.height);
        let mut context = None;
        // SAFETY: both outlive the call.
        let result = unsafe { dav1d_open(Some(NonNull::from(&mut context)), Some(NonNull::from(&mut settings))) };
        ensure!(result.0 == 0, "the decoder doesn't open: {}", result.0);
        Ok(Decoder(context))
    }

    /// The last picture of the stream: where it is built up in layers, the finest.
    fn decode(&mut self, stream: &[u8]) -> Result<Picture> {
        let mut data = Data::of(stream)?;
        let mut last = None;
        while data.0.sz > 0 {
            // SAFETY: the context is open; the data are the decoder's own, and empty once it has taken them.
            let sent = unsafe { dav1d_send_data(self.0, Some(NonNull::from(&mut data.0))) };
            let has_taken = done(sent)?;
            let mut has_given = false;
            while let Some(picture) = self.picture()? {
                (last, has_given) = (Some(picture), true);
            }
            // What it neither takes nor makes pictures of, it never will.
            ensure!(has_taken || has_given, "the decoder is stuck");
        }
        last.context("the stream holds no picture")
    }

    fn picture(&mut self) -> Result<Option<Picture>> {
        let mut picture = Picture(Dav1dPicture::default());
        // SAFETY: the context is open, and the picture is empty.
        let result = unsafe { dav1d_get_picture(self.0, Some(NonNull::from(&mut picture.0))) };
        Ok(done(result)?.then_some(picture))
    }
}

/// Whether a call did what it should: not, if the decoder wants something else first.
fn done(result: Dav1dResult) -> Result<bool> {
    let error = std::io::Error::from_raw_os_error(-result.0);
    match result.0 {
        0 => Ok(true),
        _ if error.kind() == ErrorKind::WouldBlock => Ok(false),
        _ => Err(error.into()),
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: it was opened, and is closed once.
        unsafe { dav1d_close(Some(NonNull::from(&mut self.0))) };
    }
}

/// Bytes in the decoder's own keeping.
struct Data(Dav1dData);

impl Data {
    fn of(stream: &[u8]) -> Result<Data> {
        let mut data = Data(Dav1dData::default());
        // SAFETY: the data are empty.
        let room = unsafe { dav1d_data_create(Some(NonNull::from(&mut data.0)), stream.len()) };
        ensure!(!room.is_null(), "no memory for the stream");
        // SAFETY: there is room for as many bytes, in memory that is new.
        unsafe { ptr::copy_nonoverlapping(stream.as_ptr(), room, stream.len()) };
        Ok(data)
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // SAFETY: it holds what the decoder has made and not taken back, or nothing.
        unsafe { dav1d_data_unref(Some(NonNull::from(&mut self.0))) };
    }
}

struct Picture(Dav1dPicture);

impl Picture {
    fn width(&self) -> usize {
        self.0.p.w as usize
    }

    fn height(&self) -> usize {
        self.0.p.h as usize
    }

    fn reply(&self) -> Result<Reply> {
        let Some(header) = self.0.seq_hdr else { bail!("a picture without a header") };
        // SAFETY: the picture keeps its header alive.
        let header = unsafe { header.as_ref() };
        Ok(Reply {
            layout: layout(self.0.p.layout)?,
            depth: u8::try_from(self.0.p.bpc)?,
            primaries: header.pri as u8,
            transfer: header.trc as u8,
            matrix: header.mtrx as u8,
            is_full_range: header.color_range != 0,
        })
    }

    /// The first bytes of a row.
    fn row(&self, plane: usize, y: usize, bytes: usize) -> Result<&[u8]> {
        let Some(start) = self.0.data[plane] else { bail!("a picture without plane {plane}") };
        let stride = self.0.stride[usize::from(plane > 0)];
        ensure!(stride >= bytes as isize, "rows of {stride} bytes, {bytes} are wanted");
        // SAFETY: the decoder's planes hold as many rows of `stride` bytes as the layout says, and live as long as the picture.
        Ok(unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<u8>().add(y * stride as usize), bytes) })
    }
}

impl Drop for Picture {
    fn drop(&mut self) {
        // SAFETY: it is empty, or was handed out by the decoder and is given back once.
        unsafe { dav1d_picture_unref(Some(NonNull::from(&mut self.0))) };
    }
}

fn layout(layout: Dav1dPixelLayout) -> Result<Layout> {
    Ok(match layout {
        DAV1D_PIXEL_LAYOUT_I400 => Layout::Grey,
        DAV1D_PIXEL_LAYOUT_I420 => Layout::Quarters,
        DAV1D_PIXEL_LAYOUT_I422 => Layout::Halves,
        DAV1D_PIXEL_LAYOUT_I444 => Layout::Full,
        other => bail!("unknown sampling {other}"),
    })
}

/// What the system lets this process take.
#[cfg(unix)]
mod limits {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    /// The program itself, and what the decoder keeps whatever the size: measured, rounded up.
    const BASE_BYTES: u64 = 1 << 29;

    /// For each pixel: the planes of up to two bytes a sample, and what is known of each block.
    const PIXEL_BYTES: u64 = 24;

    /// Seconds of processor time for the first picture of a process and all after it.
    const SECONDS: u64 = 300;

    pub fn set(pixels: u64, stream_bytes: u64) {
        let bytes = BASE_BYTES + pixels * PIXEL_BYTES + 4 * stream_bytes;
        // Without limits (on a system that refuses them) a sound file is decoded all the same.
        for (resource, most) in [(Resource::Core, 0), (Resource::As, bytes), (Resource::Cpu, SECONDS)] {
            let maximum = getrlimit(resource).maximum;
            let _ = setrlimit(resource, Rlimit { current: Some(maximum.map_or(most, |hard| hard.min(most))), maximum });
        }
    }
}

#[cfg(not(unix))]
mod limits {
    pub fn set(_pixels: u64, _stream_bytes: u64) {}
}
