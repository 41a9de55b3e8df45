//! How often each tag occurs: what LoRA files carry as `ss_tag_frequency`.

use std::collections::BTreeMap;

/// Tags of comma-separated captions, trimmed, with the number of captions that hold them; at most `most` of the most frequent.
pub fn frequency<'a>(captions: impl IntoIterator<Item = &'a str>, most: usize) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for caption in captions {
        for tag in caption.split([',', '\n']).map(str::trim).filter(|tag| !tag.is_empty()) {
            *counts.entry(tag).or_default() += 1;
        }
    }
    let mut sorted: Vec<(String, u64)> = counts.into_iter().map(|(tag, n)| (tag.to_string(), n)).collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sorted.truncate(most);
    sorted
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_most_frequent_tags_come_first_and_the_list_is_capped() {
        let counted = super::frequency(["cat, red hat", "cat,dog ,", "", "dog, cat"], 2);
        assert_eq!(counted, [("cat".to_string(), 3), ("dog".to_string(), 2)]);
    }
}
