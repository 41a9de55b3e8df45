//! `--set train.lr=1e-4`: the value is read as YAML and laid over the file's tree, so that it is judged as the file is.

use crate::error::{Kind, Wrong, message};
use crate::schema::{WHOLE, properties, real_name};
use crate::section::dotted;
use crate::tree::{Content, Entry, Node, Place, parse};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

/// Lays all overrides over a run. `datasets.0.resolution` addresses an entry of a list.
pub(crate) fn apply(tree: &mut Node, overrides: &[(String, String)], wrong: &mut Vec<Wrong>) {
    for (i, (key, value)) in overrides.iter().enumerate() {
        let place = Place::Set(i as u32);
        let parts: Vec<&str> = key.split('.').collect();
        let laid = read(key, value, place).and_then(|node| Layer { overrides, place }.lay(tree, "", &WHOLE, &parts, node));
        if let Err(error) = laid {
            wrong.push(Wrong { name: key.clone(), place, kind: Kind::Sentence(format!("{error:#}")) });
        }
    }
}

/// The value, every part of which stands at `place`.
fn read(key: &str, value: &str, place: Place) -> Result<Node> {
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    ensure!(key.split('.').all(is_name), "`{key}` is not a key");
    ensure!(!value.contains('\n'), "the value must be one line");
    // Behind a key, as in a file: a value that holds a key itself needs braces.
    let mut document = parse(&format!("value: {value}")).map_err(|e| anyhow::anyhow!("{}", message(&e)))?;
    let mut node = document.take("value").map(|entry| entry.node).unwrap_or_default();
    if matches!(node.content, Content::Null) {
        let is_text = allows_text(shape_of(&WHOLE, key));
        bail!("the value is missing; {}", if is_text { "write '\"\"' for an empty text" } else { "give one, or leave this --set out" });
    }
    node.stand_at(place);
    Ok(node)
}

/// One of the overrides.
struct Layer<'a> {
    overrides: &'a [(String, String)],
    place: Place,
}

impl Layer<'_> {
    /// Goes down to where `parts` lead, making sections on the way, and lays the value there.
    fn lay(&self, under: &mut Node, path: &str, shape: &Value, parts: &[&str], value: Node) -> Result<()> {
        let Some((part, rest)) = parts.split_first() else { return self.merge(under, path, shape, value) };
        if let Ok(index) = part.parse::<usize>()
            && under.written().is_none()
        {
            let item = item(under, path, index)?;
            return self.lay(item, &format!("{path}[{index}]"), shape, rest, value);
        }
        if matches!(under.content, Content::Null | Content::Gone) {
            under.place = self.place;
            under.content = Content::Map(Vec::new());
        }
        match &mut under.content {
            Content::Map(entries) => {
                let entry = entry(entries, part, shape, self.place);
                if rest.is_empty() {
                    entry.key = part.to_string();
                    let is_merged = matches!((&entry.node.content, &value.content), (Content::Map(_), Content::Map(_)));
                    entry.place = if is_merged { entry.place } else { self.place };
                }
                let below = properties(shape).get(*part).unwrap_or(&Value::Null);
                self.lay(&mut entry.node, &dotted(path, part), below, rest, value)
            }
            Content::List(_) => bail!("`{path}` is a list; say which of its entries is meant, as in {path}.0.{}", parts.join(".")),
            // No section where the config has one, which is told where the file is read.
            _ if is_section(shape) => Ok(()),
            _ => bail!("{path} is {}, which has no keys below it", standing(under)),
        }
    }

    /// Sections are merged, everything else replaced; but what another `--set` says is not.
    fn merge(&self, under: &mut Node, path: &str, shape: &Value, value: Node) -> Result<()> {
        match value {
            Node { content: Content::Map(entries), .. } if matches!(under.content, Content::Map(_)) => {
                entries.into_iter().try_for_each(|entry| self.lay(under, path, shape, &[entry.key.as_str()], entry.node))
            }
            value => {
                if let Place::Set(other) = under.place
                    && !matches!(under.content, Content::Null)
                    && !under.says(&value)
                {
                    let (key, other) = self.overrides.get(other as usize).context("only overrides stand there")?;
                    bail!("{path} has another value by --set {key}={other}; keep one");
                }
                *under = value;
                Ok(())
            }
        }
    }
}

/// The shape of the value that a dotted key leads to.
fn shape_of<'a>(shape: &'a Value, key: &str) -> &'a Value {
    let names = key.split('.').filter(|part| part.parse::<usize>().is_err());
    names.fold(shape, |shape, name| properties(shape).get(name).unwrap_or(&Value::Null))
}

fn allows_text(shape: &Value) -> bool {
    let is_text = |types: &Value| types == "string" || types.as_array().is_some_and(|types| types.contains(&"string".into()));
    is_text(&shape["type"]) || shape["anyOf"].as_array().is_some_and(|shapes| shapes.iter().any(|shape| is_text(&shape["type"])))
}

/// Whether keys belong below a key of this shape.
fn is_section(shape: &Value) -> bool {
    !properties(shape).is_empty() || shape["type"].as_array().is_some_and(|types| types.contains(&"object".into()))
}

/// A value in words, with its line.
fn standing(node: &Node) -> String {
    let text = base::excerpt(node.written().unwrap_or_default(), 80);
    let value = match node.content {
        Content::Bool(..) => text,
        Content::Text(_) => format!("the text \"{text}\""),
        _ => format!("the number {text}"),
    };
    match node.place {
        Place::File(line, _) => format!("{value} (line {line})"),
        Place::Set(_) | Place::Unknown => value,
    }
}

/// An entry of a list.
fn item<'a>(under: &'a mut Node, path: &str, index: usize) -> Result<&'a mut Node> {
    let count = under.items().len();
    let noun = if path == "datasets" { "dataset" } else { "entry" };
    let Content::List(items) = &mut under.content else { bail!("only entries of lists are addressed by number, as in datasets.0") };
    let Some(item) = items.get_mut(index) else { bail!("{path} has {}, counted from 0", base::counted(count, noun)) };
    if matches!(item.content, Content::Null) {
        item.content = Content::Map(Vec::new());
    }
    Ok(item)
}

/// The entry of a key, under whichever of its names the file has it; one without a value where it has none.
fn entry<'a>(entries: &'a mut Vec<Entry>, key: &str, shape: &Value, place: Place) -> &'a mut Entry {
    let real = real_name(shape, key);
    let is_same = |entry: &Entry| real_name(shape, &entry.key) == real;
    let at = entries.iter().position(is_same).unwrap_or_else(|| {
        entries.push(Entry { key: key.to_string(), place, node: Node::default() });
        entries.len() - 1
    });
    // Another name of it in the file counts no more than the first.
    let mut i = 0;
    entries.retain(|entry| {
        i += 1;
        i - 1 <= at || !is_same(entry)
    });
    &mut entries[at]
}
