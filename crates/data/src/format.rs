//! What a file is, by its content: the extension is only asked to tell a damaged picture from a file of another kind.

/// A kind of picture that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Avif,
    Bmp,
    Gif,
    Jpeg,
    JpegXl,
    Png,
    Tiff,
    WebP,
}

impl Format {
    pub fn name(self) -> &'static str {
        match self {
            Format::Avif => "AVIF",
            Format::Bmp => "BMP",
            Format::Gif => "GIF",
            Format::Jpeg => "JPEG",
            Format::JpegXl => "JPEG XL",
            Format::Png => "PNG",
            Format::Tiff => "TIFF",
            Format::WebP => "WebP",
        }
    }
}

/// What the first bytes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A picture that can be read.
    Picture(Format),
    /// A picture, or something in its place, that can't be; the text says what it is.
    Unreadable(&'static str),
    Unknown,
}

/// How many bytes [`sniff`] wants to see.
pub const HEAD: usize = 512;

/// Recognises a file by its first bytes.
pub fn sniff(head: &[u8]) -> Kind {
    let picture = |format| Kind::Picture(format);
    match head {
        [0x89, b'P', b'N', b'G', ..] => picture(Format::Png),
        [0xFF, 0xD8, 0xFF, ..] => picture(Format::Jpeg),
        [b'G', b'I', b'F', b'8', ..] => picture(Format::Gif),
        [b'B', b'M', _, _, _, _, 0, 0, 0, 0, ..] => picture(Format::Bmp),
        [b'I', b'I', 42 | 43, 0, ..] | [b'M', b'M', 0, 42 | 43, ..] => picture(Format::Tiff),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => picture(Format::WebP),
        [a, b, c, d, b'f', b't', b'y', b'p', brands @ ..] => iso_media([*a, *b, *c, *d], brands),
        [0xFF, 0x0A, ..] | [0, 0, 0, 0x0C, b'J', b'X', b'L', b' ', ..] => picture(Format::JpegXl),
        [0, 0, 0, 0x0C, b'j', b'P', b' ', b' ', ..] => Kind::Unreadable("a JPEG 2000 picture, which can't be read here; convert it to PNG"),
        [b'8', b'B', b'P', b'S', ..] => Kind::Unreadable("a Photoshop file, which can't be read here; convert it to PNG"),
        [0, 0, 1, 0, _, 0, ..] => Kind::Unreadable("an icon, which can't be read here; convert it to PNG"),
        [0x76, 0x2F, 0x31, 0x01, ..] => Kind::Unreadable("an OpenEXR picture, which can't be read here; convert it to PNG"),
        [b'q', b'o', b'i', b'f', ..] => Kind::Unreadable("a QOI picture, which can't be read here; convert it to PNG"),
        _ => text(head),
    }
}

/// AVIF, HEIC and videos share a container; its brands tell them apart. The first is followed by others that fit too.
fn iso_media(length: [u8; 4], brands: &[u8]) -> Kind {
    let first = brands.get(..4).unwrap_or_default();
    let end = (u32::from_be_bytes(length) as usize).saturating_sub(8).min(brands.len());
    // Behind the first brand stands its version.
    let mut others = brands[..end].chunks_exact(4).skip(2);
    let is_avif = |brand: &[u8]| brand == b"avif" || brand == b"avis";
    match first {
        b"mif1" | b"msf1" if others.any(is_avif) => Kind::Picture(Format::Avif),
        brand if is_avif(brand) => Kind::Picture(Format::Avif),
        [b'h', b'e', b'i' | b'v', _] | b"mif1" | b"msf1" => {
            Kind::Unreadable("an HEIC picture, which can't be read here; convert it to PNG")
        }
        _ => Kind::Unreadable("a video, which can't be read here; save the frames that you want as pictures"),
    }
}

fn text(head: &[u8]) -> Kind {
    let start = String::from_utf8_lossy(head).trim_start_matches('\u{FEFF}').trim_start().to_ascii_lowercase();
    if start.starts_with("version https://git-lfs") {
        return Kind::Unreadable("a git-lfs pointer, not the file itself; run `git lfs pull`");
    }
    if start.starts_with("<svg") || (start.starts_with("<?xml") && start.contains("<svg")) {
        return Kind::Unreadable("an SVG drawing, which can't be read here; convert it to PNG");
    }
    Kind::Unknown
}

/// Would a person call a file with this extension a picture or a video?
pub fn is_media_extension(extension: &str) -> bool {
    const MEDIA: [&str; 57] = [
        "png", "apng", "jpg", "jpeg", "jpe", "jfif", "webp", "gif", "bmp", "dib", "tif", "tiff", "avif", "heic", "heif", "hif", "jxl",
        "jp2", "svg", "psd", "ico", "tga", "exr", "hdr", "qoi", "dng", "cr2", "nef", "arw", "mp4", "mov", "webm", "mkv", "avi", "m4v",
        "mpg", "mpeg", "wmv", "pbm", "pgm", "ppm", "pnm", "pam", "pfm", "dds", "xcf", "kra", "jxr", "wdp", "j2k", "jpx", "pcx", "xpm",
        "eps", "raf", "rw2", "orf",
    ];
    MEDIA.contains(&extension.to_ascii_lowercase().as_str())
}

/// What a file of unknown content looks like, for the person who thought it a picture.
pub fn describe_unknown(head: &[u8]) -> &'static str {
    let start = String::from_utf8_lossy(head).trim_start().to_ascii_lowercase();
    if head.is_empty() {
        "empty (0 bytes)"
    } else if start.starts_with("<!doctype html") || start.starts_with("<html") {
        "a web page, not a picture (a download that failed?)"
    } else if head.iter().all(|b| *b == 0) {
        "all zeros where a picture should begin (a copy that failed?)"
    } else {
        "not a picture that is known here"
    }
}

/// Is a WebP file shorter than it says? Its decoder might not notice.
pub fn is_cut_short(format: Format, bytes: &[u8]) -> bool {
    format == Format::WebP && !riff_is_whole(bytes)
}

fn riff_is_whole(bytes: &[u8]) -> bool {
    let Some(size) = bytes.get(4..8) else { return false };
    let size = u32::from_le_bytes([size[0], size[1], size[2], size[3]]) as usize;
    bytes.len() >= size.saturating_add(8)
}
