//! From the bytes of a text file to text, whatever wrote it.
//!
//! UTF-8 with or without a byte-order mark and UTF-16 are known by their form. Anything else is a legacy code page, which is guessed
//! from the letters it would give; the guess comes with a warning, and what makes no text in it is refused. The machine's locale
//! plays no part. Line ends become `\n`.

use anyhow::{Context, Result, bail};
use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};

/// A decoded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub text: String,
    /// That the encoding was guessed.
    pub warning: Option<String>,
}

/// Decodes a whole file.
pub fn decode(bytes: &[u8]) -> Result<Text> {
    let (text, warning) = match bytes {
        [0xFF, 0xFE, rest @ ..] => (utf16(rest, u16::from_le_bytes)?, None),
        [0xFE, 0xFF, rest @ ..] => (utf16(rest, u16::from_be_bytes)?, None),
        [0xEF, 0xBB, 0xBF, rest @ ..] => (utf8_or_legacy(rest)?, None),
        _ if zeros(bytes, 1) => (utf16(bytes, u16::from_le_bytes)?, None),
        _ if zeros(bytes, 0) => (utf16(bytes, u16::from_be_bytes)?, None),
        _ => match std::str::from_utf8(bytes) {
            Ok(text) => (text.to_string(), None),
            Err(_) => {
                let (text, name) = legacy(bytes)?;
                (text, Some(format!("it is not UTF-8 and was read as {name}; save it as UTF-8 to be sure")))
            }
        },
    };
    if text.contains('\0') {
        bail!("is not text (it holds zero bytes)");
    }
    Ok(Text { text: text.replace("\r\n", "\n").replace('\r', "\n"), warning })
}

/// UTF-16 of mostly Latin text without its mark: every second byte is zero, and hardly one of the others.
fn zeros(bytes: &[u8], at: usize) -> bool {
    let zeros = |at: usize| bytes.iter().skip(at).step_by(2).filter(|b| **b == 0).count();
    let pairs = bytes.len() / 2;
    pairs > 1 && bytes.len().is_multiple_of(2) && zeros(at) * 2 > pairs && zeros(1 - at) == 0
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String> {
    let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| unit([pair[0], pair[1]])).collect();
    let whole = bytes.len().is_multiple_of(2);
    String::from_utf16(&units).ok().filter(|_| whole).context("begins like UTF-16 but is not; save it as UTF-8")
}

/// After a mark of UTF-8 nothing else may follow.
fn utf8_or_legacy(bytes: &[u8]) -> Result<String> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.to_string()),
        Err(error) => bail!("begins like UTF-8 but is not ({}); save it as UTF-8", place(bytes, error.valid_up_to())),
    }
}

/// Text in a code page, and the name of the code page that fits its letters best.
fn legacy(bytes: &[u8]) -> Result<(String, &'static str)> {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(bytes, true);
    let encoding = detector.guess(None, Utf8Detection::Deny);
    let text = encoding.decode_without_bom_handling_and_without_replacement(bytes);
    let printable = |text: &str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    match text.filter(|text| printable(text)) {
        Some(text) => Ok((text.into_owned(), encoding.name())),
        None => {
            let at = std::str::from_utf8(bytes).err().map_or(0, |e| e.valid_up_to());
            bail!("is in an unknown encoding ({}); save it as UTF-8", place(bytes, at))
        }
    }
}

fn place(bytes: &[u8], at: usize) -> String {
    let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
    format!("byte 0x{:02X} in line {line}", bytes.get(at).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        let Text { text, warning } = decode(bytes).unwrap();
        assert_eq!(warning, None);
        text
    }

    #[test]
    fn utf8_and_utf16_are_read_with_and_without_their_mark() {
        for content in ["猫 café", "plain words"] {
            let le: Vec<u8> = content.encode_utf16().flat_map(u16::to_le_bytes).collect();
            let be: Vec<u8> = content.encode_utf16().flat_map(u16::to_be_bytes).collect();
            assert_eq!(text(&[b"\xFF\xFE".as_slice(), &le].concat()), content);
            assert_eq!(text(&[b"\xFE\xFF".as_slice(), &be].concat()), content);
            assert_eq!(text(content.as_bytes()), content);
            assert_eq!(text(&[b"\xEF\xBB\xBF".as_slice(), content.as_bytes()].concat()), content);
        }
        let bare: Vec<u8> = "plain words".encode_utf16().flat_map(u16::to_le_bytes).collect();
        assert_eq!(text(&bare), "plain words");
        let bare: Vec<u8> = "plain words".encode_utf16().flat_map(u16::to_be_bytes).collect();
        assert_eq!(text(&bare), "plain words");
        assert_eq!(text(b"a\r\n\r\nb\rc\n"), "a\n\nb\nc\n");
    }

    #[test]
    fn legacy_code_pages_are_guessed_and_the_guess_is_told() {
        let rows: [(&[u8], &str, &str); 5] = [
            (b"a caf\xE9 on the corner", "a café on the corner", "windows-1252"),
            (b"\xF0\xFB\xE6\xE0\xFF \xEA\xEE\xF8\xEA\xE0 \xED\xE0 \xEE\xEA\xED\xE5", "рыжая кошка на окне", "windows-1251"),
            (b"\x91\x8B\x82\xCC\x8F\xE3\x82\xC9\x94\x4C", "窓の上に猫", "Shift_JIS"),
            (b"\xD2\xBB\xD6\xBB\xBA\xEC\xC9\xAB\xB5\xC4\xC3\xA8\xD7\xF8\xD4\xDA\xB4\xB0\xCC\xA8\xC9\xCF", "一只红色的猫坐在窗台上", "GBK"),
            (
                b"\xB0\xED\xBE\xE7\xC0\xCC\xB0\xA1 \xC3\xA2\xB9\xAE\xBF\xA1 \xBE\xC9\xBE\xC6 \xC0\xD6\xB4\xD9",
                "고양이가 창문에 앉아 있다",
                "EUC-KR",
            ),
        ];
        for (bytes, expected, name) in rows {
            let Text { text, warning } = decode(bytes).unwrap();
            let warning = warning.unwrap();
            assert_eq!(text, expected, "{warning}");
            assert!(warning.contains(name), "{warning}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_line() {
        let refused = |bytes: &[u8]| decode(bytes).unwrap_err().to_string();
        assert!(refused(b"a\0b").contains("zero bytes"));
        assert!(refused(b"\xFF\xFEa").contains("UTF-16"));
        assert!(refused(b"\xEF\xBB\xBFa\n\xE9 b").contains("line 2"));
        assert!(refused(b"a\nb\x01\xFF\xFE\x02\x03").contains("line 2"));
    }
}
