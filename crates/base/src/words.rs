//! Numbers and lists in sentences.

use std::fmt::Display;

/// `1 bucket`, `2 buckets`, `0 batches`: the noun is given in the singular.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    if count == N::from(1) {
        return format!("{count} {noun}");
    }
    let after_consonant = |stem: &&str| !stem.ends_with(['a', 'e', 'i', 'o', 'u']);
    if let Some(stem) = noun.strip_suffix('y').filter(after_consonant) {
        return format!("{count} {stem}ies");
    }
    let plural = if noun.ends_with("ch") || noun.ends_with('s') || noun.ends_with('x') { "es" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// The first names of a list, and how many more there are.
pub fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

/// A text from outside (a file's name, a caption, a value) as part of one line for people: what would begin a new line, steer the
/// terminal, or turn the direction of what follows is written out.
pub fn visible(text: &str) -> String {
    let acts = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}');
    text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        if acts(c) {
            out.extend(c.escape_default())
        } else {
            out.push(c)
        }
        out
    })
}

/// The beginning of a text for people, and how much there is of it.
pub fn excerpt(text: &str, most: usize) -> String {
    let letters = text.chars().count();
    let begin: String = text.chars().take(most).collect();
    if letters > most { format!("{begin}… ({letters} letters)") } else { begin }
}

/// `a`, `a or b`, `a, b or c`.
pub fn either(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [name] => name.clone(),
        [names @ .., last] => format!("{} or {last}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_act_on_a_terminal_is_written_out_and_letters_of_any_script_stay() {
        assert_eq!(visible("a\x1b[31mb\nc\r\td\u{9b}2J\u{7f}\u{202e}e\u{2028}"), r"a\u{1b}[31mb\nc\r\td\u{9b}2J\u{7f}\u{202e}e\u{2028}");
        let plain = "猫 café \"quoted\" it's C:\\x 👩‍🚀 हिन्दी";
        assert_eq!(visible(plain), plain);
        assert_eq!((excerpt("猫猫猫", 3), excerpt("猫猫猫", 2)), ("猫猫猫".to_string(), "猫猫… (3 letters)".to_string()));
    }

    #[test]
    fn alternatives_have_one_or() {
        let names = ["a", "b", "c"].map(String::from);
        assert_eq!([1, 2, 3].map(|n| either(&names[..n])), ["a", "a or b", "a, b or c"]);
    }

    #[test]
    fn one_is_singular_and_everything_else_is_plural() {
        assert_eq!([0u64, 1, 2].map(|n| counted(n, "bucket")), ["0 buckets", "1 bucket", "2 buckets"]);
        assert_eq!([1usize, 3].map(|n| counted(n, "batch")), ["1 batch", "3 batches"]);
        assert_eq!([1usize, 0].map(|n| counted(n, "entry")), ["1 entry", "0 entries"]);
        assert_eq!(counted(2usize, "key"), "2 keys");
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        assert_eq!(some_of(&["a", "b"]), "a, b");
        assert_eq!(some_of(&["x"; 12]), format!("{} and 2 more", ["x"; 10].join(", ")));
    }
}
