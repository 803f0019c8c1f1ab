//! YAML 1.2 as JSON text, so that one strict reader serves both.
//!
//! Numbers keep their digits, repeated names stay repeated, and the order of names is that of the file. Plain scalars
//! mean what the core schema says. What JSON has no word for is refused: documents after the first, names that are no
//! texts, tags of one's own, `.inf` and `.nan`.

use std::collections::BTreeMap;
use std::ops::Range;

use bigfleet_decide::json::{Refused, shown};
use granit_parser::{Event, Parser, ScalarStyle, Tag, options};

/// The most bytes that a file may grow to by its aliases.
const MOST: usize = 256 << 20;

/// Rewrites a YAML file.
pub(super) fn to_json(text: &str) -> Result<String, Refused> {
    let mut writer = Writer::default();
    for event in Parser::new_from_str_with_options(text, options! { emit_comments: false }) {
        let (event, _) = event.map_err(|error| {
            Refused::here(format_args!("is neither JSON nor YAML: {error}").to_string().replace('\n', " "))
        })?;
        writer.take(event).map_err(|reason| writer.locate(Refused::here(reason)))?;
        if writer.out.len() > MOST {
            return Err(writer.locate(Refused::here(format_args!(
                "the aliases up to here make the file longer than {MOST} bytes"
            ))));
        }
    }
    if writer.out.is_empty() { Err(Refused::here("is empty")) } else { Ok(writer.out) }
}

#[derive(Debug)]
enum Place {
    Element(usize),
    /// Waiting for a name.
    Name,
    Member(String),
}

#[derive(Debug)]
struct Open {
    place: Place,
    empty: bool,
    anchor: usize,
    start: usize,
}

#[derive(Debug, Default)]
struct Writer {
    out: String,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Range<usize>>,
    documents: usize,
}

impl Writer {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err("holds more than one document".to_owned());
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                if self.wants_name() {
                    return self.name(&text, anchor, tag.as_deref());
                }
                let json = scalar(&text, style, tag.as_deref())?;
                let start = self.before();
                self.out.push_str(&json);
                self.after(anchor, start);
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.begin('[', Place::Element(0), anchor, tag.as_deref(), "seq")?
            }
            Event::MappingStart(_, anchor, tag) => {
                self.begin('{', Place::Name, anchor, tag.as_deref(), "map")?
            }
            Event::SequenceEnd => self.end(']'),
            Event::MappingEnd => self.end('}'),
            Event::Alias(anchor) => {
                if self.wants_name() {
                    return Err("has a member whose name is an alias; write the name out".to_owned());
                }
                let range = self.anchors.get(&anchor).cloned().ok_or("is an alias of what it is in")?;
                if self.out.len() + range.len() > MOST {
                    return Err(format!("the aliases up to here make the file longer than {MOST} bytes"));
                }
                let copy = self.out[range].to_owned();
                let start = self.before();
                self.out.push_str(&copy);
                self.after(0, start);
            }
            _ => {}
        }
        Ok(())
    }

    fn wants_name(&self) -> bool {
        matches!(self.open.last(), Some(Open { place: Place::Name, .. }))
    }

    fn name(&mut self, text: &str, anchor: usize, tag: Option<&Tag>) -> Result<(), String> {
        if anchor != 0 || tag.is_some_and(|tag| !tag.is_yaml_core_schema_tag("str")) {
            return Err(format!("has the member {} whose name has an anchor or a tag", shown(text)));
        }
        let Some(open) = self.open.last_mut() else { return Ok(()) };
        if !std::mem::take(&mut open.empty) {
            self.out.push(',');
        }
        open.place = Place::Member(text.to_owned());
        self.out.push_str(&quoted(text));
        self.out.push(':');
        Ok(())
    }

    /// Puts what comes before a value; gives where the value begins.
    fn before(&mut self) -> usize {
        if let Some(Open { place: Place::Element(_), empty, .. }) = self.open.last_mut()
            && !std::mem::take(empty)
        {
            self.out.push(',');
        }
        self.out.len()
    }

    /// A value that began at `start` is complete.
    fn after(&mut self, anchor: usize, start: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, start..self.out.len());
        }
        match self.open.last_mut().map(|open| &mut open.place) {
            Some(Place::Element(at)) => *at += 1,
            Some(place) => *place = Place::Name,
            None => {}
        }
    }

    fn begin(
        &mut self,
        bracket: char,
        place: Place,
        anchor: usize,
        tag: Option<&Tag>,
        is: &str,
    ) -> Result<(), String> {
        if self.wants_name() {
            return Err("has a member whose name is no text".to_owned());
        }
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(is)) {
            return Err(no_tag(tag));
        }
        let start = self.before();
        self.out.push(bracket);
        self.open.push(Open { place, empty: true, anchor, start });
        Ok(())
    }

    fn end(&mut self, bracket: char) {
        self.out.push(bracket);
        if let Some(closed) = self.open.pop() {
            self.after(closed.anchor, closed.start);
        }
    }

    /// Says where in the file it is.
    fn locate(&self, refused: Refused) -> Refused {
        self.open.iter().rev().fold(refused, |refused, open| match &open.place {
            Place::Element(at) => refused.within_element(*at),
            Place::Member(name) => refused.within(name),
            Place::Name => refused,
        })
    }
}

fn no_tag(tag: &Tag) -> String {
    format!("has the tag {}, which means nothing here", shown(&tag.to_string()))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A scalar as JSON.
fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<String, String> {
    let Some(tag) = tag else {
        return match plain(text)? {
            Some((_, json)) if style == ScalarStyle::Plain => Ok(json),
            _ => Ok(quoted(text)),
        };
    };
    if tag.is_yaml_core_schema_tag("str") {
        return Ok(quoted(text));
    }
    let Some(wanted) =
        ["null", "bool", "int", "float"].into_iter().find(|kind| tag.is_yaml_core_schema_tag(kind))
    else {
        return Err(no_tag(tag));
    };
    match plain(text)? {
        Some((kind, json)) if kind == wanted || (kind == "int" && wanted == "float") => Ok(json),
        _ => Err(format!("{} is not of its type {wanted}", shown(text))),
    }
}

/// What a plain scalar is in the core schema: its type and its JSON; `None`: a text.
fn plain(text: &str) -> Result<Option<(&'static str, String)>, String> {
    let as_is = |kind, json: &str| Ok(Some((kind, json.to_owned())));
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return as_is("null", "null"),
        "true" | "True" | "TRUE" => return as_is("bool", "true"),
        "false" | "False" | "FALSE" => return as_is("bool", "false"),
        _ => {}
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|digit| digit.is_digit(radix))
        {
            let number =
                u128::from_str_radix(digits, radix).map_err(|_| format!("{} is too large", shown(text)))?;
            return as_is("int", &number.to_string());
        }
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is not a number that JSON has"));
    }
    let sign = if text.starts_with('-') { "-" } else { "" };
    Ok(decimal(unsigned).map(|(kind, digits)| (kind, format!("{sign}{digits}"))))
}

/// An unsigned decimal number the way JSON writes it.
fn decimal(text: &str) -> Option<(&'static str, String)> {
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let power = exponent.map(|exponent| exponent.strip_prefix(['-', '+']).unwrap_or(exponent));
    let fine = digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty());
    if !fine || power.is_some_and(|power| power.is_empty() || !digits(power)) {
        return None;
    }
    let kind = if mantissa.contains('.') || exponent.is_some() { "float" } else { "int" };
    let significant = whole.trim_start_matches('0');
    let mut json = if significant.is_empty() { "0" } else { significant }.to_owned();
    if !fraction.is_empty() {
        json.push('.');
        json.push_str(fraction);
    }
    if let Some(exponent) = exponent {
        json.push('e');
        json.push_str(exponent);
    }
    Some((kind, json))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_the_core_schema_says() {
        for (yaml, json) in [
            ("[1, +2, -03, 0x1F, 0o17, 1e3, 1.50, .5, -2., 1E+2]", "[1,2,-3,31,15,1e3,1.50,0.5,-2,1e+2]"),
            (
                "[1.700000000000000001e18, 9223372036854775807]",
                "[1.700000000000000001e18,9223372036854775807]",
            ),
            (
                "[~, null, '', \"\", true, False, yes, no, on, 0b1, 1_000, 1.2.3, 0x, e3, .]",
                r#"[null,null,"","",true,false,"yes","no","on","0b1","1_000","1.2.3","0x","e3","."]"#,
            ),
            ("['1', \"true\", !!str 1, !!int '7', !!float 1]", r#"["1","true","1",7,1]"#),
            ("a: 1\nb:\n- x\n- {c: d}\ne:\n", r#"{"a":1,"b":["x",{"c":"d"}],"e":null}"#),
            ("1: a\ntrue: b\n1: c\n", r#"{"1":"a","true":"b","1":"c"}"#),
            (
                "a: &x {b: [1, 2]}\nc: *x\nd: [*x, *x]\n",
                r#"{"a":{"b":[1,2]},"c":{"b":[1,2]},"d":[{"b":[1,2]},{"b":[1,2]}]}"#,
            ),
            ("a: |\n  two\n  lines\n", r#"{"a":"two\nlines\n"}"#),
            ("# a remark\n--- # another\n\"caf\\u00e9\": \"\\t\"\n...\n", "{\"caf\u{e9}\":\"\\t\"}"),
        ] {
            assert_eq!(to_json(yaml).unwrap_or_else(|refused| panic!("{refused}")), json, "{yaml}");
        }
    }

    #[test]
    fn what_json_cannot_say_is_refused_where_it_is() {
        for (yaml, refused) in [
            ("a: [1, .inf]", "$.a[1]: .inf is not a number that JSON has"),
            ("a: {b: .NaN}", "$.a.b: .NaN is not a number that JSON has"),
            ("a: 1\n---\nb: 2\n", "$: holds more than one document"),
            ("a: {[1]: 2}", "$.a: has a member whose name is no text"),
            ("a: !mine 1", "$.a: has the tag \"!mine\", which means nothing here"),
            ("a: !!int x", "$.a: \"x\" is not of its type int"),
            ("a: !!set {x}", "$.a: has the tag \"tag:yaml.org,2002:set\", which means nothing here"),
            ("a: &x [*x]", "$.a[0]: is an alias of what it is in"),
            ("&x a: 1", "$: has the member \"a\" whose name has an anchor or a tag"),
            ("", "$: is empty"),
            ("# nothing\n", "$: is empty"),
        ] {
            assert_eq!(
                to_json(yaml).map_err(|refused| refused.to_string()),
                Err(refused.to_owned()),
                "{yaml}"
            );
        }
        for yaml in ["a: [", "a: *none", "a: \"\\q\"", "a: b: c", "{a: 1", &"[".repeat(100_000)] {
            let refused = to_json(yaml).unwrap_err().to_string();
            assert!(refused.starts_with("$: is neither JSON nor YAML: "), "{refused}");
            assert!(!refused.contains('\n'), "{refused}");
        }
    }

    #[test]
    fn aliases_of_aliases_do_not_fill_the_memory() {
        let mut yaml = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n".to_owned();
        for n in 1..30 {
            let before = format!("*a{}", n - 1);
            yaml.push_str(&format!("a{n}: &a{n} [{}]\n", vec![before; 10].join(", ")));
        }
        let refused = to_json(&yaml).unwrap_err();
        assert!(refused.reason.contains("longer than"), "{refused}");
    }
}
