//! A YAML document as a tree of its values, each with its place. Everything that is wrong with a file can be told at once because the
//! tree can be read again without what was wrong.

use crate::reader::MOST;
use crate::schema::{WHOLE, properties, real_name};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{Error, Location, Spanned};
use std::collections::HashMap;
use std::fmt;

/// Where something stands. What a file says comes before what is said beside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// Line and column of the file.
    File(u32, u32),
    /// The `--set` of that number.
    Set(u32),
    #[default]
    Unknown,
}

/// Numbers of 32 bits: files have at most a few megabytes, and what aliases unfold to should stay small.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub place: Place,
    pub content: Content,
    /// The bytes of the text that a plain scalar is written in.
    span: (u32, u32),
}

#[derive(Clone, Debug, Default)]
pub(crate) enum Content {
    #[default]
    Null,
    /// Wrong, and told already: not there for readers.
    Gone,
    Bool(bool, String),
    Unsigned(u64, String),
    Signed(i64, String),
    Float(f64, String),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Empty for `~`.
    pub key: String,
    pub place: Place,
    pub node: Node,
}

/// Two entries of a file that mean one key: the indices on the way to the second, and both as they are written.
pub(crate) struct Clash {
    pub path: Vec<usize>,
    pub names: [String; 2],
    pub places: [Place; 2],
}

/// Values of a file, those counted that aliases repeat: far more than anyone writes, and a memory that stays small.
const MOST_VALUES: usize = 200_000;

/// Reads a document with the strictness that every file gets: YAML 1.2 booleans, one document.
pub(crate) fn parse(text: &str) -> Result<Node, Error> {
    let options = serde_saphyr::options! {
        strict_booleans: true,
        budget: serde_saphyr::budget! { max_nodes: MOST_VALUES },
        // Told together with everything else that is wrong:
        non_finite_float_policy: serde_saphyr::options::NonFiniteFloatPolicy::PassThrough,
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::PassThrough,
    };
    let mut root = serde_saphyr::from_str_with_options::<Spanned<Node>>(text, options).map(node)?;
    root.fill(text);
    Ok(root)
}

impl Node {
    pub fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Map(entries) => entries,
            _ => &[],
        }
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|entry| entry.key == key).map(|entry| &entry.node)
    }

    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let Content::Map(entries) = &mut self.content else { return None };
        entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.node)
    }

    /// Takes an entry out.
    pub fn take(&mut self, key: &str) -> Option<Entry> {
        let Content::Map(entries) = &mut self.content else { return None };
        let index = entries.iter().position(|entry| entry.key == key && !entry.node.is_gone())?;
        Some(entries.remove(index))
    }

    /// Puts an entry in front.
    pub fn put_first(&mut self, entry: Entry) {
        if matches!(self.content, Content::Null) {
            self.content = Content::Map(Vec::new());
        }
        if let Content::Map(entries) = &mut self.content {
            entries.insert(0, entry);
        }
    }

    pub fn items(&self) -> &[Node] {
        match &self.content {
            Content::List(items) => items,
            _ => &[],
        }
    }

    pub fn into_items(self) -> Vec<Node> {
        match self.content {
            Content::List(items) => items,
            _ => Vec::new(),
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self.content, Content::Gone)
    }

    /// Says that everything below stands at `place`.
    pub fn stand_at(&mut self, place: Place) {
        self.place = place;
        match &mut self.content {
            Content::List(items) => items.iter_mut().for_each(|item| item.stand_at(place)),
            Content::Map(entries) => entries.iter_mut().for_each(|entry| {
                entry.place = place;
                entry.node.stand_at(place);
            }),
            _ => {}
        }
    }

    fn is_empty_map(&self) -> bool {
        matches!(&self.content, Content::Map(entries) if entries.is_empty())
    }

    /// Takes the value at a path of indices out of what is read: an entry of a list becomes an empty section, and goes when that is
    /// wrong there too.
    pub fn remove(&mut self, path: &[usize]) {
        let Some((first, rest)) = path.split_first() else {
            self.content = Content::Map(Vec::new());
            return;
        };
        let is_list = matches!(self.content, Content::List(_));
        let child = match &mut self.content {
            Content::List(items) => items.get_mut(*first),
            Content::Map(entries) => entries.get_mut(*first).map(|entry| &mut entry.node),
            _ => None,
        };
        match child {
            // The entries behind it keep their numbers.
            Some(child) if rest.is_empty() && is_list && !child.is_empty_map() => child.content = Content::Map(Vec::new()),
            Some(child) if rest.is_empty() => child.content = Content::Gone,
            Some(child) => child.remove(rest),
            None => {}
        }
    }

    /// Every key that a file gives twice (up to as many as are told), under one name or under two. One value under two names is no harm.
    pub fn clashes(&self) -> (Vec<Clash>, Vec<Vec<usize>>) {
        let (mut clashes, mut repeated) = (Vec::new(), Vec::new());
        self.collect_clashes("", &WHOLE, &mut Vec::new(), &mut clashes, &mut repeated);
        (clashes, repeated)
    }

    fn collect_clashes(
        &self,
        path: &str,
        shape: &serde_json::Value,
        indices: &mut Vec<usize>,
        clashes: &mut Vec<Clash>,
        repeated: &mut Vec<Vec<usize>>,
    ) {
        if let Content::List(items) = &self.content {
            for (i, item) in items.iter().enumerate() {
                indices.push(i);
                item.collect_clashes(&format!("{path}[{i}]"), shape, indices, clashes, repeated);
                indices.pop();
            }
        }
        let entries = self.entries();
        let mut first: HashMap<String, &Entry> = HashMap::new();
        for (i, entry) in entries.iter().enumerate().filter(|(_, entry)| !entry.node.is_gone()) {
            if clashes.len() >= MOST {
                return;
            }
            let meant = real_name(shape, &entry.key);
            indices.push(i);
            let earlier = first.get(&meant).copied();
            first.entry(meant).or_insert(entry);
            match earlier {
                Some(earlier) if earlier.key == entry.key || !earlier.node.says(&entry.node) => clashes.push(Clash {
                    path: indices.clone(),
                    names: [earlier, entry].map(|entry| crate::section::dotted(path, &entry.key)),
                    places: [earlier.place, entry.place],
                }),
                Some(_) => repeated.push(indices.clone()),
                None => {}
            }
            let below = properties(shape).get(&entry.key).unwrap_or(&serde_json::Value::Null);
            entry.node.collect_clashes(&crate::section::dotted(path, &entry.key), below, indices, clashes, repeated);
            indices.pop();
        }
    }

    /// Whether both say the same: 1e-4 is 0.0001.
    pub fn says(&self, other: &Node) -> bool {
        match (&self.content, &other.content) {
            (Content::List(a), Content::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.says(b)),
            (Content::Map(a), Content::Map(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.key == b.key && a.node.says(&b.node))
            }
            (Content::Null, Content::Null) => true,
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a == b,
                _ => self.written().is_some() && self.written() == other.written(),
            },
        }
    }

    pub fn number(&self) -> Option<f64> {
        match self.content {
            Content::Unsigned(value, _) => Some(value as f64),
            Content::Signed(value, _) => Some(value as f64),
            Content::Float(value, _) => Some(value),
            _ => None,
        }
    }

    /// A scalar as it is written.
    pub fn written(&self) -> Option<&str> {
        match &self.content {
            Content::Bool(_, text) | Content::Unsigned(_, text) | Content::Signed(_, text) | Content::Float(_, text) => Some(text),
            Content::Text(text) => Some(text),
            Content::Null | Content::Gone | Content::List(_) | Content::Map(_) => None,
        }
    }

    /// Keeps the letters of numbers and booleans, since a text may be meant: `1.10`, `0777`.
    fn fill(&mut self, text: &str) {
        let span = self.span;
        match &mut self.content {
            Content::Bool(_, raw) | Content::Unsigned(_, raw) | Content::Signed(_, raw) | Content::Float(_, raw) => {
                *raw = text.get(span.0 as usize..span.1 as usize).unwrap_or_default().trim().to_string();
            }
            Content::List(items) => items.iter_mut().for_each(|item| item.fill(text)),
            Content::Map(entries) => entries.iter_mut().for_each(|entry| entry.node.fill(text)),
            Content::Null | Content::Gone | Content::Text(_) => {}
        }
    }
}

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

fn place(at: Location) -> Place {
    if at.line() > 0 { Place::File(short(at.line()), short(at.column())) } else { Place::Unknown }
}

fn node(read: Spanned<Node>) -> Node {
    let span = read.defined.span();
    let start = span.byte_offset().unwrap_or_default();
    let end = start + span.byte_len().unwrap_or_default();
    Node { place: place(read.referenced), content: read.value.content, span: (short(start), short(end)) }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        deserializer.deserialize_any(Read).map(|content| Node { content, ..Node::default() })
    }
}

struct Read;

macro_rules! scalars {
    ($($visit:ident($value:ident: $type:ty) => $content:expr,)*) => {
        $(fn $visit<E>(self, $value: $type) -> Result<Content, E> {
            Ok($content)
        })*
    };
}

impl<'de> Visitor<'de> for Read {
    type Value = Content;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any YAML")
    }

    scalars! {
        visit_bool(v: bool) => Content::Bool(v, String::new()),
        visit_u64(v: u64) => Content::Unsigned(v, String::new()),
        visit_i64(v: i64) => u64::try_from(v).map_or(Content::Signed(v, String::new()), |v| Content::Unsigned(v, String::new())),
        visit_u128(v: u128) => Content::Float(v as f64, String::new()),
        visit_i128(v: i128) => Content::Float(v as f64, String::new()),
        visit_f64(v: f64) => Content::Float(v, String::new()),
        visit_str(v: &str) => Content::Text(v.to_string()),
    }

    fn visit_unit<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_none<E>(self) -> Result<Content, E> {
        Ok(Content::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Content, D::Error> {
        deserializer.deserialize_any(Read)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Content, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(node(item));
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Content, A::Error> {
        let mut entries = Vec::new();
        while let Some(read) = map.next_key::<Spanned<Option<String>>>()? {
            let value = node(map.next_value()?);
            entries.push(Entry { key: read.value.unwrap_or_default(), place: place(read.referenced), node: value });
        }
        Ok(Content::Map(entries))
    }
}
