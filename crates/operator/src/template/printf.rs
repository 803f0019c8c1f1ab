//! `printf` with the verbs that boot scripts need, and Go's quoting.

use std::fmt::Write as _;

use super::{OUTPUT_BYTES, Value};

/// The widest field.
const WIDTH: usize = 1024;

/// `text` in double quotes, with escapes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let code = u32::from(c);
                let escaped = if code < 0x80 { format!("\\x{code:02x}") } else { format!("\\u{code:04x}") };
                out.push_str(&escaped);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Formats `arguments` by `%s %v %q %d %x %t %%`, each with an optional `-` or `0` and a width.
///
/// # Errors
/// A verb that is not known, an argument of the wrong kind, or too many or too few of them.
pub(super) fn printf(format: &str, arguments: &[Value]) -> Result<String, String> {
    let mut out = String::new();
    let mut arguments = arguments.iter();
    let mut rest = format;
    while let Some(percent) = rest.find('%') {
        out.push_str(&rest[..percent]);
        rest = &rest[percent + 1..];
        let flags = rest.len() - rest.trim_start_matches(['-', '0']).len();
        let digits =
            rest[flags..].len() - rest[flags..].trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (left, zero) = (rest[..flags].contains('-'), rest[..flags].contains('0'));
        let width = match &rest[flags..flags + digits] {
            "" => 0,
            text => text
                .parse()
                .ok()
                .filter(|w| *w <= WIDTH)
                .ok_or_else(|| format!("printf: the width {text} is above {WIDTH}"))?,
        };
        rest = &rest[flags + digits..];
        let Some(verb) = rest.chars().next() else {
            return Err("printf: the format ends with %".to_owned());
        };
        rest = &rest[verb.len_utf8()..];
        if verb == '%' {
            out.push('%');
            continue;
        }
        let Some(argument) = arguments.next() else {
            return Err(format!("printf: %{verb} has no argument"));
        };
        pad(&mut out, &formatted(verb, argument)?, width, left, zero && verb == 'd');
        if out.len() > 4 * OUTPUT_BYTES {
            return Err("printf makes a text that is too large".to_owned());
        }
    }
    out.push_str(rest);
    match arguments.next() {
        None => Ok(out),
        Some(extra) => Err(format!("printf: the argument {} has no verb", quoted(&extra.to_string()))),
    }
}

fn formatted(verb: char, argument: &Value) -> Result<String, String> {
    match (verb, argument) {
        ('v', value) | ('s', value @ (Value::Text(_) | Value::List(_))) => Ok(value.to_string()),
        ('q', Value::Text(text)) => Ok(quoted(text)),
        ('q', Value::List(items)) => {
            let items: Result<Vec<String>, String> = items.iter().map(|item| formatted('q', item)).collect();
            Ok(format!("[{}]", items?.join(" ")))
        }
        ('d', Value::Int(number)) => Ok(number.to_string()),
        ('x', Value::Int(number)) if *number < 0 => Ok(format!("-{:x}", number.unsigned_abs())),
        ('x', Value::Int(number)) => Ok(format!("{number:x}")),
        ('x', Value::Text(text)) => Ok(text.bytes().fold(String::new(), |mut out, byte| {
            // Writing into a text cannot fail.
            let _ = write!(out, "{byte:02x}");
            out
        })),
        ('t', Value::Bool(truth)) => Ok(truth.to_string()),
        ('s' | 'q' | 'd' | 'x' | 't', other) => {
            Err(format!("printf: %{verb} does not take {}", other.kind()))
        }
        (verb, _) => Err(format!("printf: unknown verb %{verb}; known are %s %v %q %d %x %t %%")),
    }
}

fn pad(out: &mut String, text: &str, width: usize, left: bool, zero: bool) {
    let fill = width.saturating_sub(text.chars().count());
    let blanks = " ".repeat(fill);
    if left {
        out.push_str(text);
        out.push_str(&blanks);
    } else if zero {
        let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
        out.push_str(sign);
        out.push_str(&"0".repeat(fill));
        out.push_str(digits);
    } else {
        out.push_str(&blanks);
        out.push_str(text);
    }
}
