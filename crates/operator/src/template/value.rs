//! What expressions evaluate to, and how values print.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value as Json};

/// A value of a template. Cheap to clone.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(Arc<str>),
    /// A whole number.
    Int(i64),
    /// A truth value.
    Bool(bool),
    /// A sequence.
    List(Arc<[Value]>),
    /// Text by text; a key that is missing is an error for a field and the empty text for `index`.
    Map(Arc<BTreeMap<String, String>>),
    /// Named fields in their declared order.
    Record(Arc<[(&'static str, Value)]>),
    /// A field whose source does not exist: it counts as false, and any other use is an error with this reason.
    Absent(&'static str),
}

impl Value {
    /// A text.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// A list of texts.
    #[must_use]
    pub fn texts<'a>(texts: impl IntoIterator<Item = &'a String>) -> Self {
        Self::List(texts.into_iter().map(|t| Self::text(t)).collect())
    }

    /// Whether `if` takes the first branch: zero, empty, false and absent do not.
    pub(super) fn is_true(&self) -> bool {
        match self {
            Self::Text(text) => !text.is_empty(),
            Self::Int(number) => *number != 0,
            Self::Bool(truth) => *truth,
            Self::List(items) => !items.is_empty(),
            Self::Map(entries) => !entries.is_empty(),
            Self::Record(_) => true,
            Self::Absent(_) => false,
        }
    }

    /// What the value is called in messages.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "a text",
            Self::Int(_) => "a number",
            Self::Bool(_) => "a truth value",
            Self::List(_) => "a list",
            Self::Map(_) => "a map",
            Self::Record(_) => "a record",
            Self::Absent(_) => "absent",
        }
    }

    /// Roughly how many bytes it takes to look at all of the value.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Int(_) | Self::Bool(_) | Self::Absent(_) => 1,
            Self::List(items) => items.iter().map(|item| item.weight() + 1).sum(),
            Self::Map(entries) => entries.iter().map(|(k, v)| k.len() + v.len() + 2).sum(),
            Self::Record(fields) => fields.iter().map(|(name, value)| name.len() + value.weight() + 2).sum(),
        }
    }

    /// The reason why the value, or a part of it, does not exist.
    pub(super) fn absence(&self) -> Option<&'static str> {
        match self {
            Self::Absent(reason) => Some(reason),
            Self::List(items) => items.iter().find_map(Self::absence),
            Self::Record(fields) => fields.iter().find_map(|(_, value)| value.absence()),
            Self::Text(_) | Self::Int(_) | Self::Bool(_) | Self::Map(_) => None,
        }
    }

    /// The value as JSON; absent parts are null.
    pub(super) fn to_json(&self) -> Json {
        match self {
            Self::Text(text) => Json::String(text.to_string()),
            Self::Int(number) => Json::from(*number),
            Self::Bool(truth) => Json::Bool(*truth),
            Self::List(items) => Json::Array(items.iter().map(Self::to_json).collect()),
            Self::Map(entries) => {
                Json::Object(entries.iter().map(|(k, v)| (k.clone(), Json::String(v.clone()))).collect())
            }
            Self::Record(fields) => {
                let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_json()));
                Json::Object(fields.collect::<Map<_, _>>())
            }
            Self::Absent(_) => Json::Null,
        }
    }
}

impl fmt::Display for Value {
    /// As Go prints: `[a b]` for lists, `map[k:v]` for maps, `{a b}` for records.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn spaced<T>(
            f: &mut fmt::Formatter<'_>,
            items: impl Iterator<Item = T>,
            mut one: impl FnMut(&mut fmt::Formatter<'_>, T) -> fmt::Result,
        ) -> fmt::Result {
            for (i, item) in items.enumerate() {
                if i > 0 {
                    f.write_str(" ")?;
                }
                one(f, item)?;
            }
            Ok(())
        }
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Int(number) => write!(f, "{number}"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::List(items) => {
                f.write_str("[")?;
                spaced(f, items.iter(), |f, item| fmt::Display::fmt(item, f))?;
                f.write_str("]")
            }
            Self::Map(entries) => {
                f.write_str("map[")?;
                spaced(f, entries.iter(), |f, (k, v)| write!(f, "{k}:{v}"))?;
                f.write_str("]")
            }
            Self::Record(fields) => {
                f.write_str("{")?;
                spaced(f, fields.iter(), |f, (_, value)| fmt::Display::fmt(value, f))?;
                f.write_str("}")
            }
            Self::Absent(_) => f.write_str("<absent>"),
        }
    }
}
