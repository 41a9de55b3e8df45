//! Key patterns: literal text with numbers in it, `unet.down_blocks.{i}.resnets.{j}.conv1.weight`.
//!
//! `{i}`, `{j}`, `{k}` stand for a number as written. Original checkpoints count blocks otherwise; with L layers per block
//! (a resolution has L residual blocks and, on the way down, one more entry for its downsampler):
//!
//! | placeholder | the number written there | meaning |
//! | --- | --- | --- |
//! | `{in}` | 1 + i·(L+1) + j, j < L | entry j of `input_blocks` at resolution i |
//! | `{down}` | (i+1)·(L+1) | the downsampler after resolution i |
//! | `{out}` | i·(L+1) + j | entry j of `output_blocks` at resolution i |
//! | `{up}` | i·(L+1) + L | the entry that ends with the upsampler of resolution i |
//! | `{slot}` | 2 if resolution i has attention on the way up, else 1 | the upsampler's place in that entry |
//! | `{rev}` | V − 1 − i, V = resolutions of the VAE | `decoder.up`, counted from the fine end |

use super::Blocks;

/// Values of i, j, k.
pub type Indices = [Option<usize>; 3];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Number {
    Plain(usize),
    In,
    Down,
    Out,
    Up,
    Slot,
    Reversed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Number(Number),
}

/// A parsed pattern. It matches whole keys only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern(Vec<Piece>);

impl Pattern {
    /// Parses a pattern of the tables; an unknown placeholder is a bug there.
    pub fn new(text: &str) -> Pattern {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').expect("each brace of a pattern is closed");
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            pieces.push(Piece::Number(match name {
                "i" => Number::Plain(0),
                "j" => Number::Plain(1),
                "k" => Number::Plain(2),
                "in" => Number::In,
                "down" => Number::Down,
                "out" => Number::Out,
                "up" => Number::Up,
                "slot" => Number::Slot,
                "rev" => Number::Reversed,
                other => panic!("the key tables know no placeholder {{{other}}}"),
            }));
            rest = after;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest.to_owned()));
        }
        Pattern(pieces)
    }

    /// The text before the first number.
    pub fn start(&self) -> &str {
        match self.0.first() {
            Some(Piece::Text(text)) => text,
            _ => "",
        }
    }

    /// The numbers in `key`, if the whole of it has this form.
    pub fn read(&self, key: &str, blocks: &Blocks) -> Option<Indices> {
        let mut indices = [None; 3];
        let mut rest = key;
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                Piece::Number(number) => {
                    let (value, after) = leading_number(rest)?;
                    number.read(value, &mut indices, blocks)?;
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(indices)
    }

    /// The key with these numbers; `None` if one is missing or out of the model's range.
    pub fn write(&self, indices: &Indices, blocks: &Blocks) -> Option<String> {
        let mut key = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => key.push_str(text),
                Piece::Number(number) => key.push_str(&number.write(indices, blocks)?.to_string()),
            }
        }
        Some(key)
    }
}

/// Splits a number off the front: at most four digits, no leading zeros.
fn leading_number(text: &str) -> Option<(usize, &str)> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    if !(1..=4).contains(&digits) || (digits > 1 && text.starts_with('0')) {
        return None;
    }
    Some((text[..digits].parse().ok()?, &text[digits..]))
}

impl Number {
    fn read(self, value: usize, indices: &mut Indices, blocks: &Blocks) -> Option<()> {
        let layers = blocks.layers;
        let mut set = |at: usize, value: usize| match indices[at].replace(value) {
            Some(old) if old != value => None,
            _ => Some(()),
        };
        match self {
            Number::Plain(at) => set(at, value),
            Number::In => {
                let n = value.checked_sub(1)?;
                (n % (layers + 1) < layers).then_some(())?;
                set(0, n / (layers + 1))?;
                set(1, n % (layers + 1))
            }
            Number::Down => (value.is_multiple_of(layers + 1)).then_some(()).and_then(|()| set(0, (value / (layers + 1)).checked_sub(1)?)),
            Number::Out => {
                set(0, value / (layers + 1))?;
                set(1, value % (layers + 1))
            }
            Number::Up => (value % (layers + 1) == layers).then_some(()).and_then(|()| set(0, value / (layers + 1))),
            Number::Slot => (value == blocks.upsampler_slot(indices[0]?)).then_some(()),
            Number::Reversed => set(0, (blocks.vae_levels).checked_sub(value + 1)?),
        }
    }

    fn write(self, indices: &Indices, blocks: &Blocks) -> Option<usize> {
        let layers = blocks.layers;
        let [i, j, _] = *indices;
        match self {
            Number::Plain(at) => indices[at],
            Number::In => (j? < layers).then_some(1 + i? * (layers + 1) + j?),
            Number::Down => Some((i? + 1) * (layers + 1)),
            Number::Out => (j? <= layers).then_some(i? * (layers + 1) + j?),
            Number::Up => Some(i? * (layers + 1) + layers),
            Number::Slot => Some(blocks.upsampler_slot(i?)),
            Number::Reversed => blocks.vae_levels.checked_sub(i? + 1),
        }
    }
}
