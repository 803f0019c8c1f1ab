//! What a flag takes, and how its text is read.

use std::path::PathBuf;
use std::time::Duration;

use bigfleet_types::duration;

/// What a flag takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// Any text; empty means unset.
    Text,
    /// Any text but the empty one.
    Required,
    /// `host:port`; an empty host is every interface. Empty means unset.
    Address,
    /// The same, or `0` for no listener.
    AddressOrOff,
    /// `true` or `false`.
    Bool,
    /// A duration, zero included.
    Duration,
    /// A duration above zero.
    PositiveDuration,
    /// An integer of at least this.
    Count(u64),
    /// A number in [0, 1].
    Fraction,
    /// A number of at least 0.
    Rate,
    /// A size in bytes of at most this, with an optional binary suffix (`64Mi`).
    Bytes(u64),
    /// A file or folder; empty means unset.
    Path,
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// A setting that has been read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Text, address, path or choice.
    Text(String),
    /// A switch.
    Bool(bool),
    /// A duration.
    Duration(Duration),
    /// A count or a size.
    Count(u64),
    /// A fraction or a rate.
    Number(f64),
}

impl Kind {
    pub(super) fn placeholder(self) -> &'static str {
        match self {
            Self::Text | Self::Required => "TEXT",
            Self::Address | Self::AddressOrOff => "HOST:PORT",
            Self::Bool => "BOOL",
            Self::Duration | Self::PositiveDuration => "DURATION",
            Self::Count(_) => "N",
            Self::Fraction | Self::Rate => "NUMBER",
            Self::Bytes(_) => "BYTES",
            Self::Path => "PATH",
            Self::Choice(_) => "WORD",
        }
    }

    /// Reads a value of this kind, or says what is wrong with it.
    pub(super) fn parse(self, text: &str) -> Result<Value, String> {
        let as_text = || Ok(Value::Text(text.to_owned()));
        match self {
            Self::Text | Self::Path => as_text(),
            Self::Required if text.is_empty() => Err("must not be empty".to_owned()),
            Self::Required => as_text(),
            Self::AddressOrOff if text == "0" => as_text(),
            Self::Address if text.is_empty() => as_text(),
            Self::Address | Self::AddressOrOff => address(text).and_then(|()| as_text()),
            Self::Bool => match text {
                "true" | "1" => Ok(Value::Bool(true)),
                "false" | "0" => Ok(Value::Bool(false)),
                _ => Err("is neither true nor false".to_owned()),
            },
            Self::Duration => parse_duration(text).map(Value::Duration),
            Self::PositiveDuration => match parse_duration(text)? {
                Duration::ZERO => Err("must be longer than zero".to_owned()),
                longer => Ok(Value::Duration(longer)),
            },
            Self::Count(least) => match text.parse::<u64>() {
                Ok(n) if n >= least => Ok(Value::Count(n)),
                _ => Err(format!("is not an integer of at least {least}")),
            },
            Self::Fraction => number(text, 1.0).ok_or_else(|| "is not a number from 0 to 1".to_owned()),
            Self::Rate => number(text, f64::MAX).ok_or_else(|| "is not a number of at least 0".to_owned()),
            Self::Bytes(most) => match bytes(text) {
                Some(n) if (1..=most).contains(&n) => Ok(Value::Count(n)),
                _ => Err(format!("is not a size from 1 to {most} bytes, such as 67108864 or 64Mi")),
            },
            Self::Choice(words) if words.contains(&text) => as_text(),
            Self::Choice(words) => Err(format!("is none of {}", words.join(", "))),
        }
    }
}

impl Value {
    /// The value in the form that its kind reads.
    pub(super) fn print(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Bool(switch) => switch.to_string(),
            Self::Duration(d) => duration::print(*d),
            Self::Count(n) => n.to_string(),
            Self::Number(x) => x.to_string(),
        }
    }

    pub(crate) fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Text(text) if !text.is_empty() => Some(PathBuf::from(text)),
            _ => None,
        }
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    duration::parse(text).map_err(|error| error.to_string())
}

fn address(text: &str) -> Result<(), String> {
    let port = text.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
    match port {
        Some(Ok(_)) => Ok(()),
        _ => Err("is not host:port with a port from 0 to 65535".to_owned()),
    }
}

fn number(text: &str, most: f64) -> Option<Value> {
    text.parse::<f64>().ok().filter(|x| (0.0..=most).contains(x)).map(Value::Number)
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = [("Ki", 10), ("Mi", 20), ("Gi", 30)]
        .into_iter()
        .find_map(|(suffix, shift)| text.strip_suffix(suffix).map(|digits| (digits, shift)))
        .unwrap_or((text, 0));
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_by_kind() {
        for (kind, text, value) in [
            (Kind::Bool, "true", Value::Bool(true)),
            (Kind::Count(1), "32", Value::Count(32)),
            (Kind::Fraction, "0.05", Value::Number(0.05)),
            (Kind::Bytes(1 << 30), "64Mi", Value::Count(64 << 20)),
            (Kind::Address, ":7780", Value::Text(":7780".into())),
            (Kind::Address, "[::1]:0", Value::Text("[::1]:0".into())),
            (Kind::AddressOrOff, "0", Value::Text("0".into())),
            (Kind::Duration, "0", Value::Duration(Duration::ZERO)),
        ] {
            assert_eq!(kind.parse(text), Ok(value), "{kind:?} {text}");
        }
        for (kind, text) in [
            (Kind::Bool, "yes"),
            (Kind::Count(1), "0"),
            (Kind::Count(0), "-1"),
            (Kind::Fraction, "1.01"),
            (Kind::Fraction, "NaN"),
            (Kind::Bytes(256 << 20), "1Gi"),
            (Kind::Address, "7780"),
            (Kind::Address, "host:70000"),
            (Kind::PositiveDuration, "0s"),
            (Kind::Required, ""),
            (Kind::Choice(&["text", "json"]), "xml"),
        ] {
            assert!(kind.parse(text).is_err(), "{kind:?} {text}");
        }
    }
}
