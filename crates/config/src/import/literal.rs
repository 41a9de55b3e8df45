//! `key=value` pairs whose values are Python literals, as in `--optimizer_args`.

use serde_json::{Map, Number, Value};

/// Splits pairs at their first `=`; an error names the one without.
pub(super) fn pairs(items: &[String]) -> Result<Vec<(String, String)>, String> {
    let pair = |item: &String| {
        let (key, value) = item.split_once('=').ok_or_else(|| format!("`{item}` lacks a `=`; write key=value"))?;
        Ok((key.trim().to_string(), value.trim().to_string()))
    };
    items.iter().filter(|item| !item.trim().is_empty()).map(pair).collect()
}

pub(super) fn map(items: &[String]) -> Result<Map<String, Value>, String> {
    Ok(pairs(items)?.into_iter().map(|(key, value)| (key, literal(&value))).collect())
}

/// Numbers, `True`, `False`, `None`, quoted texts, tuples and lists, also `0.9,0.99` without brackets; anything else is a text.
pub(super) fn literal(text: &str) -> Value {
    let text = text.trim();
    let inside = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if let Some(inner) = inside('(', ')').or_else(|| inside('[', ']')) {
        return list(inner);
    }
    if let Some(inner) = inside('"', '"').or_else(|| inside('\'', '\'')) {
        return Value::from(inner);
    }
    match text {
        "True" | "true" => Value::Bool(true),
        "False" | "false" => Value::Bool(false),
        "None" => Value::Null,
        _ => number(text).unwrap_or_else(|| if text.contains(',') { list(text) } else { Value::from(text) }),
    }
}

fn list(inner: &str) -> Value {
    inner.split(',').filter(|item| !item.trim().is_empty()).map(literal).collect()
}

fn number(text: &str) -> Option<Value> {
    if let Ok(whole) = text.parse::<i64>() {
        return Some(whole.into());
    }
    // Rust would also read `inf` and `nan`.
    text.parse().ok().and_then(Number::from_f64).map(Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn python_literals_become_values() {
        for (text, value) in [
            ("0.01", json!(0.01)),
            ("1e-4", json!(1e-4)),
            ("10", json!(10)),
            ("True", json!(true)),
            ("None", json!(null)),
            ("(0.9, 0.99)", json!([0.9, 0.99])),
            ("[1]", json!([1])),
            ("0.9,0.99", json!([0.9, 0.99])),
            ("'a b'", json!("a b")),
            ("cosine", json!("cosine")),
            ("nan", json!("nan")),
            ("(", json!("(")),
            ("'", json!("'")),
        ] {
            assert_eq!(literal(text), value, "{text}");
        }
        assert!(pairs(&["a".to_string()]).unwrap_err().contains("`a`"));
        assert_eq!(pairs(&["a=b=c".to_string(), " ".to_string()]).unwrap(), [("a".to_string(), "b=c".to_string())]);
    }
}
