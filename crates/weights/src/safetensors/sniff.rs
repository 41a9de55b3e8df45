//! What a file is when it is no safetensors file: one sentence, from its first bytes.

use std::path::Path;

/// The end of the sentence "<path> …", or `None` if the content is nothing well known.
pub(super) fn what_is(path: &Path, bytes: &[u8]) -> Option<String> {
    let start = &bytes[..bytes.len().min(1024)];
    let text = String::from_utf8_lossy(start);
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let lower = text.to_ascii_lowercase();
    if text.starts_with("version https://git-lfs") {
        return Some(lfs_pointer(text));
    }
    if ["<!doctype html", "<html", "<head", "<!-- html"].iter().any(|tag| lower.starts_with(tag)) {
        return Some(
            "is a web page (HTML), not a model: the download saved a login, licence or error page; download the file itself".to_owned(),
        );
    }
    if lower.starts_with("<?xml") {
        return Some("is an XML document (often a download service's error message), not a model".to_owned());
    }
    if let Some(kind) = MAGIC.iter().find(|(magic, _)| start.starts_with(magic)).map(|(_, kind)| *kind) {
        return Some(kind.sentence());
    }
    if start.len() > 12 && start.starts_with(b"RIFF") && &start[8..12] == b"WEBP" {
        return Some(Kind::Picture("WebP").sentence());
    }
    if start.len() > 262 && &start[257..262] == b"ustar" {
        return Some(Kind::Archive("tar").sentence());
    }
    if has_pickle_name(path) {
        return Some(Kind::Pickle.sentence());
    }
    if text.starts_with('{') || text.starts_with('[') {
        return Some("is JSON text, not a model; give the .safetensors file or the model's folder".to_owned());
    }
    if bytes.len() > 64 && start.iter().all(|b| *b == 0) {
        return Some("holds only zeros where its header should be: a download that never finished; download it again".to_owned());
    }
    None
}

/// Says how large the real file is, if the pointer knows.
fn lfs_pointer(text: &str) -> String {
    let size = text.lines().find_map(|line| line.strip_prefix("size ")).and_then(|n| n.trim().parse::<u64>().ok());
    let size = size.map(|n| format!(" of {}", base::human(n))).unwrap_or_default();
    format!("is a git-lfs pointer, not the file itself{size}: run `git lfs pull` in its repository, or download the file")
}

pub(crate) fn has_pickle_name(path: &Path) -> bool {
    let extension = path.extension().map(|e| e.to_string_lossy().to_ascii_lowercase());
    extension.is_some_and(|e| ["ckpt", "pt", "pth", "bin", "pkl", "pickle"].contains(&e.as_str()))
}

#[derive(Clone, Copy)]
enum Kind {
    Pickle,
    Gguf,
    Picture(&'static str),
    Archive(&'static str),
    Document(&'static str),
}

const MAGIC: &[(&[u8], Kind)] = &[
    (b"PK\x03\x04", Kind::Pickle),
    (b"\x80\x02", Kind::Pickle),
    (b"\x80\x03", Kind::Pickle),
    (b"\x80\x04\x95", Kind::Pickle),
    (b"\x80\x05\x95", Kind::Pickle),
    (b"GGUF", Kind::Gguf),
    (b"\x89PNG\r\n\x1a\n", Kind::Picture("PNG")),
    (b"\xff\xd8\xff", Kind::Picture("JPEG")),
    (b"GIF8", Kind::Picture("GIF")),
    (b"\x1f\x8b", Kind::Archive("gzip")),
    (b"7z\xbc\xaf\x27\x1c", Kind::Archive("7z")),
    (b"Rar!", Kind::Archive("RAR")),
    (b"\xfd7zXZ", Kind::Archive("xz")),
    (b"(\xb5/\xfd", Kind::Archive("zstd")),
    (b"\x89HDF", Kind::Document("HDF5")),
    (b"%PDF", Kind::Document("PDF")),
    (b"\x93NUMPY", Kind::Document("NumPy")),
];

impl Kind {
    fn sentence(self) -> String {
        match self {
            Kind::Pickle => "is a PyTorch pickle (.ckpt/.pt/.bin): pickles can run code when loaded, so it is never unpickled here; \
                             convert it to safetensors"
                .to_owned(),
            Kind::Gguf => "is a GGUF file (quantised weights of the ggml programs); give the safetensors checkpoint".to_owned(),
            Kind::Picture(name) => format!("is a {name} picture, not a model"),
            Kind::Archive(name) => format!("is a {name} archive, not a model; unpack it and give the .safetensors file in it"),
            Kind::Document(name) => format!("is a {name} file, not a safetensors file"),
        }
    }
}
