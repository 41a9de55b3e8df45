//! What is drawn from a caption, anew in each epoch, as a pure function of the seed.
//!
//! In this order: the caption may be dropped (then only the trigger word is left); one of its lines and of each `{a|b}` is chosen,
//! where that is asked for; its tags are dropped one by one and shuffled, those kept at the front never; prefix and suffix are put
//! around it; words are replaced; random triggers are added; `[trigger]` and `[name]` become the trigger word, and a text that still
//! lacks it gets it in front. Without tag dropout and shuffling a text keeps every letter as it is.

use crate::trigger;
use base::{Rng, placeholder};
use encoding_rs::Encoding;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct CaptionOptions {
    /// Of caption files, without the dot; the first file that exists counts.
    pub extensions: Vec<String>,
    /// Of caption files and lists that are neither UTF-8 nor UTF-16; `None`: guessed.
    pub encoding: Option<&'static Encoding>,
    /// Name of the captions' column in metadata lists; `None`: the usual ones.
    pub column: Option<String>,
    pub default_caption: Option<String>,
    pub trigger_word: Option<String>,
    pub shuffle_tokens: bool,
    pub keep_tokens: usize,
    /// Tags before this text are kept whatever their number.
    pub keep_tokens_separator: Option<String>,
    /// Between tags; a comma if empty.
    pub separator: String,
    pub token_dropout_rate: f64,
    pub caption_dropout_rate: f64,
    /// Each line is a caption of its own, and `{a|b}` stands for one of its parts.
    pub wildcards: bool,
    pub prefix: String,
    pub suffix: String,
    pub replacements: Vec<Replacement>,
    pub random_triggers: Vec<String>,
    pub random_triggers_max: usize,
}

/// A text that becomes one of several others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    pub from: String,
    /// At least one; of several, one is drawn.
    pub to: Vec<String>,
}

/// One occurrence of an item: what every draw is a function of.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub seed: u64,
    pub epoch: u64,
    pub item: usize,
    pub occurrence: u32,
}

impl Moment {
    /// Numbers for one purpose: a setting that draws more or fewer of them doesn't shift those of another.
    fn rng(self, purpose: &str) -> Rng {
        Rng::new(self.seed, purpose, &[self.epoch, self.item as u64, u64::from(self.occurrence)])
    }
}

impl CaptionOptions {
    /// Can the text of one picture differ between epochs, beyond being dropped?
    pub fn is_random(&self) -> bool {
        self.draws_tags()
            || self.wildcards
            || self.replacements.iter().any(|r| r.to.len() > 1)
            || !self.random_triggers.is_empty() && self.random_triggers_max > 0
    }

    fn draws_tags(&self) -> bool {
        self.shuffle_tokens || self.token_dropout_rate > 0.0
    }

    /// The caption with nothing drawn: what `plan` shows.
    pub fn whole(&self, caption: &str) -> String {
        let caption = match self.kept_apart(caption) {
            (kept, Some(rest)) => self.joined(&[kept, rest]),
            (whole, None) => whole.to_string(),
        };
        self.finished(&caption, None)
    }

    /// What is left of a dropped caption.
    pub fn dropped(&self) -> String {
        self.with_trigger("")
    }

    /// The text of one occurrence of an item in an epoch: a pure function of its arguments.
    pub fn draw(&self, caption: &str, moment: Moment) -> String {
        let mut rng = moment.rng("caption");
        if happens(&mut rng, self.caption_dropout_rate) {
            return self.dropped();
        }
        let chosen = if self.wildcards { choose(caption, &mut moment.rng("wildcard")) } else { caption.to_string() };
        if !self.is_random() {
            return self.whole(&chosen);
        }
        let text = if self.draws_tags() { self.drawn_tags(&chosen, &mut rng) } else { chosen };
        self.finished(&text, Some(moment))
    }

    /// The tags that are never drawn from, and the others; without the separator there is one text.
    fn kept_apart<'a>(&self, caption: &'a str) -> (&'a str, Option<&'a str>) {
        match self.keep_tokens_separator.as_deref().filter(|s| !s.is_empty()).and_then(|s| caption.split_once(s)) {
            Some((kept, rest)) => (kept, Some(rest)),
            None => (caption, None),
        }
    }

    fn separator(&self) -> &str {
        if self.separator.is_empty() { "," } else { &self.separator }
    }

    fn tags<'a>(&'a self, text: &'a str) -> Vec<&'a str> {
        text.split(self.separator()).map(str::trim).filter(|tag| !tag.is_empty()).collect()
    }

    fn joined(&self, tags: &[&str]) -> String {
        let tags: Vec<&str> = tags.iter().map(|tag| tag.trim()).filter(|tag| !tag.is_empty()).collect();
        tags.join(&format!("{} ", self.separator().trim_end()))
    }

    fn drawn_tags(&self, caption: &str, rng: &mut Rng) -> String {
        let (mut kept, mut drawn) = match self.kept_apart(caption) {
            (kept, Some(rest)) => (self.tags(kept), self.tags(rest)),
            (whole, None) => {
                let mut kept = self.tags(whole);
                let drawn = kept.split_off(self.keep_tokens.min(kept.len()));
                (kept, drawn)
            }
        };
        drawn.retain(|_| !happens(rng, self.token_dropout_rate));
        if self.shuffle_tokens {
            rng.shuffle(&mut drawn);
        }
        kept.append(&mut drawn);
        self.joined(&kept)
    }

    /// Prefix, suffix, replacements, random triggers, trigger word. Without a moment nothing is drawn: the first choice counts.
    fn finished(&self, text: &str, moment: Option<Moment>) -> String {
        let mut text = format!("{}{text}{}", self.prefix, self.suffix);
        let mut rng = moment.map(|moment| moment.rng("replacement"));
        for Replacement { from, to } in &self.replacements {
            let pick = rng.as_mut().map_or(0, |rng| rng.below(to.len().max(1) as u64) as usize);
            text = text.replace(from.as_str(), to.get(pick).map_or("", String::as_str));
        }
        if let Some(moment) = moment.filter(|_| !self.random_triggers.is_empty()) {
            let mut rng = moment.rng("random trigger");
            for _ in 0..self.random_triggers_max {
                if rng.below(2) == 1 {
                    text = self.joined(&[&text, &self.random_triggers[rng.below(self.random_triggers.len() as u64) as usize]]);
                }
            }
        }
        self.with_trigger(&text)
    }

    fn with_trigger(&self, text: &str) -> String {
        let word = self.trigger_word.as_deref().unwrap_or_default();
        let text = placeholder::fill(text, word).trim().to_string();
        if word.is_empty() || trigger::has_word(&text, word) {
            text
        } else if text.is_empty() {
            word.to_string()
        } else {
            format!("{word} {text}")
        }
    }
}

/// Draws once whatever the rate, so that changing one rate doesn't shift the draws of another.
fn happens(rng: &mut Rng, rate: f64) -> bool {
    f64::from(rng.uniform()) < rate
}

/// One of the lines, and in it one part of each `{a|b|c}`; braces without a bar stay.
fn choose(caption: &str, rng: &mut Rng) -> String {
    let lines: Vec<&str> = caption.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let mut rest = if lines.is_empty() { "" } else { lines[rng.below(lines.len() as u64) as usize] };
    let mut out = String::new();
    while let Some(open) = rest.find('{') {
        let Some(close) = rest[open..].find('}').map(|at| open + at) else { break };
        let parts: Vec<&str> = rest[open + 1..close].split('|').collect();
        out.push_str(&rest[..open]);
        match parts.len() {
            1 => out.push_str(&rest[open..=close]),
            n => out.push_str(parts[rng.below(n as u64) as usize].trim()),
        }
        rest = &rest[close + 1..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn moment(epoch: u64, item: usize) -> Moment {
        Moment { seed: 7, epoch, item, occurrence: 0 }
    }

    fn texts(options: &CaptionOptions, caption: &str, epochs: u64) -> BTreeSet<String> {
        (0..epochs).map(|epoch| options.draw(caption, moment(epoch, 3))).collect()
    }

    #[test]
    fn tags_are_drawn_anew_each_epoch_and_the_first_ones_stay() {
        let options = CaptionOptions { shuffle_tokens: true, keep_tokens: 1, token_dropout_rate: 0.3, ..CaptionOptions::default() };
        let draw = |epoch| options.draw("hc, a, b,c , d", moment(epoch, 3));
        assert_eq!(draw(1), draw(1));
        let texts: BTreeSet<String> = (0..200).map(draw).collect();
        assert!(texts.len() > 20, "only {} different texts", texts.len());
        assert!(texts.iter().all(|t| t.starts_with("hc")), "{texts:?}");
        let kept: usize = (0..2000).map(|e| draw(e).matches(", ").count()).sum();
        assert!((kept as f64 / 8000.0 - 0.7).abs() < 0.03, "{kept} of 8000 tags kept");
    }

    #[test]
    fn tags_before_the_separator_are_kept_and_the_separator_goes_away() {
        let options = CaptionOptions { keep_tokens_separator: Some("|||".into()), ..CaptionOptions::default() };
        assert_eq!(options.whole("a, b ||| c, d"), "a, b, c, d");
        assert_eq!(options.draw("a, b ||| c, d", moment(0, 0)), "a, b, c, d");
        let shuffled = CaptionOptions { shuffle_tokens: true, ..options };
        let texts = texts(&shuffled, "a, b ||| c, d, e", 100);
        assert_eq!(texts.len(), 6);
        assert!(texts.iter().all(|text| text.starts_with("a, b, ")), "{texts:?}");
    }

    #[test]
    fn captions_are_dropped_at_their_rate_and_leave_the_trigger_word() {
        let options = CaptionOptions { caption_dropout_rate: 0.1, trigger_word: Some("sks".into()), ..CaptionOptions::default() };
        let texts: Vec<String> = (0..4000).map(|item| options.draw("a  cat,dog", moment(0, item))).collect();
        let dropped = texts.iter().filter(|t| *t == "sks").count();
        assert!((dropped as f64 / 4000.0 - 0.1).abs() < 0.02, "{dropped} of 4000 dropped");
        assert_eq!(texts.iter().find(|t| *t != "sks").unwrap(), "sks a  cat,dog");
    }

    #[test]
    fn replacements_prefix_and_suffix_are_applied_and_several_choices_are_drawn() {
        let one = Replacement { from: "cat".into(), to: vec!["dog".into()] };
        let options =
            CaptionOptions { replacements: vec![one], prefix: "photo of ".into(), suffix: ", sharp".into(), ..Default::default() };
        assert!(!options.is_random());
        assert_eq!(options.whole("a cat"), "photo of a dog, sharp");
        let many = Replacement { from: "cat".into(), to: vec!["dog".into(), "hen".into()] };
        let options = CaptionOptions { replacements: vec![many], ..Default::default() };
        assert!(options.is_random());
        assert_eq!(texts(&options, "a cat", 40), ["a dog", "a hen"].map(String::from).into());
    }

    #[test]
    fn lines_and_choices_in_braces_are_variants_only_where_asked_for() {
        let caption = "a {red|blue} hat\n\nbare {head}";
        let plain = CaptionOptions::default();
        assert_eq!(plain.draw(caption, moment(0, 0)), caption);
        let options = CaptionOptions { wildcards: true, ..CaptionOptions::default() };
        assert_eq!(texts(&options, caption, 80), ["a red hat", "a blue hat", "bare {head}"].map(String::from).into());
        assert_eq!(texts(&options, "un{closed|x", 3), ["un{closed|x".to_string()].into());
        assert_eq!(texts(&options, "", 3), [String::new()].into());
    }

    #[test]
    fn a_trigger_word_that_is_only_a_part_of_another_word_is_put_in_front() {
        let options = CaptionOptions { trigger_word: Some("zwx".into()), ..CaptionOptions::default() };
        let whole = |text: &str| options.whole(text);
        assert_eq!(["zwxx cat", "a zwx cat", "a [Trigger]"].map(whole), ["zwx zwxx cat", "a zwx cat", "a zwx"]);
    }

    #[test]
    fn random_triggers_are_added_up_to_their_number() {
        let options = CaptionOptions { random_triggers: vec!["x".into(), "y".into()], random_triggers_max: 2, ..CaptionOptions::default() };
        let texts = texts(&options, "a", 200);
        let expected = ["a", "a, x", "a, y", "a, x, x", "a, x, y", "a, y, x", "a, y, y"];
        assert_eq!(texts, expected.map(String::from).into());
    }
}
