//! Values that are read strictly: booleans only from `true`/`false`, whole numbers also from `1e3`, numbers never from text.

use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;

/// `true` or `false`, and nothing that merely looks like one of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Flag(pub bool);

/// A whole number, 0 or more; `1e3` is 1000.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Whole(pub u64);

/// A finite number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Number(pub f64);

/// One number, or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Numbers(pub Vec<Number>);

/// As people write it: neither 300 digits nor an exponent where there are few.
impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self.0 == 0.0 || (1e-4..1e9).contains(&self.0.abs());
        if plain { write!(f, "{}", self.0) } else { write!(f, "{:e}", self.0) }
    }
}

/// Beyond this a factor is a slip of the keyboard.
const LARGEST_FACTOR: f64 = 1e6;

impl Number {
    /// The number, unless no factor is as large.
    pub fn within_reason(self, key: &str) -> anyhow::Result<f64> {
        anyhow::ensure!(self.0.abs() <= LARGEST_FACTOR, "{key}: {self} is far beyond any useful value; at most 1000000");
        Ok(self.0)
    }
}

/// A square by its side, or a rectangle written `768x1152`: width and height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Size {
    Side(u64),
    Sides(u64, u64),
}

/// One size, or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Sizes(pub Vec<Size>);

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Size::Side(side) => serializer.serialize_u64(*side),
            Size::Sides(width, height) => serializer.serialize_str(&format!("{width}x{height}")),
        }
    }
}

/// One text, or a list of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Texts(pub Vec<String>);

/// `true`, `false`, a word, or a list of names.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum FlagOrTexts {
    Flag(bool),
    Text(String),
    Texts(Vec<String>),
}

/// A text, or `false` for "none".
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct TextOrFalse(pub String);

/// A number, or a text such as `8GB`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum WholeOrText {
    Whole(u64),
    Text(String),
}

/// Writes `Deserialize` for a type from a closure per kind of YAML value; the kinds not given are type errors.
macro_rules! read_any {
    ($type:ty, $expected:literal { $($kind:ident($value:ident: $from:ty) => $body:expr,)* } $(seq => $collect:expr)?) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Read;
                impl<'de> Visitor<'de> for Read {
                    type Value = $type;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    $(fn $kind<E: Error>(self, $value: $from) -> Result<$type, E> { $body })*
                    $(fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<$type, A::Error> {
                        let mut items = Vec::new();
                        while let Some(item) = seq.next_element()? {
                            items.push(item);
                        }
                        Ok($collect(items))
                    })?
                }
                deserializer.deserialize_any(Read)
            }
        }
    };
}

read_any!(Flag, "true or false" { visit_bool(v: bool) => Ok(Flag(v)), });
read_any!(Whole, "a whole number, 0 or more" {
    visit_u64(v: u64) => Ok(Whole(v)),
    visit_i64(v: i64) => whole(v).map(Whole),
    visit_f64(v: f64) => whole_float(v).map(Whole),
});
read_any!(Number, "a number" {
    visit_u64(v: u64) => Ok(Number(v as f64)),
    visit_i64(v: i64) => Ok(Number(v as f64)),
    visit_f64(v: f64) => Ok(Number(v)),
});
read_any!(Numbers, "a number or a list of numbers" {
    visit_u64(v: u64) => Ok(Numbers(vec![Number(v as f64)])),
    visit_i64(v: i64) => Ok(Numbers(vec![Number(v as f64)])),
    visit_f64(v: f64) => Ok(Numbers(vec![Number(v)])),
} seq => Numbers);
read_any!(Size, "a side in pixels, or width and height such as 768x1152" {
    visit_u64(v: u64) => Ok(Size::Side(v)),
    visit_i64(v: i64) => whole(v).map(Size::Side),
    visit_f64(v: f64) => whole_float(v).map(Size::Side),
    visit_str(v: &str) => sides(v),
});
read_any!(Sizes, "a size or a list of them" {
    visit_u64(v: u64) => Ok(Sizes(vec![Size::Side(v)])),
    visit_i64(v: i64) => Ok(Sizes(vec![Size::Side(whole(v)?)])),
    visit_f64(v: f64) => Ok(Sizes(vec![Size::Side(whole_float(v)?)])),
    visit_str(v: &str) => Ok(Sizes(vec![sides(v)?])),
} seq => Sizes);
read_any!(Texts, "a text or a list of texts" { visit_str(v: &str) => Ok(Texts(vec![v.to_string()])), } seq => Texts);
read_any!(FlagOrTexts, "true, false, a word or a list of texts" {
    visit_bool(v: bool) => Ok(FlagOrTexts::Flag(v)),
    visit_str(v: &str) => Ok(FlagOrTexts::Text(v.to_string())),
} seq => FlagOrTexts::Texts);
read_any!(TextOrFalse, "a text, or false for none" {
    visit_str(v: &str) => Ok(TextOrFalse(v.to_string())),
    visit_bool(v: bool) => if v { Err(E::invalid_value(Unexpected::Bool(true), &"a text, or false for none")) } else { Ok(TextOrFalse(String::new())) },
});
read_any!(WholeOrText, "a number of bytes, or a text such as 8GB" {
    visit_u64(v: u64) => Ok(WholeOrText::Whole(v)),
    visit_i64(v: i64) => whole(v).map(WholeOrText::Whole),
    visit_f64(v: f64) => whole_float(v).map(WholeOrText::Whole),
    visit_str(v: &str) => Ok(WholeOrText::Text(v.to_string())),
});

/// `768x1152`
fn sides<E: Error>(text: &str) -> Result<Size, E> {
    let sides = text.split_once(['x', 'X', '×']).and_then(|(w, h)| Some(Size::Sides(w.trim().parse().ok()?, h.trim().parse().ok()?)));
    sides.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &"a side in pixels, or width and height such as 768x1152"))
}

fn whole<E: Error>(value: i64) -> Result<u64, E> {
    u64::try_from(value)
        .map_err(|_| E::custom(format!("{value} is negative; give a whole number, 0 or more (0 switches off what has an interval)")))
}

/// Whole numbers written like `1e3` arrive as floats; up to 2⁵³ they are exact.
fn whole_float<E: Error>(value: f64) -> Result<u64, E> {
    let exact = value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value);
    if exact { Ok(value as u64) } else { Err(E::invalid_value(Unexpected::Float(value), &"a whole number, 0 or more")) }
}
