//! The nearest of a list of names to a mistyped one, for error messages.

/// The candidate with the smallest edit distance to `name`, if it is close enough to be what was meant.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters = name.chars().count();
    let limit = letters.div_ceil(3).max(2);
    // Texts are at least as far apart as their lengths; an endless one is compared to none.
    let candidates = candidates.into_iter().filter(|c| c.chars().count().abs_diff(letters) <= limit);
    candidates.map(|c| (distance(name, c), c)).min().filter(|(d, _)| *d <= limit).map(|(_, c)| c)
}

/// Levenshtein distance in characters.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let cost = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_key_that_was_meant() {
        assert_eq!(nearest("learning_rat", ["lr", "learning_rate", "steps"]), Some("learning_rate"));
        assert_eq!(nearest("zzzzzz", ["lr", "learning_rate", "steps"]), None);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
