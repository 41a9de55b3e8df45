//! Numbers and lists in sentences.

use std::fmt::Display;

/// `1 bucket`, `2 buckets`, `0 batches`: the noun is given in the singular.
pub fn counted<N: Display + PartialEq + From<u8>>(count: N, noun: &str) -> String {
    let plural = if count == N::from(1) {
        ""
    } else if noun.ends_with("ch") || noun.ends_with('s') || noun.ends_with('x') {
        "es"
    } else {
        "s"
    };
    format!("{count} {noun}{plural}")
}

/// The first names of a list, and how many more there are.
pub fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 10;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN { format!("{shown} and {} more", names.len() - SHOWN) } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_everything_else_is_plural() {
        assert_eq!([0u64, 1, 2].map(|n| counted(n, "bucket")), ["0 buckets", "1 bucket", "2 buckets"]);
        assert_eq!([1usize, 3].map(|n| counted(n, "batch")), ["1 batch", "3 batches"]);
    }

    #[test]
    fn long_lists_are_cut_and_say_so() {
        assert_eq!(some_of(&["a", "b"]), "a, b");
        assert_eq!(some_of(&["x"; 12]), format!("{} and 2 more", ["x"; 10].join(", ")));
    }
}
