//! From the bytes of a text file to text, whatever wrote it.
//!
//! UTF-8 with or without a byte-order mark and UTF-16 are known by their form. Anything else is in a legacy code page: the one that the
//! user names, or one that is guessed. A guess from few letters is often wrong (two bytes may be a cat in Chinese, a letter pair in
//! Greek, or "Ã¨"), and a wrong one would be learned without anybody noticing. So all files of a dataset are guessed together, and a
//! guess counts only if each half of the words leads to it too; otherwise the file is refused with what it could be. The machine's
//! locale plays no part. Line ends become `\n`.

use anyhow::{Context, Result, bail};
use base::words::either;
use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{BIG5, EUC_JP, EUC_KR, Encoding, GBK, SHIFT_JIS, WINDOWS_1250, WINDOWS_1251, WINDOWS_1252, WINDOWS_1254};
use std::collections::BTreeSet;

/// A decoded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub text: String,
    /// That the encoding was guessed.
    pub warning: Option<String>,
}

/// How files that are neither UTF-8 nor UTF-16 are read.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pages {
    /// By the user.
    pub named: Option<&'static Encoding>,
    /// From all files together.
    pub guessed: Option<&'static Encoding>,
}

/// Decodes a whole file.
pub fn decode(bytes: &[u8], pages: Pages) -> Result<Text> {
    let (text, warning) = match bytes {
        [0xFF, 0xFE, rest @ ..] => (utf16(rest, u16::from_le_bytes)?, None),
        [0xFE, 0xFF, rest @ ..] => (utf16(rest, u16::from_be_bytes)?, None),
        [0xEF, 0xBB, 0xBF, rest @ ..] => (utf8_or_legacy(rest)?, None),
        _ if zeros(bytes, 1) => (utf16(bytes, u16::from_le_bytes)?, None),
        _ if zeros(bytes, 0) => (utf16(bytes, u16::from_be_bytes)?, None),
        _ => match std::str::from_utf8(bytes).map(|text| (text, doubt(text, pages))) {
            Ok((text, None)) => (text.to_string(), wonder(text, pages)),
            Ok((text, Some(Doubt::Page))) => legacy(bytes, pages).unwrap_or_else(|_| (text.to_string(), None)),
            Ok((_, Some(Doubt::Scripts))) | Err(_) => legacy(bytes, pages)?,
        },
    };
    if text.contains('\0') {
        bail!("is not text (it holds zero bytes)");
    }
    Ok(Text { text: text.replace("\r\n", "\n").replace('\r', "\n"), warning })
}

/// Whether a file can only be in a legacy code page.
pub fn is_legacy(bytes: &[u8]) -> bool {
    let marked = bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) || bytes.starts_with(&[0xEF, 0xBB, 0xBF]);
    let no_utf8 = || std::str::from_utf8(bytes).map_or(true, |text| doubt(text, Pages::default()).is_some());
    !marked && !zeros(bytes, 0) && !zeros(bytes, 1) && no_utf8()
}

/// Why bytes that form UTF-8 may be something else.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Doubt {
    /// Letters of several scripts in one text: "һֻè" are three letters of GBK.
    Scripts,
    /// The other files are in a page of two bytes a letter, and these are pairs of bytes too.
    Page,
}

/// Letters in a page of Asia that form UTF-8 by chance, a pair of bytes each: one in eight does, so more than these never do.
const CHANCE: usize = 4;

/// A few letters may form UTF-8 by chance: pairs of bytes, never three, and not beside Latin letters.
fn doubt(text: &str, pages: Pages) -> Option<Doubt> {
    let foreign: Vec<char> = text.chars().filter(|c| !c.is_ascii()).collect();
    if foreign.is_empty() || foreign.len() > CHANCE || foreign.iter().any(|c| *c as u32 >= 0x800) {
        return None;
    }
    let words = || text.split(|c: char| c.is_ascii() && !c.is_ascii_alphabetic()).filter(|word| !word.is_ascii());
    if words().any(|word| word.chars().any(|c| c.is_ascii())) {
        return None;
    }
    let page = pages.named.or(pages.guessed);
    let two_bytes = page.is_some_and(|page| [GBK, encoding_rs::GB18030, BIG5, EUC_JP, EUC_KR, SHIFT_JIS].contains(&page));
    let mixed = || words().any(|word| word.chars().filter_map(script).collect::<BTreeSet<_>>().len() > 1);
    if mixed() { Some(Doubt::Scripts) } else { two_bytes.then_some(Doubt::Page) }
}

/// A warning about a text of nothing but a few accented letters where nothing says which encoding it is in: "è" is a cat in GBK.
fn wonder(text: &str, pages: Pages) -> Option<String> {
    let letters = || text.chars().filter(|c| c.is_alphabetic());
    let few = (1..=CHANCE).contains(&letters().count()) && letters().all(|c| matches!(c, '\u{C0}'..='\u{FF}'));
    let told = || {
        format!(
            "it is hardly a text in UTF-8, as which it was read; set caption_encoding to what it is: {}",
            either(&readings(text.as_bytes()))
        )
    };
    (few && pages == Pages::default()).then(told)
}

/// The script of a letter among those whose letters take two bytes in UTF-8.
fn script(c: char) -> Option<&'static str> {
    match c as u32 {
        0xAA..0x250 if c.is_alphabetic() => Some("Latin"),
        0x370..0x400 => Some("Greek"),
        0x400..0x530 => Some("Cyrillic"),
        0x530..0x590 => Some("Armenian"),
        0x590..0x600 => Some("Hebrew"),
        0x600..0x700 => Some("Arabic"),
        0x700..0x800 => Some("Syriac and the like"),
        _ => None,
    }
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

/// Text in a code page, and a warning unless the user has named it.
fn legacy(bytes: &[u8], pages: Pages) -> Result<(String, Option<String>)> {
    if let Some(page) = pages.named {
        let at = std::str::from_utf8(bytes).err().map_or(0, |e| e.valid_up_to());
        let read = read_as(bytes, page).with_context(|| format!("is not {} (caption_encoding; {})", page.name(), place(bytes, at)))?;
        return Ok((read, None));
    }
    let guess = || Evidence::of(bytes).page();
    let read = |page: &'static Encoding| Some((read_as(bytes, page)?, page));
    match pages.guessed.and_then(read).or_else(|| guess().and_then(read)) {
        Some((text, page)) => {
            let name = page.name();
            Ok((text, Some(format!("it is not UTF-8 and was read as {name}; save it as UTF-8 or set caption_encoding to be sure"))))
        }
        None => bail!(unsure(bytes)),
    }
}

/// The text that bytes are in a code page; none if they are none in it.
fn read_as(bytes: &[u8], page: &'static Encoding) -> Option<String> {
    let printable = |text: &str| text.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\r' | '\t'));
    page.decode_without_bom_handling_and_without_replacement(bytes).filter(|text| printable(text)).map(std::borrow::Cow::into_owned)
}

/// What a file could be, and in which encoding: the likeliest first.
fn readings(bytes: &[u8]) -> Vec<String> {
    const COMMON: [&Encoding; 9] = [GBK, BIG5, SHIFT_JIS, EUC_JP, EUC_KR, WINDOWS_1251, WINDOWS_1252, WINDOWS_1250, WINDOWS_1254];
    let mut texts = BTreeSet::new();
    let reading = |page: &'static Encoding| {
        let text = read_as(bytes, page)?;
        texts.insert(text.clone()).then(|| format!("{} (\"{}\")", page.name().to_ascii_lowercase(), base::excerpt(text.trim(), 20)))
    };
    let utf8 = std::str::from_utf8(bytes).ok().map(|text| format!("utf-8 (\"{}\")", base::excerpt(text.trim(), 20)));
    let words: Vec<&[u8]> = bytes.split(|byte| *byte == b' ').collect();
    let pages = std::iter::once(guess(&words)).chain(COMMON);
    utf8.into_iter().chain(pages.filter_map(reading)).collect()
}

/// Why a file is not read, for the user to choose from.
fn unsure(bytes: &[u8]) -> String {
    let readings = readings(bytes);
    if readings.is_empty() {
        let at = std::str::from_utf8(bytes).err().map_or(0, |e| e.valid_up_to());
        return format!("is in an unknown encoding ({}); save it as UTF-8", place(bytes, at));
    }
    format!(
        "is {} UTF-8, and there is too little of it to tell its encoding: save it as UTF-8, or set caption_encoding to what it is: {}",
        if std::str::from_utf8(bytes).is_ok() { "hardly" } else { "not" },
        either(&readings)
    )
}

/// Words outside of ASCII, of one file or of all that come from one hand.
#[derive(Debug, Default)]
pub struct Evidence {
    words: BTreeSet<Vec<u8>>,
}

/// So many bytes outside of ASCII settle the code page, however they are cut into words.
const PLENTY: usize = 60;
/// Fewer words are no evidence.
const FEW_WORDS: usize = 3;
/// More of them prove nothing more.
const MOST_WORDS: usize = 4000;

impl Evidence {
    fn of(bytes: &[u8]) -> Evidence {
        let mut evidence = Evidence::default();
        evidence.add(bytes);
        evidence
    }

    /// Adds a file's words. What they are cut at is never the second byte of a letter in the code pages of Asia.
    pub fn add(&mut self, bytes: &[u8]) {
        let words = bytes.split(|byte| b" \r\n\t,.;:()\"".contains(byte)).filter(|word| !word.is_ascii());
        let room = MOST_WORDS.saturating_sub(self.words.len());
        self.words.extend(words.take(room).map(<[u8]>::to_vec));
    }

    /// The code page that the words are in, if they leave no doubt.
    pub fn page(&self) -> Option<&'static Encoding> {
        let all: Vec<&[u8]> = self.words.iter().map(Vec::as_slice).collect();
        let guess = guess(&all);
        let same = |words: &[&[u8]], other: &'static Encoding| words.iter().all(|word| read_as(word, guess) == read_as(word, other));
        // Accents that Western and Central European pages share are what they are.
        let accents = [WINDOWS_1250, WINDOWS_1252, WINDOWS_1254];
        if !all.is_empty() && all.iter().all(|word| has_lone_accents(word)) && accents.into_iter().all(|page| same(&all, page)) {
            return Some(WINDOWS_1252);
        }
        let half = |which: usize| all.iter().skip(which).step_by(2).copied().collect::<Vec<_>>();
        let halves = [half(0), half(1)];
        let high: usize = all.iter().map(|word| word.iter().filter(|byte| !byte.is_ascii()).count()).sum();
        let agree = || halves.iter().all(|words| same(words, self::guess(words)));
        let sure = high >= PLENTY && all.len() < FEW_WORDS || all.len() >= FEW_WORDS && agree();
        (sure && all.iter().all(|word| read_as(word, guess).is_some())).then_some(guess)
    }
}

fn guess(words: &[&[u8]]) -> &'static Encoding {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    for word in words {
        detector.feed(word, false);
        detector.feed(b" ", false);
    }
    detector.feed(b"", true);
    detector.guess(None, Utf8Detection::Deny)
}

/// Whether each byte outside of ASCII stands alone behind a Latin letter, or in front of two: `café`, `über`, `it’s`.
fn has_lone_accents(word: &[u8]) -> bool {
    let letter = |at: Option<usize>| at.and_then(|at| word.get(at)).is_some_and(u8::is_ascii_alphabetic);
    let ascii = |at: Option<usize>| at.and_then(|at| word.get(at)).is_none_or(u8::is_ascii);
    (0..word.len()).filter(|at| !word[*at].is_ascii()).all(|at| {
        let alone = ascii(at.checked_sub(1)) && ascii(Some(at + 1));
        alone && (letter(at.checked_sub(1)) || letter(Some(at + 1)) && letter(Some(at + 2)))
    })
}

fn place(bytes: &[u8], at: usize) -> String {
    let line = 1 + bytes[..at].iter().filter(|b| **b == b'\n').count();
    format!("byte 0x{:02X} in line {line}", bytes.get(at).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        let Text { text, warning } = decode(bytes, Pages::default()).unwrap();
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

    /// Captions as people write them, short ones among them, in the code pages of their languages.
    const CAPTIONS: [(&Encoding, &[&str]); 12] = [
        (GBK, &["猫", "一只猫", "红色的花, 草地", "女孩, 长发", "蓝天白云", "水墨画风格", "山水画, 小船", "坐在窗台上的猫", "1个女孩"]),
        (BIG5, &["貓", "一隻貓", "紅色的花, 草地", "女孩, 長髮", "藍天白雲", "水墨畫風格", "山水畫, 小船", "坐在窗台上的貓", "1個女孩"]),
        (SHIFT_JIS, &["猫", "ねこ", "赤い花, 草原", "女の子", "窓の上に猫", "白い猫が窓に座っている", "美少女, 長髪", "アニメ", "青空"]),
        (EUC_JP, &["猫", "赤い花, 草原", "女の子", "窓の上に猫", "白い猫が窓に座っている", "アニメ", "美少女, 長髪"]),
        (EUC_KR, &["고양이", "빨간 꽃", "소녀", "긴 머리 소녀", "고양이가 창문에 앉아 있다", "개", "푸른 하늘"]),
        (WINDOWS_1251, &["кот", "красный цветок", "девушка", "рыжая кошка на окне", "лес", "Кошка", "синее небо, облака"]),
        (WINDOWS_1252, &["café", "Mädchen am Fenster", "garçon", "piñata", "naïve style", "une forêt près de la mer", "weiß", "50° angle"]),
        (WINDOWS_1250, &["kočka", "žlutý květ", "żółty kwiat", "łąka", "kočka sedí na okně", "lány", "dziewczyna z długimi włosami"]),
        (encoding_rs::WINDOWS_1253, &["γάτα", "κόκκινο λουλούδι", "η γάτα στο παράθυρο", "δάσος"]),
        (WINDOWS_1254, &["güneş", "çiçek", "kız", "kırmızı çiçek", "uzun saçlı kız", "gökyüzü"]),
        (encoding_rs::WINDOWS_1255, &["חתול", "פרח אדום", "ילדה עם שיער ארוך", "שמיים כחולים"]),
        (encoding_rs::WINDOWS_1256, &["قطة", "زهرة حمراء", "فتاة بشعر طويل", "سماء زرقاء"]),
    ];

    /// Drawn sets of one to seven captions: many are read, next to none wrongly, and from five on nearly all.
    #[test]
    fn short_captions_in_code_pages_are_read_as_they_were_meant_or_asked_about() {
        let mut rng = base::Rng::new(3, "captions", &[]);
        let (mut read, mut asked, mut wrong) = ([0; 8], [0; 8], Vec::new());
        for (page, captions) in CAPTIONS {
            for size in [1, 2, 3, 5, 7].into_iter().filter(|size| *size <= captions.len()) {
                for _ in 0..60 {
                    let mut chosen = captions.to_vec();
                    rng.shuffle(&mut chosen);
                    chosen.truncate(size);
                    let files: Vec<Vec<u8>> = chosen.iter().map(|text| page.encode(text).0.into_owned()).collect();
                    let mut evidence = Evidence::default();
                    files.iter().filter(|file| is_legacy(file)).for_each(|file| evidence.add(file));
                    let pages = Pages { named: None, guessed: evidence.page() };
                    for (file, meant) in files.iter().zip(&chosen).filter(|(file, _)| is_legacy(file)) {
                        match decode(file, pages) {
                            Ok(text) if text.text == *meant => read[size] += 1,
                            Ok(text) => wrong.push(format!("{} {meant}: {} (of {size})", page.name(), text.text)),
                            Err(error) => {
                                assert!(error.to_string().contains("caption_encoding"), "{error}");
                                asked[size] += 1;
                            }
                        }
                    }
                }
            }
        }
        let all: usize = read.iter().chain(&asked).sum::<usize>() + wrong.len();
        assert!(wrong.len() * 400 < all, "{} of {all} are wrong: {wrong:#?}", wrong.len());
        for size in [5, 7] {
            assert!(asked[size] * 8 < read[size], "of {size} captions {} are asked about, {} read", asked[size], read[size]);
        }
    }

    #[test]
    fn a_named_code_page_counts_and_what_it_can_not_be_is_told() {
        let named = |page| Pages { named: Some(page), guessed: Some(WINDOWS_1252) };
        let (cat, _, _) = GBK.encode("一只猫");
        assert_eq!(decode(&cat, named(GBK)).unwrap(), Text { text: "一只猫".into(), warning: None });
        for utf8 in ["一只猫", "a café", "кот", "猫"] {
            assert_eq!(decode(utf8.as_bytes(), named(SHIFT_JIS)).unwrap().text, utf8);
        }
        // Words of several scripts are nothing odd, a word of several is.
        for utf8 in ["кот γάτα", "«кот»", "привет", "כלב قط", "é à"] {
            assert_eq!(decode(utf8.as_bytes(), Pages::default()).unwrap().text, utf8);
        }
        assert_eq!(decode("привет".as_bytes(), named(GBK)).unwrap().text, "привет");
        // Two bytes that are a letter in UTF-8 and in GBK: the other files decide.
        let (one, _, _) = GBK.encode("猫");
        assert_eq!(decode(&one, Pages::default()).unwrap().text, "è");
        assert_eq!(decode(&one, Pages { named: None, guessed: Some(GBK) }).unwrap().text, "猫");
        // Alone it is told.
        let told = decode(&one, Pages::default()).unwrap().warning.unwrap();
        assert!(told.contains("utf-8 (\"è\")") && told.contains("gbk (\"猫\")") && told.contains("caption_encoding"), "{told}");
        let error = format!("{:#}", decode(b"a\n\xFF\xFFx", named(SHIFT_JIS)).unwrap_err());
        assert!(error.contains("is not Shift_JIS") && error.contains("line 2"), "{error}");
        let error = decode(&cat, Pages::default()).unwrap_err().to_string();
        assert!(error.contains("gbk (\"一只猫\")") && error.contains("windows-1252 (\"Ò»Ö»Ã¨\")"), "{error}");
    }

    #[test]
    fn accents_of_western_europe_are_read_from_a_single_word_and_the_guess_is_told() {
        for meant in ["a café on the corner", "über", "it’s a dog", "Mädchen, weiß"] {
            let (bytes, _, _) = WINDOWS_1252.encode(meant);
            let Text { text, warning } = decode(&bytes, Pages::default()).unwrap();
            assert_eq!(text, meant);
            assert!(warning.unwrap().contains("windows-1252"));
        }
        // A lone letter in Shift_JIS that Western pages would take for a quote in front of an L.
        assert!(decode(b"a \x94L on a mat", Pages::default()).is_err());
    }

    #[test]
    fn what_is_no_text_is_refused_with_its_line() {
        let refused = |bytes: &[u8]| decode(bytes, Pages::default()).unwrap_err().to_string();
        assert!(refused(b"a\0b").contains("zero bytes"));
        assert!(refused(b"\xFF\xFEa").contains("UTF-16"));
        assert!(refused(b"\xEF\xBB\xBFa\n\xE9 b").contains("line 2"));
        assert!(refused(b"a\nb\x01\xFF\xFE\x02\x03").contains("line 2"));
    }
}
