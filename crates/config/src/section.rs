//! The raw form of a section: one line per key.
//!
//! Beside its own keys a section lists ai-toolkit's keys that make no difference here (a notice with the reason) and those that
//! would change the result and can't be done yet (refused, unless they hold a value that means "off").

use crate::findings::Findings;
use serde_json::Value;

/// Declares a raw section: a struct with every key optional, unknown keys refused, `check_foreign`, and its part of the schema.
macro_rules! section {
    (
        $(#[$outer:meta])*
        $name:ident { $($(#[doc = $doc:literal])* $(#[serde($($serde:tt)*)])* $field:ident: $type:ty,)* }
        no effect { $($inert:ident: $kind:ty => $reason:expr,)* }
        not yet { $($later:ident: $($neutral:literal)|+,)* }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, default)]
        #[allow(non_snake_case)]
        pub(crate) struct $name {
            $($(#[doc = $doc])* $(#[serde($($serde)*)])* pub $field: Option<$type>,)*
            $($inert: Option<$kind>,)*
            $($later: Option<serde_json::Value>,)*
        }

        impl $name {
            /// Notices for keys without effect; an error for each that would have one and can't be honoured.
            #[allow(unused_variables)]
            pub fn check_foreign(&self, section: &str, findings: &mut crate::findings::Findings) {
                $(crate::section::notice(self.$inert.is_some(), section, stringify!($inert), $reason, findings);)*
                $(
                    let neutral = [$(serde_json::json!($neutral)),+];
                    crate::section::refuse(self.$later.as_ref(), section, stringify!($later), &neutral, findings);
                )*
            }
        }

        impl crate::schema::Shape for $name {
            fn shape() -> serde_json::Value {
                let mut section = crate::schema::Section::default();
                $(section.key(stringify!($field), &[$($doc),*], &[$(stringify!($($serde)*)),*], <$type as crate::schema::Shape>::shape());)*
                $(section.inert(stringify!($inert), $reason, <$kind as crate::schema::Shape>::shape());)*
                $(section.later(stringify!($later), &[$(serde_json::json!($neutral)),+]);)*
                section.finish()
            }
        }
    };
}
pub(crate) use section;

/// `train` and `lr` make `train.lr`; the top level has no section name.
pub(crate) fn dotted(section: &str, key: &str) -> String {
    if section.is_empty() { key.to_string() } else { format!("{section}.{key}") }
}

pub(crate) fn notice(given: bool, section: &str, key: &str, reason: &str, findings: &mut Findings) {
    if given {
        findings.notice(format!("{} has no effect here: {reason}", dotted(section, key)));
    }
}

/// A key that can't be honoured is an error, unless it is off.
pub(crate) fn refuse(value: Option<&Value>, section: &str, key: &str, neutral: &[Value], findings: &mut Findings) {
    if let Some(value) = value.filter(|value| !is_off(value, neutral)) {
        let kind = match neutral.first() {
            Some(Value::Bool(_)) if !value.is_boolean() => ", which is neither true nor false,",
            Some(Value::Number(_)) if !value.is_number() => ", which is no number,",
            _ => "",
        };
        let path = dotted(section, key);
        // Without the key it would be the same model.
        let is_family = section == "model" && key.starts_with("is_") && kind.is_empty();
        findings.wrong(match is_family {
            true => format!("{path}: {value}: that family of models is not supported yet; SD 1.x and 2.x are"),
            false => format!("{path}: {value}{kind} is not supported yet; remove the key"),
        });
    }
}

/// Whether a key says that its thing is not wanted: a neutral value, or, where that is a text, an empty value of any kind.
fn is_off(value: &Value, neutral: &[Value]) -> bool {
    let is_empty = match value {
        Value::Null => return true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    neutral.iter().any(|neutral| same(neutral, value) || (is_empty && neutral.is_string()))
}

/// Equality in which 1 and 1.0 are the same number.
fn same(a: &Value, b: &Value) -> bool {
    match (a.as_f64(), b.as_f64()) {
        (Some(a), Some(b)) => a == b,
        _ => a == b,
    }
}

/// The keys (and aliases) of a raw section, as its `Deserialize` declares them: what the schema is held to.
#[cfg(test)]
pub(crate) fn keys_of<'de, T: serde::Deserialize<'de>>() -> &'static [&'static str] {
    struct Capture<'a>(&'a mut &'static [&'static str]);
    impl<'de> serde::Deserializer<'de> for Capture<'_> {
        type Error = serde::de::value::Error;
        fn deserialize_any<V: serde::de::Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
            Err(serde::de::Error::custom("only structs have keys"))
        }
        fn deserialize_struct<V: serde::de::Visitor<'de>>(
            self,
            _: &'static str,
            keys: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Self::Error> {
            *self.0 = keys;
            Err(serde::de::Error::custom("captured"))
        }
        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
            seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut keys: &'static [&'static str] = &[];
    let _ = T::deserialize(Capture(&mut keys));
    keys
}
