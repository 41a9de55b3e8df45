//! The places in captions and prompts that stand for the trigger word, in letters of any case.

const PLACES: [&str; 2] = ["[trigger]", "[name]"];

/// Puts the trigger word (maybe none) into its places.
pub fn fill(text: &str, trigger: &str) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some(open) = rest.find('[') {
        let (before, after) = rest.split_at(open);
        filled.push_str(before);
        let here = |place: &&&str| after.get(..place.len()).is_some_and(|head| head.eq_ignore_ascii_case(place));
        let place = PLACES.iter().find(here);
        filled.push_str(if place.is_some() { trigger } else { "[" });
        rest = &after[place.map_or(1, |place| place.len())..];
    }
    filled + rest
}

/// One that a text holds.
pub fn find(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    PLACES.into_iter().find(|place| lower.contains(place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_for_the_trigger_word_are_known_in_letters_of_any_case() {
        assert_eq!(fill("a [Trigger], [trigger] [NAME] [x] [tr[name]é[", "zwx"), "a zwx, zwx zwx [x] [trzwxé[");
        assert_eq!((find("a [Name]"), find("a [nam e]")), (Some("[name]"), None));
    }
}
