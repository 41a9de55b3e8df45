//! What the captions of a dataset are like, and which stand out.

use super::{Finding, Kind, Questions};
use crate::dataset::Dataset;
use crate::trigger;
use base::counted;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// A first word that at least this share of the captions has is a trigger word, if no other one is given.
const TRIGGER_SHARE: f64 = 0.6;

/// A caption this many times longer (or shorter) than the median is odd.
const ODD: f64 = 5.0;

/// Fewer captions than this are no set to compare with.
const FEW: usize = 4;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaptionStatistics {
    pub captions: usize,
    /// Pictures that get the default caption, the trigger word or nothing.
    pub filled: usize,
    pub distinct: usize,
    pub tokens_median: usize,
    pub tokens_most: usize,
    /// The most frequent tags.
    pub tags: Vec<(String, u64)>,
}

/// A picture's file, its caption, and the tokens of it.
struct Text<'a> {
    file: &'a str,
    text: String,
    tokens: usize,
    filled: bool,
}

fn texts<'a>(dataset: &'a Dataset, questions: &Questions) -> Vec<Text<'a>> {
    let text = |entry: &'a crate::dataset::Entry| {
        let text = dataset.options[entry.dataset].caption.whole(&entry.caption.text);
        Text { file: &entry.picture.file, tokens: (questions.tokens)(&text), filled: entry.caption.source.is_filled(), text }
    };
    dataset.entries.iter().map(text).collect()
}

fn median(tokens: impl Iterator<Item = usize>) -> usize {
    let mut sorted: Vec<usize> = tokens.collect();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

impl CaptionStatistics {
    pub fn new(dataset: &Dataset, questions: &Questions) -> CaptionStatistics {
        let texts = texts(dataset, questions);
        let distinct = texts.iter().map(|t| t.text.as_str()).collect::<std::collections::BTreeSet<_>>().len();
        CaptionStatistics {
            captions: texts.len(),
            filled: texts.iter().filter(|t| t.filled).count(),
            distinct,
            tokens_median: median(texts.iter().map(|t| t.tokens)),
            tokens_most: texts.iter().map(|t| t.tokens).max().unwrap_or_default(),
            tags: crate::tags::frequency(texts.iter().map(|t| t.text.as_str()), 10),
        }
    }
}

impl fmt::Display for CaptionStatistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CaptionStatistics { captions, distinct, tokens_median, tokens_most, .. } = self;
        let (captions, middle) = (counted(*captions, "caption"), counted(*tokens_median, "token"));
        write!(f, "{captions}, {distinct} different; {middle} in the middle, {tokens_most} at most")
    }
}

pub fn findings(dataset: &Dataset, questions: &Questions) -> Vec<Finding> {
    let texts = texts(dataset, questions);
    let limit = questions.token_limit;
    let none = files(&texts, |t| t.filled);
    let long = files(&texts, |t| t.tokens > limit);
    let middle = median(texts.iter().filter(|t| !t.filled).map(|t| t.tokens)) as f64;
    let written = texts.iter().filter(|t| !t.filled).count();
    let is_odd = |tokens: f64| (tokens.max(1.0) * ODD < middle || tokens > middle.max(1.0) * ODD) && written >= FEW;
    let odd = files(&texts, |t| !t.filled && is_odd(t.tokens as f64));
    let rows = [
        (
            Kind::NoCaption,
            none,
            ("picture", "without a caption, or with an empty one".to_string()),
            "write a .txt file beside each, or set default_caption or a trigger word that fills in",
        ),
        (
            Kind::LongCaption,
            long,
            ("caption", format!("longer than the {limit} tokens that a text encoder reads at once")),
            "they are read in pieces (train.long_captions: chunk); or say the important things first and shorten them",
        ),
        (
            Kind::OddCaption,
            odd,
            ("caption", format!("far shorter or longer than the others (the median is {middle} tokens)")),
            "read them: captions of one kind are learned better",
        ),
    ];
    let filled = rows.into_iter().filter(|(_, files, ..)| !files.is_empty());
    let finding = |(kind, files, (noun, what), advice): (Kind, Vec<String>, (&str, String), &str)| {
        let what = format!("{} {what}", counted(files.len(), noun));
        Finding::new(kind, files, what, advice)
    };
    filled.map(finding).chain(same(&texts)).chain(of_trigger(dataset, &texts)).collect()
}

fn files(texts: &[Text], picked: impl Fn(&Text) -> bool) -> Vec<String> {
    texts.iter().filter(|text| picked(text)).map(|text| text.file.to_string()).collect()
}

/// One caption for more than half of the pictures.
fn same(texts: &[Text]) -> Option<Finding> {
    let mut counts: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    texts.iter().filter(|t| !t.filled).for_each(|t| counts.entry(&t.text).or_default().push(t.file.to_string()));
    let (text, files) = counts.into_iter().max_by_key(|(_, files)| files.len())?;
    let shown = base::excerpt(text, 60);
    let what = format!("{} of {} pictures have the same caption: \"{shown}\"", files.len(), texts.len());
    let advice = "everything that all pictures share goes into it; say what differs between them if it should stay changeable";
    (files.len() >= FEW && files.len() * 2 > texts.len()).then(|| Finding::new(Kind::SameCaption, files, what, advice))
}

/// Captions without the word that the others begin with. A trigger word that is set is put in front of those that lack it, so there it
/// can only be missing by another spelling.
fn of_trigger(dataset: &Dataset, texts: &[Text]) -> Option<Finding> {
    let set = dataset.options.iter().find_map(|options| options.caption.trigger_word.clone());
    let written: Vec<&Text> = texts.iter().filter(|t| !t.filled).collect();
    let first = |text: &str| text.split([',', ' ', '\n']).find(|word| !word.is_empty()).map(str::to_string);
    if let Some(word) = set {
        let other = |t: &&&Text| {
            let bare = dataset.entries.iter().find(|e| e.picture.file == t.file).map(|e| e.caption.text.as_str()).unwrap_or_default();
            !trigger::has_word(bare, &word) && trigger::has_word(&bare.to_lowercase(), &word.to_lowercase())
        };
        let files: Vec<String> = written.iter().filter(other).map(|t| t.file.to_string()).collect();
        let what = format!("{} with the trigger word \"{word}\" in other letters", counted(files.len(), "caption"));
        return (!files.is_empty())
            .then(|| Finding::new(Kind::Trigger, files, what, "spell it the same everywhere: it is added in front of them as it is"));
    }
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    written.iter().filter_map(|t| first(&t.text)).for_each(|word| *counts.entry(word).or_default() += 1);
    let (word, count) = counts.into_iter().filter(|(word, _)| word.chars().count() > 2).max_by_key(|(_, count)| *count)?;
    let missing: Vec<String> = written.iter().filter(|t| !trigger::has_word(&t.text, &word)).map(|t| t.file.to_string()).collect();
    let likely = written.len() >= FEW && count as f64 >= TRIGGER_SHARE * written.len() as f64;
    let shown = base::excerpt(&word, 40);
    let what = format!("{count} of {} captions begin with \"{shown}\", and {} don't have it at all", written.len(), missing.len());
    let advice = "if it is the trigger word, put it into all of them (trigger_word does that by itself)";
    (likely && !missing.is_empty()).then(|| Finding::new(Kind::Trigger, missing, what, advice))
}
