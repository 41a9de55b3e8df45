//! Typed reading of a [`tree`](crate::tree): all that is wrong with it, not only the first.

use crate::error::{Kind, Wrong};
use crate::section::dotted;
use crate::tree::{Content, Node, Place};
use serde::de::value::StrDeserializer;
use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, Error, Expected, MapAccess, SeqAccess, Unexpected, Visitor};
use std::fmt;

/// Beyond this many errors a file is not mended but replaced.
pub(crate) const MOST: usize = 100;

/// Reads a value as far as it can be read. What is wrong is kept, and left out.
pub(crate) fn read<T: DeserializeOwned + Default>(root: &mut Node, wrong: &mut Vec<Wrong>) -> T {
    let mut last = None;
    while wrong.len() < MOST {
        match T::deserialize(At { node: root, place: root.place, above: None }) {
            Ok(value) => return value,
            Err(failure) => {
                root.remove(&failure.indices);
                if last.as_ref() != Some(&failure.indices) {
                    wrong.push(Wrong { name: failure.name, place: failure.place, kind: failure.kind });
                }
                last = Some(failure.indices);
            }
        }
    }
    T::default()
}

/// A value of the tree, and how it is reached: its name is put together only for errors, since a file is read again after each.
struct At<'a> {
    node: &'a Node,
    place: Place,
    /// What holds it, and its index there.
    above: Option<(&'a At<'a>, usize)>,
}

impl<'a> At<'a> {
    fn below(&'a self, index: usize, place: Place, node: &'a Node) -> At<'a> {
        At { node, place, above: Some((self, index)) }
    }

    fn indices(&self) -> Vec<usize> {
        let mut indices: Vec<usize> = std::iter::successors(self.above, |(at, _)| at.above).map(|(_, index)| index).collect();
        indices.reverse();
        indices
    }

    /// As errors name it.
    fn name(&self) -> String {
        let Some((above, index)) = self.above else { return String::new() };
        match above.node.entries().get(index) {
            Some(entry) => dotted(&above.name(), &entry.key),
            None => format!("{}[{index}]", above.name()),
        }
    }
}

/// What a type says of a value that is not like it; the value's name and place are added where it was handed over.
#[derive(Debug)]
struct Failure {
    kind: Kind,
    is_placed: bool,
    name: String,
    place: Place,
    indices: Vec<usize>,
}

impl Failure {
    fn new(kind: Kind) -> Failure {
        Failure { kind, is_placed: false, name: String::new(), place: Place::Unknown, indices: Vec::new() }
    }

    fn at(self, at: &At) -> Failure {
        if self.is_placed {
            return self;
        }
        Failure { kind: self.kind, is_placed: true, name: at.name(), place: at.place, indices: at.indices() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind)
    }
}

impl std::error::Error for Failure {}

impl Error for Failure {
    fn custom<T: fmt::Display>(text: T) -> Failure {
        Failure::new(Kind::Value(text.to_string()))
    }

    fn unknown_field(key: &str, expected: &'static [&'static str]) -> Failure {
        Failure::new(Kind::Key(key.to_string(), expected))
    }

    fn invalid_type(found: Unexpected, expected: &dyn Expected) -> Failure {
        Failure::custom(format!("expected {}, found {}", in_words(&expected.to_string()), shown(&found)))
    }

    fn invalid_value(found: Unexpected, expected: &dyn Expected) -> Failure {
        Failure::invalid_type(found, expected)
    }
}

/// What serde calls types, as users know them.
fn in_words(expected: &str) -> &str {
    match expected {
        "a string" => "a text",
        "a sequence" => "a list: each entry on its own line after `- `",
        "a map" => "keys with values",
        section if section.starts_with("struct ") => "keys with values",
        other => other,
    }
}

fn shown(found: &Unexpected) -> String {
    match found {
        Unexpected::Bool(value) => value.to_string(),
        Unexpected::Unsigned(value) => format!("the number {value}"),
        Unexpected::Signed(value) => format!("the number {value}"),
        Unexpected::Float(value) => format!("the number {}", crate::scalar::Number(*value)),
        Unexpected::Str(text) => format!("the text \"{}\"", base::excerpt(text, 80)),
        Unexpected::Seq => "a list".to_string(),
        Unexpected::Map => "keys with values".to_string(),
        Unexpected::Unit | Unexpected::Option => "nothing".to_string(),
        other => other.to_string(),
    }
}

impl<'de> Deserializer<'de> for At<'_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let read = match &self.node.content {
            Content::Null | Content::Gone => visitor.visit_unit(),
            Content::Bool(value, _) => visitor.visit_bool(*value),
            Content::Unsigned(value, _) => visitor.visit_u64(*value),
            Content::Signed(value, _) => visitor.visit_i64(*value),
            Content::Float(value, _) if !value.is_finite() => Err(Failure::custom("must be a finite number")),
            Content::Float(value, _) => visitor.visit_f64(*value),
            Content::Text(text) => visitor.visit_str(text),
            Content::List(items) => visitor.visit_seq(Items { at: &self, items, next: 0 }),
            Content::Map(_) => visitor.visit_map(Entries { at: &self, next: 0 }),
        };
        read.map_err(|failure| failure.at(&self))
    }

    /// A text may look like a number: it keeps its letters.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.node.written() {
            Some(text) => visitor.visit_str(text).map_err(|failure: Failure| failure.at(&self)),
            None => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.node.content {
            Content::Null | Content::Gone => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    /// A section is given by its keys, never by a list of values.
    fn deserialize_struct<V: Visitor<'de>>(self, _: &'static str, _: &'static [&'static str], visitor: V) -> Result<V::Value, Failure> {
        match self.node.content {
            Content::List(_) => Err(Failure::invalid_type(Unexpected::Seq, &visitor).at(&self)),
            // An entry of a list with nothing behind its dash.
            Content::Null => visitor.visit_map(Entries { at: &self, next: 0 }),
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf unit unit_struct seq tuple tuple_struct map enum
        identifier ignored_any
    }
}

struct Items<'a> {
    at: &'a At<'a>,
    items: &'a [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for Items<'_> {
    type Error = Failure;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        while let Some(item) = self.items.get(self.next) {
            let at = self.at.below(self.next, item.place, item);
            self.next += 1;
            if !matches!(item.content, Content::Gone) {
                return seed.deserialize(at).map(Some);
            }
        }
        Ok(None)
    }
}

struct Entries<'a> {
    at: &'a At<'a>,
    next: usize,
}

impl<'a> Entries<'a> {
    /// The entry that was read last.
    fn current(&self) -> Option<At<'a>> {
        let index = self.next.checked_sub(1)?;
        let entry = self.at.node.entries().get(index)?;
        Some(self.at.below(index, entry.place, &entry.node))
    }
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        while let Some(entry) = self.at.node.entries().get(self.next) {
            self.next += 1;
            if matches!(entry.node.content, Content::Gone) {
                continue;
            }
            let read: Result<K::Value, Failure> = seed.deserialize(StrDeserializer::new(&entry.key));
            let at = self.current();
            return read.map(Some).map_err(|failure| match &at {
                Some(at) => failure.at(at),
                None => failure,
            });
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Failure> {
        let at = self.current().ok_or_else(|| Failure::custom("there is no value"))?;
        seed.deserialize(at)
    }
}
