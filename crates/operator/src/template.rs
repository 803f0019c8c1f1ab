//! Bootstrap templates: a subset of Go's `text/template`, parsed once and evaluated without I/O.
//!
//! * [`Template`]: parse or load, then render a [`Value`] with bounded work and bounded output.
//! * [`bootstrap`]: what a bootstrap request offers a template, and the answer made of it.
//!
//! The subset: field chains, `if`/`else if`/`else`, `with`, `range` with up to two variables, variable
//! declarations, pipelines, parentheses, comments, `{{-` and `-}}`, and the functions `eq ne lt gt and or not len
//! index printf quote join b64enc toJson`. A field that does not exist is an error, never an empty text.

pub mod bootstrap;
mod eval;
mod func;
mod lex;
mod parse;
mod printf;
mod value;

use std::fmt;
use std::path::{Path, PathBuf};

pub use value::Value;

/// The largest text that a template may produce, in bytes.
pub const OUTPUT_BYTES: usize = 256 * 1024;
/// The largest template file, in bytes.
pub const SOURCE_BYTES: usize = 1024 * 1024;
/// How much work one rendering may do: one step a node, one more for every 64 bytes that a function touches.
pub const STEPS: u32 = 1_000_000;

/// Where in the source something stands, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u32,
    /// The character in it.
    pub column: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// The source is no template. Nothing can be rendered; correct it at the position named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {problem}")]
pub struct ParseError {
    /// Where reading stopped.
    pub at: Position,
    /// What is wrong there.
    pub problem: String,
}

/// A rendering failed; what it had written is dropped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// An expression has no value.
    #[error("{at}: {problem}")]
    Failed {
        /// The expression.
        at: Position,
        /// Why.
        problem: String,
    },
    /// More text than a machine takes as user data.
    #[error("{at}: the output is larger than {OUTPUT_BYTES} bytes")]
    TooLarge {
        /// Where the limit was passed.
        at: Position,
    },
    /// More work than a bootstrap answer is worth.
    #[error("{at}: gave up after {STEPS} steps; loop over fewer items")]
    TooLong {
        /// Where the limit was passed.
        at: Position,
    },
}

/// A template file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error("cannot read the bootstrap template {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is no text, or too much of it.
    #[error("the bootstrap template {} cannot be used: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// It is no template.
    #[error("the bootstrap template {} is wrong: {source}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: ParseError,
    },
}

/// A parsed template.
#[derive(Debug, Clone)]
pub struct Template {
    nodes: Vec<parse::Node>,
}

impl Template {
    /// Parses `source`. Unknown functions, variables and keywords are found here, unknown fields when rendering.
    ///
    /// # Errors
    /// The first mistake, with its position.
    pub fn parse(source: &str) -> Result<Self, ParseError> {
        Ok(Self { nodes: parse::parse(lex::lex(source)?)? })
    }

    /// Reads and parses a file of at most [`SOURCE_BYTES`].
    ///
    /// # Errors
    /// When the file cannot be read or is no template; the message names the file.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        let content = |problem: String| LoadError::Content { path: path.to_owned(), problem };
        let bytes =
            std::fs::read(path).map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        if bytes.len() > SOURCE_BYTES {
            return Err(content(format!("it has {} bytes, at most {SOURCE_BYTES} are read", bytes.len())));
        }
        let text = String::from_utf8(bytes)
            .map_err(|e| content(format!("it is not UTF-8 (byte {})", e.utf8_error().valid_up_to())))?;
        Self::parse(&text).map_err(|source| LoadError::Parse { path: path.to_owned(), source })
    }

    /// Renders with `data` as `.` and `$`. Takes at most [`STEPS`] steps and gives at most [`OUTPUT_BYTES`].
    ///
    /// # Errors
    /// When an expression has no value or a limit is passed.
    pub fn render(&self, data: &Value) -> Result<String, RenderError> {
        eval::render(&self.nodes, data)
    }
}
