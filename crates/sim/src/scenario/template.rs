//! Machine records with a number in them: `{i}`, `{i%N}` and `{i/N}` in any text.

use bigfleet_decide::json::{Node, Refused, shown};

/// Nothing in a machine record nests this deep; what does is refused by whoever reads the record.
const DEPTH: u8 = 8;

/// A record to be filled in.
#[derive(Debug, Clone)]
pub(super) struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Json(String),
    Number(Form),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Itself,
    Remainder(i64),
    Quotient(i64),
}

impl Template {
    /// Finds the numbers to fill in.
    ///
    /// # Errors
    /// What looks like one and is none, and a name that is there twice.
    pub(super) fn new(record: Node<'_>) -> Result<Self, Refused> {
        let mut template = Self(Vec::new());
        template.value(record, DEPTH)?;
        Ok(template)
    }

    /// The JSON text of the record with this number.
    pub(super) fn fill(&self, i: i64) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Json(json) => text.push_str(json),
                Piece::Number(form) => text.push_str(
                    &match form {
                        Form::Itself => i,
                        Form::Remainder(n) => i % n,
                        Form::Quotient(n) => i / n,
                    }
                    .to_string(),
                ),
            }
        }
        text
    }

    /// How long the text may become.
    pub(super) fn longest(&self) -> usize {
        let length = |piece: &Piece| match piece {
            Piece::Json(json) => json.len(),
            Piece::Number(_) => 20,
        };
        self.0.iter().map(length).sum()
    }

    fn value(&mut self, node: Node<'_>, depth: u8) -> Result<(), Refused> {
        match node.source().as_bytes().first() {
            Some(b'"') => self.text(&node.text()?),
            Some(b'{') if depth > 0 => {
                self.json("{");
                for (place, (name, member)) in node.entries()?.into_iter().enumerate() {
                    self.json(if place == 0 { "" } else { "," });
                    self.text(&name).map_err(|refused| refused.within(&name))?;
                    self.json(":");
                    self.value(member, depth - 1).map_err(|refused| refused.within(&name))?;
                }
                self.json("}");
                Ok(())
            }
            Some(b'[') if depth > 0 => {
                self.json("[");
                for (place, element) in node.array()?.into_iter().enumerate() {
                    self.json(if place == 0 { "" } else { "," });
                    self.value(element, depth - 1).map_err(|refused| refused.within_element(place))?;
                }
                self.json("]");
                Ok(())
            }
            _ => {
                self.json(node.source());
                Ok(())
            }
        }
    }

    fn text(&mut self, text: &str) -> Result<(), Refused> {
        self.json("\"");
        let mut rest = text;
        while let Some(at) = rest.find("{i") {
            let (before, from) = rest.split_at(at);
            self.plain(before);
            let (form, length) = match from.as_bytes().get(2) {
                Some(b'}') => (Form::Itself, 3),
                Some(sign @ (b'%' | b'/')) => {
                    let (n, length) = divisor(from)?;
                    (if *sign == b'%' { Form::Remainder(n) } else { Form::Quotient(n) }, length)
                }
                _ => {
                    self.plain("{i");
                    rest = &from[2..];
                    continue;
                }
            };
            self.0.push(Piece::Number(form));
            rest = &from[length..];
        }
        self.plain(rest);
        self.json("\"");
        Ok(())
    }

    fn plain(&mut self, text: &str) {
        let quoted = serde_json::Value::from(text).to_string();
        self.json(&quoted[1..quoted.len() - 1]);
    }

    fn json(&mut self, json: &str) {
        match self.0.last_mut() {
            Some(Piece::Json(last)) => last.push_str(json),
            _ => self.0.push(Piece::Json(json.to_owned())),
        }
    }
}

/// N of `{i%N}` or `{i/N}` at the beginning of a text, and the length of the whole.
fn divisor(text: &str) -> Result<(i64, usize), Refused> {
    let end = text.find('}').unwrap_or(text.len());
    let digits = &text[3..end];
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse::<i64>() {
        Ok(n) if plain && n > 0 && end < text.len() => Ok((n, end + 1)),
        _ => Err(Refused::here(format_args!(
            "{} begins a number to fill in; write {{i%N}} or {{i/N}} with an N of 1 or more",
            shown(text)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(json: &str, i: i64) -> Result<String, String> {
        let filled = Node::parse(json).and_then(Template::new).map(|template| template.fill(i));
        filled.map_err(|refused| refused.to_string())
    }

    #[test]
    fn every_text_is_filled_in_and_nothing_else() {
        let json = r#"{"id": "m-{i}", "n": [1.50, null, "{i%4}/{i/4}"], "{i}": {"a{i%10}": "{I} {j} {i {} \u007bi} \"é\n"}}"#;
        let filled = r#"{"id":"m-13","n":[1.50,null,"1/3"],"13":{"a3":"{I} {j} {i {} 13 \"é\n"}}"#;
        assert_eq!(fill(json, 13).as_deref(), Ok(filled));
    }

    #[test]
    fn broken_numbers_and_repeated_names_are_refused() {
        for broken in ["{i%0}", "{i/}", "{i%x}", "{i/-2}", "{i%+2}", "{i%2", "{i/99999999999999999999}"] {
            let refused = fill(&format!(r#"{{"a": ["x{broken}"]}}"#), 1).unwrap_err();
            assert!(refused.starts_with("$.a[0]: \"{i"), "{refused}");
        }
        assert_eq!(fill(r#"{"a": {"b": 1, "b": 1}}"#, 1), Err("$.a.b: is given twice".to_owned()));
    }

    #[test]
    fn deep_nesting_is_left_to_the_reader() {
        let json = format!("{{\"x\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(fill(&json, 1), Ok(json));
    }
}
