//! The trigger word in captions: whether it stands there.

/// Whether a text has a word: not as a part of a longer one, but in scripts that put no spaces between words anywhere.
pub fn has_word(text: &str, word: &str) -> bool {
    let goes_on = |a: Option<char>, b: Option<char>| a.zip(b).is_some_and(|(a, b)| is_spaced(a) && is_spaced(b));
    text.match_indices(word).any(|(start, _)| {
        let (before, after) = (&text[..start], &text[start + word.len()..]);
        !goes_on(before.chars().next_back(), word.chars().next()) && !goes_on(word.chars().next_back(), after.chars().next())
    })
}

/// Letters and digits of scripts that put spaces between words: all but those of South East and East Asia.
fn is_spaced(c: char) -> bool {
    let runs_on = matches!(c,
        '\u{0e00}'..='\u{0eff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{2e80}'..='\u{31ff}'
        | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}');
    c.is_alphanumeric() && !runs_on
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_within_a_longer_one_is_another_but_not_in_scripts_without_spaces() {
        for (text, word) in [("zwxx cat", "zwx"), ("azwx", "zwx"), ("zwx1, zwx_x2zwx", "wx"), ("éclair", "clair"), ("", "zwx")] {
            assert!(!has_word(text, word), "{text}: {word}");
        }
        for (text, word) in
            [("zwxx zwx", "zwx"), ("(zwx:1.2)", "zwx"), ("zwx", "zwx"), ("一只猫猫在睡", "猫猫"), ("zwx猫", "zwx"), ("<s1>a", "<s1>")]
        {
            assert!(has_word(text, word), "{text}: {word}");
        }
    }
}
