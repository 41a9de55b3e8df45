//! Code pages by the names that people and programs give them.

use encoding_rs::{Encoding, REPLACEMENT};

/// `gbk`, `sjis`, `cp932`, `windows-1251`: the names of the WHATWG's list, and Windows' numbers.
pub fn named(name: &str) -> Option<&'static Encoding> {
    let name = name.trim().to_ascii_lowercase();
    let label = match name.as_str() {
        "cp932" => "shift_jis",
        "cp936" => "gbk",
        "cp949" | "uhc" => "euc-kr",
        "cp950" => "big5",
        other => other,
    };
    Encoding::for_label(label.as_bytes()).filter(|encoding| *encoding != REPLACEMENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use encoding_rs::{EUC_KR, GBK, SHIFT_JIS, WINDOWS_1251};

    #[test]
    fn code_pages_have_many_names() {
        let rows =
            [("GBK", GBK), ("cp936", GBK), (" sjis", SHIFT_JIS), ("cp932", SHIFT_JIS), ("cp949", EUC_KR), ("Windows-1251", WINDOWS_1251)];
        for (name, page) in rows {
            assert_eq!(named(name), Some(page), "{name}");
        }
        assert_eq!((named("klingon"), named("replacement"), named("")), (None, None, None));
    }
}
