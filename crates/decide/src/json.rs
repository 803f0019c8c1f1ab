//! Strict JSON, read in place: exact number texts, no repeated and no unknown members, and the path of what is wrong.
//!
//! `serde_json` finds the tokens; a [`Node`] is the text of one value that nobody looked into yet. Member names are
//! lowerCamelCase, or the snake_case spelling of the same name. `null` is the same as a member left out. Whatever is
//! wrong is [`Refused`] by the path of the field.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use serde::de::{Deserializer as _, MapAccess, Visitor};
use serde_json::value::RawValue;

mod number;

/// Why a file is refused, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct Refused {
    /// The first offending field, from `$`, the whole file, on.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Refused {
    /// Something wrong with the value itself.
    #[must_use]
    pub fn here(reason: impl fmt::Display) -> Self {
        Self { path: "$".to_owned(), reason: reason.to_string() }
    }

    /// Something wrong with a member of the value.
    #[must_use]
    pub fn at(name: &str, reason: impl fmt::Display) -> Self {
        Self::here(reason).within(name)
    }

    /// The same seen from the object that holds the value under this name.
    #[must_use]
    pub fn within(self, name: &str) -> Self {
        let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        self.behind(&if plain { format!(".{name}") } else { format!("[{name:?}]") })
    }

    /// The same seen from the array that holds the value at this place.
    #[must_use]
    pub fn within_element(self, place: usize) -> Self {
        self.behind(&format!("[{place}]"))
    }

    fn behind(self, segment: &str) -> Self {
        let rest = self.path.strip_prefix('$').unwrap_or(&self.path);
        Self { path: format!("${segment}{rest}"), reason: self.reason }
    }
}

/// A text in a message: quoted, escaped and not longer than a line.
#[must_use]
pub fn shown(text: &str) -> String {
    match text.char_indices().nth(64) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?} and more", &text[..end]),
    }
}

/// A value of the text. It is JSON as far as tokens go; what is in it has not been looked at.
#[derive(Debug, Clone, Copy)]
pub struct Node<'a>(&'a RawValue);

impl<'a> Node<'a> {
    /// The JSON text of the value.
    #[must_use]
    pub fn source(self) -> &'a str {
        self.0.get()
    }

    /// The value that a whole text is.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn parse(text: &'a str) -> Result<Self, Refused> {
        serde_json::from_str(text).map(Self).map_err(not_json)
    }

    fn is_null(self) -> bool {
        self.0.get() == "null"
    }

    fn kind(self) -> &'static str {
        match self.0.get().as_bytes().first() {
            Some(b'{') => "an object",
            Some(b'[') => "an array",
            Some(b'"') => "a string",
            Some(b't' | b'f') => "a boolean",
            Some(b'n') => "null",
            _ => "a number",
        }
    }

    fn must_be(self, kind: &str) -> Result<(), Refused> {
        let found = self.kind();
        if found == kind { Ok(()) } else { Err(Refused::here(format_args!("must be {kind}, not {found}"))) }
    }

    /// The members of an object.
    ///
    /// # Errors
    /// It is none.
    pub fn object(self) -> Result<Object<'a>, Refused> {
        self.must_be("an object")?;
        let members = members(self.0)?.into_iter();
        let members = members.map(|(name, node)| Member { name, node, taken: false }).collect();
        Ok(Object { members, error: None })
    }

    /// The elements of an array.
    ///
    /// # Errors
    /// It is none.
    pub fn array(self) -> Result<Vec<Node<'a>>, Refused> {
        self.must_be("an array")?;
        serde_json::from_str::<Vec<&'a RawValue>>(self.0.get())
            .map(|elements| elements.into_iter().map(Node).collect())
            .map_err(not_json)
    }

    /// Every element of an array, read alike.
    ///
    /// # Errors
    /// It is no array, or an element cannot be read.
    pub fn each<T>(
        self,
        mut read: impl FnMut(usize, Node<'a>) -> Result<T, Refused>,
    ) -> Result<Vec<T>, Refused> {
        let elements = self.array()?.into_iter().enumerate();
        elements.map(|(i, node)| read(i, node).map_err(|refused| refused.within_element(i))).collect()
    }

    /// The content of a string.
    ///
    /// # Errors
    /// It is none.
    pub fn text(self) -> Result<String, Refused> {
        self.must_be("a string")?;
        serde_json::from_str(self.0.get()).map_err(not_json)
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// It is neither.
    pub fn boolean(self) -> Result<bool, Refused> {
        self.must_be("a boolean")?;
        Ok(self.0.get() == "true")
    }

    /// A map of texts. Its keys are data: any text, but none twice.
    ///
    /// # Errors
    /// It is no object, a key is there twice, or a value is no string.
    pub fn text_map(self) -> Result<BTreeMap<String, String>, Refused> {
        self.must_be("an object")?;
        let mut map = BTreeMap::new();
        for (name, node) in members(self.0)? {
            let value = node.text().map_err(|refused| refused.within(&name))?;
            if map.contains_key(&name) {
                return Err(Refused::at(&name, "is given twice"));
            }
            map.insert(name, value);
        }
        Ok(map)
    }

    /// Names and values of an object whose names are data, in the order of the text.
    ///
    /// # Errors
    /// It is none, or a name is there twice.
    pub fn entries(self) -> Result<Vec<(String, Node<'a>)>, Refused> {
        self.must_be("an object")?;
        let entries = members(self.0)?;
        let mut names = HashSet::new();
        match entries.iter().find(|(name, _)| !names.insert(name)) {
            Some((name, _)) => Err(Refused::at(name, "is given twice")),
            None => Ok(entries),
        }
    }

    /// A whole number, as number or as text.
    ///
    /// # Errors
    /// It is none, or not from `least` to `most`.
    pub fn integer(self, least: i64, most: i64) -> Result<i64, Refused> {
        let token = self.number()?;
        let wrong = || {
            let token = shown(&token);
            Refused::here(format_args!(
                "{} is not a whole number from {least} to {most}",
                token.trim_matches('"')
            ))
        };
        number::integer(&token).filter(|n| (least..=most).contains(n)).ok_or_else(wrong)
    }

    /// A 64-bit integer.
    ///
    /// # Errors
    /// It is none.
    pub fn int64(self) -> Result<i64, Refused> {
        self.integer(i64::MIN, i64::MAX)
    }

    /// A 32-bit integer.
    ///
    /// # Errors
    /// It is none.
    pub fn int32(self) -> Result<i32, Refused> {
        let wide = self.integer(i32::MIN.into(), i32::MAX.into())?;
        i32::try_from(wide).map_err(Refused::here)
    }

    /// A double, as number or as text; the text may also be `NaN`, `Infinity` or `-Infinity`.
    ///
    /// # Errors
    /// It is none.
    pub fn double(self) -> Result<f64, Refused> {
        let token = match self.kind() {
            "a string" => match self.text()?.as_str() {
                "NaN" => return Ok(f64::NAN),
                "Infinity" => return Ok(f64::INFINITY),
                "-Infinity" => return Ok(f64::NEG_INFINITY),
                _ => self.number()?,
            },
            _ => self.number()?,
        };
        token.parse().map_err(Refused::here)
    }

    /// The number of an enum value that is given by name or number.
    ///
    /// # Errors
    /// The name is not known, or it is neither.
    pub fn enumeration<E: Into<i32>>(self, named: fn(&str) -> Option<E>) -> Result<i32, Refused> {
        match self.kind() {
            "a string" => {
                let name = self.text()?;
                let unknown = || Refused::here(format_args!("{} is not a known name", shown(&name)));
                named(&name).map(Into::into).ok_or_else(unknown)
            }
            "a number" => self.int32(),
            found => {
                Err(Refused::here(format_args!("must be the name or number of an enum value, not {found}")))
            }
        }
    }

    /// The text of a number, also of one in quotes.
    fn number(self) -> Result<String, Refused> {
        match self.kind() {
            "a number" => Ok(self.0.get().to_owned()),
            "a string" => {
                let text = self.text()?;
                let node = serde_json::from_str::<&RawValue>(&text).map(Node).ok();
                match node.filter(|node| node.kind() == "a number" && node.0.get() == text) {
                    Some(_) => Ok(text),
                    None => Err(Refused::here(format_args!("{} is not a number", shown(&text)))),
                }
            }
            found => Err(Refused::here(format_args!("must be a number, not {found}"))),
        }
    }
}

fn not_json(error: serde_json::Error) -> Refused {
    Refused::here(format_args!("is not JSON: {error}"))
}

/// Names and values of an object as they are written, repeated ones included.
fn members(raw: &RawValue) -> Result<Vec<(String, Node<'_>)>, Refused> {
    struct InOrder;
    impl<'de> Visitor<'de> for InOrder {
        type Value = Vec<(String, Node<'de>)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some((name, value)) = map.next_entry::<String, &'de RawValue>()? {
                members.push((name, Node(value)));
            }
            Ok(members)
        }
    }
    serde_json::Deserializer::from_str(raw.get()).deserialize_map(InOrder).map_err(not_json)
}

#[derive(Debug)]
struct Member<'a> {
    name: String,
    node: Node<'a>,
    taken: bool,
}

/// An object whose members are taken by name. What is wrong is kept until [`Object::finish`], which tells what comes
/// first in the text.
#[derive(Debug)]
pub struct Object<'a> {
    members: Vec<Member<'a>>,
    error: Option<(usize, Refused)>,
}

impl<'a> Object<'a> {
    /// The member of this (lowerCamelCase) name; `None` when it is absent, null or wrong.
    pub fn take<T>(&mut self, name: &str, read: impl FnOnce(Node<'a>) -> Result<T, Refused>) -> Option<T> {
        let snake = snake(name);
        let mut first = None;
        let mut second = None;
        for (place, member) in self.members.iter_mut().enumerate() {
            if member.name == name || member.name == snake {
                member.taken = true;
                if first.is_none() {
                    first = Some((place, member.node));
                } else {
                    second = second.or(Some(place));
                }
            }
        }
        if let Some(place) = second {
            self.wrong(place, Refused::here("is given twice"));
        }
        let (place, node) = first.filter(|(_, node)| !node.is_null())?;
        read(node).map_err(|refused| self.wrong(place, refused)).ok()
    }

    /// Nothing that was taken is wrong.
    ///
    /// # Errors
    /// The first in the text that is.
    pub fn so_far(self) -> Result<(), Refused> {
        self.error.map_or(Ok(()), |(_, refused)| Err(refused))
    }

    /// Every member was taken, and all of them could be read.
    ///
    /// # Errors
    /// The first in the text that was not taken or could not be read.
    pub fn finish(mut self) -> Result<(), Refused> {
        let unknown = self.members.iter().position(|member| !member.taken);
        if let Some(place) = unknown {
            self.wrong(place, Refused::here("is not a known member"));
        }
        self.so_far()
    }

    fn wrong(&mut self, place: usize, refused: Refused) {
        if self.error.as_ref().is_none_or(|(known, _)| place < *known) {
            self.error = Some((place, refused.within(&self.members[place].name)));
        }
    }
}

/// `idleSince` is `idle_since`.
fn snake(name: &str) -> String {
    name.chars().fold(String::new(), |mut snake, letter| {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
        snake
    })
}

/// Ids of one kind in one place: never empty, never twice.
#[derive(Debug, Default)]
pub struct Ids(HashSet<String>);

impl Ids {
    /// Takes one more.
    ///
    /// # Errors
    /// It is empty or was taken before.
    pub fn take(&mut self, id: &str) -> Result<(), Refused> {
        if id.is_empty() {
            return Err(Refused::here("must not be empty"));
        }
        if !self.0.insert(id.to_owned()) {
            return Err(Refused::here(format_args!("{} is there already", shown(id))));
        }
        Ok(())
    }
}
