//! The gate: the one place where what peers send becomes what we reason about, and back.
//!
//! Inbound, a message is checked once and whole. It comes out as domain values that need no further checks, or as an
//! [`Error`] that names the field; nothing is coerced, cut or guessed. Provider records are the exception that the
//! contract asks for: they are refused or repaired one by one ([`machine`]).
//!
//! * [`rollup`]: a cluster's demand.
//! * [`machine`]: provider records, Lists and acknowledgements; [`metadata`]: the stamps that a machine carries.
//! * [`session`]: Hello and bootstrap answers.
//! * [`shardread`]: what inspectors ask.
//! * The way back is `From`: a Need to its row, a machine to its record, a vector to its strings.

use std::fmt;
use std::sync::Arc;

use bigfleet_types::{IdError, QuantityError, ResourceName};
use foldhash::quality::RandomState;
use hashbrown::HashSet;

mod amounts;
mod cursor;
mod digest;
pub mod machine;
pub mod metadata;
mod outbound;
pub mod rollup;
pub mod session;
pub mod shardread;

pub use outbound::saturating_count;

/// Longest text of a requirement, a spread, or a resource map: a label key with its prefix.
pub const MAX_TEXT_BYTES: usize = 317;

/// The largest amount that one field may state, in internal units (milli for `cpu`, whole units otherwise).
pub const MAX_AMOUNT: i64 = 1 << 62;

/// What is wrong with a message, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct Error {
    /// The path of the field within the message, such as `needs[3].min_unit["cpu"]`.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
}

impl Error {
    fn at(field: impl fmt::Display, problem: Problem) -> Self {
        Self { field: field.to_string(), problem }
    }

    /// Puts the field that holds the message in front of the path.
    fn within(mut self, outer: impl fmt::Display) -> Self {
        let dot = if self.field.is_empty() || self.field.starts_with('[') { "" } else { "." };
        self.field = format!("{outer}{dot}{}", self.field);
        self
    }
}

/// What can be wrong with a field.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// There is nothing where something is needed.
    #[error("must not be empty")]
    Empty,
    /// Not an id.
    #[error("{0}")]
    Id(#[from] IdError),
    /// The cluster is not the one that the session belongs to.
    #[error("names cluster {found}, but the session belongs to {session}")]
    ForeignCluster {
        /// Whose session it is.
        session: String,
        /// What the message says, quoted and shortened.
        found: String,
    },
    /// An enum number that the protocol does not have.
    #[error("{0} is not a known number")]
    UnknownNumber(i32),
    /// An enum that has to be said and is not.
    #[error("must be specified")]
    Unspecified,
    /// A version of the protocol that is not spoken here.
    #[error("{0} is not spoken here; known is \"v1alpha1\"")]
    UnknownVersion(String),
    /// Too many elements.
    #[error("has {found} elements, at most {limit} are allowed")]
    TooMany {
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// Too many bytes.
    #[error("has {found} bytes, at most {limit} are allowed")]
    TooLong {
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// An operator that compares has nothing to compare with.
    #[error("needs at least one value with this operator")]
    MissingValues,
    /// An operator that does not compare has something to compare with.
    #[error("takes no values with this operator")]
    UnexpectedValues,
    /// A second Same.
    #[error("is the second Same of its row, one is allowed")]
    SecondSame,
    /// Not a quantity.
    #[error("{text} {error}")]
    Quantity {
        /// The text, quoted and shortened.
        text: String,
        /// What is wrong with it.
        error: QuantityError,
    },
    /// Less than nothing.
    #[error("{0} is negative")]
    Negative(String),
    /// More than sums can hold.
    #[error("{0} is more than 2^62 units")]
    TooLarge(String),
    /// A single pod asks for more than all pods together.
    #[error("{min_unit} is more than the aggregate, {aggregate}")]
    AboveAggregate {
        /// What the largest pod asks for.
        min_unit: String,
        /// What all pods ask for.
        aggregate: String,
    },
    /// Below the least value.
    #[error("is {found}, at least {least} is needed")]
    TooSmall {
        /// The value.
        found: i64,
        /// The least one.
        least: i64,
    },
    /// Not a number that the field can have.
    #[error("{found} is not {expected}")]
    OutOfRange {
        /// The number.
        found: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// A part is missing without which the rest makes no sense.
    #[error("is missing, {0}")]
    Missing(&'static str),
}

/// A message that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The bytes are not those of the message.
    #[error(transparent)]
    Malformed(#[from] prost::DecodeError),
    /// Our two readers differ over it: a mistake of ours.
    #[error("the message is written in a way that is not understood here")]
    Unusual,
}

/// Texts as errors show them: quoted, at most 64 characters.
fn shown(text: &str) -> String {
    match text.char_indices().nth(64) {
        None => format!("{text:?}"),
        Some((end, _)) => format!("{:?} and more", &text[..end]),
    }
}

/// Keeps one copy of each text of a message: rows and machines repeat few texts many times.
#[derive(Default)]
struct Texts {
    texts: HashSet<Arc<str>, RandomState>,
    resources: HashSet<ResourceName, RandomState>,
}

impl Texts {
    fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let new: Arc<str> = text.into();
        self.texts.insert(new.clone());
        new
    }

    fn resource(&mut self, name: &str) -> ResourceName {
        if let Some(known) = self.resources.get(name) {
            return known.clone();
        }
        let new = ResourceName::new(name);
        self.resources.insert(new.clone());
        new
    }
}
