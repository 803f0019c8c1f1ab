//! The schema guard: what the wire looks like as a sorted list of facts, and what may become of it.
//!
//! A descriptor set turns into one fact a line ([`Schema::to_text`]), which is what the repository keeps in
//! [`COMMITTED_FILE`]. Between two schemas, new facts are fine; a fact that changed or vanished is not, and neither is a
//! field on a reserved number: peers of yesterday are still out there.
//!
//! `cargo xtask schema` is [`check`]; `cargo xtask schema --accept` writes what [`accept`] returns.

use std::collections::BTreeMap;
use std::fmt;

mod describe;

/// Where the committed schema lies, from the root of the workspace.
pub const COMMITTED_FILE: &str = "crates/proto/schema.txt";

/// A schema as facts: what is named on the left, what is said about it on the right.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schema {
    facts: BTreeMap<Subject, String>,
}

/// What a fact is about. Orders by kind, then by owner, then by number or name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A service.
    Service(String),
    /// A call of a service, by name.
    Rpc(String, String),
    /// An enum.
    Enum(String),
    /// A value of an enum, by number.
    Value(String, i32),
    /// A message.
    Message(String),
    /// A field of a message, by number.
    Field(String, i32),
    /// A number of a message or an enum that must not be used again.
    Reserved(String, i32),
}

impl Subject {
    /// The service, enum or message that this is or belongs to, by its full name.
    #[must_use]
    pub fn owner(&self) -> &str {
        match self {
            Self::Service(name)
            | Self::Rpc(name, _)
            | Self::Enum(name)
            | Self::Value(name, _)
            | Self::Message(name)
            | Self::Field(name, _)
            | Self::Reserved(name, _) => name,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(f, "service {name}"),
            Self::Rpc(owner, name) => write!(f, "rpc {owner} {name}"),
            Self::Enum(name) => write!(f, "enum {name}"),
            Self::Value(owner, number) => write!(f, "value {owner} {number}"),
            Self::Message(name) => write!(f, "message {name}"),
            Self::Field(owner, number) => write!(f, "field {owner} {number}"),
            Self::Reserved(owner, number) => write!(f, "reserved {owner} {number}"),
        }
    }
}

/// One difference between an old and a new schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// New, and in nobody's way.
    Added {
        /// What is new.
        subject: Subject,
        /// What is said about it.
        fact: String,
    },
    /// Gone, so that a peer which still uses it is no longer understood.
    Removed {
        /// What is gone.
        subject: Subject,
        /// What was said about it.
        fact: String,
    },
    /// Still there, but it means something else: another name, type or label on the same number.
    Changed {
        /// What changed.
        subject: Subject,
        /// What was said about it.
        from: String,
        /// What is said about it now.
        to: String,
    },
    /// A new field or value on a number that was reserved.
    Reused {
        /// The field or value.
        subject: Subject,
        /// What is said about it.
        fact: String,
    },
}

impl Change {
    /// Whether a peer that speaks the old schema would be misunderstood.
    #[must_use]
    pub fn breaks_peers(&self) -> bool {
        !matches!(self, Self::Added { .. })
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added { subject, fact } => write!(f, "added {subject} = {fact}"),
            Self::Removed { subject, fact } => write!(f, "removed {subject} (was {fact})"),
            Self::Changed { subject, from, to } => write!(f, "changed {subject} from {from} to {to}"),
            Self::Reused { subject, fact } => write!(f, "reused a reserved number: {subject} = {fact}"),
        }
    }
}

/// Why a schema was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A descriptor set does not decode.
    #[error("the descriptor set does not decode")]
    Descriptor(#[from] prost::DecodeError),
    /// A descriptor set that no compiler would write.
    #[error("the descriptor set is incomplete: {0}")]
    Incomplete(String),
    /// The committed text cannot be read.
    #[error("{COMMITTED_FILE}, line {line}: {problem}; restore the file from version control")]
    Text {
        /// From 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Peers that speak the committed schema would be misunderstood.
    #[error(
        "the schema breaks peers; {COMMITTED_FILE} stays as it is. give the new meaning a new number and leave the old \
         one alone:{}", list(.0)
    )]
    Breaking(Vec<Change>),
}

fn list(changes: &[Change]) -> String {
    changes.iter().map(|change| format!("\n  {change}")).collect()
}

/// A schema that may be used, and what it adds to the committed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Every one of them an addition. Empty: the committed schema is current.
    pub additions: Vec<Change>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.additions.as_slice() {
            [] => f.write_str("the schema is the committed one"),
            additions => {
                write!(f, "the schema adds to the committed one; accept it with --accept:{}", list(additions))
            }
        }
    }
}

/// Compares the schema of this build with the committed text.
///
/// # Errors
/// [`Error::Breaking`] with every change that breaks peers, or an error that says what could not be read.
pub fn check(committed: &str) -> Result<Report, Error> {
    let changes = compare(&Schema::parse(committed)?, &Schema::built()?);
    let (breaking, additions): (Vec<_>, Vec<_>) = changes.into_iter().partition(Change::breaks_peers);
    if breaking.is_empty() { Ok(Report { additions }) } else { Err(Error::Breaking(breaking)) }
}

/// The text to commit for the schema of this build, in place of the committed one. Give an empty text when nothing is
/// committed yet.
///
/// # Errors
/// As [`check`]: there is no way past a change that breaks peers.
pub fn accept(committed: &str) -> Result<String, Error> {
    check(committed)?;
    Ok(Schema::built()?.to_text())
}

/// Every difference between two schemas, in the order of their subjects.
#[must_use]
pub fn compare(old: &Schema, new: &Schema) -> Vec<Change> {
    let mut changes = Vec::new();
    for (subject, from) in &old.facts {
        match new.facts.get(subject) {
            None => changes.push(Change::Removed { subject: subject.clone(), fact: from.clone() }),
            Some(to) if to != from => {
                changes.push(Change::Changed {
                    subject: subject.clone(),
                    from: from.clone(),
                    to: to.clone(),
                });
            }
            Some(_) => {}
        }
    }
    for (subject, fact) in &new.facts {
        if old.facts.contains_key(subject) {
            continue;
        }
        let tombstone = match subject {
            Subject::Field(owner, number) | Subject::Value(owner, number) => {
                Some(Subject::Reserved(owner.clone(), *number))
            }
            _ => None,
        };
        let (subject, fact) = (subject.clone(), fact.clone());
        changes.push(match tombstone {
            Some(tombstone) if old.facts.contains_key(&tombstone) => Change::Reused { subject, fact },
            _ => Change::Added { subject, fact },
        });
    }
    changes
}

impl Schema {
    /// The schema of this build.
    ///
    /// # Errors
    /// The embedded descriptor set is damaged, which no build leaves behind.
    pub fn built() -> Result<Self, Error> {
        Self::decode(crate::FILE_DESCRIPTOR_SET)
    }

    /// The same schema without the subjects for which `keep` says no.
    #[must_use]
    pub fn filtered(mut self, keep: impl Fn(&Subject) -> bool) -> Self {
        self.facts.retain(|subject, _| keep(subject));
        self
    }

    /// Everything that facts are about.
    pub fn subjects(&self) -> impl Iterator<Item = &Subject> {
        self.facts.keys()
    }

    /// One line a fact, sorted: `field bigfleet.v1alpha1.Machine 1 = id string singular`.
    #[must_use]
    pub fn to_text(&self) -> String {
        self.facts.iter().map(|(subject, fact)| format!("{subject} = {fact}\n")).collect()
    }

    /// Reads what [`Schema::to_text`] wrote.
    ///
    /// # Errors
    /// [`Error::Text`] with the first line that is no fact or repeats one.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut facts = BTreeMap::new();
        for (index, content) in text.lines().enumerate() {
            let error = |problem| Error::Text { line: index + 1, problem };
            let (subject, fact) = content.split_once(" = ").ok_or(error("has no `=`"))?;
            let subject = parse_subject(subject).ok_or(error("names nothing that a schema has"))?;
            if facts.insert(subject, fact.to_owned()).is_some() {
                return Err(error("repeats an earlier line"));
            }
        }
        Ok(Self { facts })
    }
}

fn parse_subject(text: &str) -> Option<Subject> {
    let words: Vec<&str> = text.split(' ').collect();
    let owned = |name: &&str| (*name).to_owned();
    let number = |digits: &&str| digits.parse::<i32>().ok();
    Some(match words.as_slice() {
        ["service", name] => Subject::Service(owned(name)),
        ["rpc", owner, name] => Subject::Rpc(owned(owner), owned(name)),
        ["enum", name] => Subject::Enum(owned(name)),
        ["value", owner, n] => Subject::Value(owned(owner), number(n)?),
        ["message", name] => Subject::Message(owned(name)),
        ["field", owner, n] => Subject::Field(owned(owner), number(n)?),
        ["reserved", owner, n] => Subject::Reserved(owned(owner), number(n)?),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
