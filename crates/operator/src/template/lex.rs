//! Source into text and the tokens of actions.

use super::{ParseError, Position};

/// A piece of the source.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) at: Position,
    /// Whether it follows the token before it without a blank.
    pub(super) glued: bool,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// Text between actions, trimmed as its neighbours ask.
    Plain(String),
    /// `{{`
    Open,
    /// `}}`
    Close,
    /// `.`
    Dot,
    /// `.Name`
    Field(String),
    /// `$` or `$name`, with the dollar.
    Variable(String),
    /// A function or keyword.
    Word(String),
    Text(String),
    Int(i64),
    Pipe,
    Comma,
    Declare,
    LeftParen,
    RightParen,
}

/// Blanks for `{{-` and `-}}`.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

struct Lexer<'a> {
    rest: &'a str,
    at: Position,
    tokens: Vec<Token>,
}

/// Splits `source`. The result alternates `Plain` with `Open .. Close`; comments leave nothing.
pub(super) fn lex(source: &str) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer { rest: source, at: Position { line: 1, column: 1 }, tokens: Vec::new() };
    let mut trim = false;
    while !lexer.rest.is_empty() {
        trim = lexer.plain_then_action(trim)?;
    }
    Ok(lexer.tokens)
}

impl Lexer<'_> {
    fn advance(&mut self, bytes: usize) {
        let (passed, rest) = self.rest.split_at(bytes);
        for c in passed.chars() {
            if c == '\n' {
                self.at = Position { line: self.at.line.saturating_add(1), column: 1 };
            } else {
                self.at.column = self.at.column.saturating_add(1);
            }
        }
        self.rest = rest;
    }

    fn fail<T>(at: Position, problem: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { at, problem: problem.into() })
    }

    /// Reads text up to an action and the action; gives whether the text behind it is to be trimmed.
    fn plain_then_action(&mut self, trim_start: bool) -> Result<bool, ParseError> {
        let at = self.at;
        let end = self.rest.find("{{").unwrap_or(self.rest.len());
        let mut text = &self.rest[..end];
        let inside = self.rest.get(end + 2..).unwrap_or("");
        let trims = inside.starts_with('-') && inside[1..].starts_with(is_blank);
        if trim_start {
            text = text.trim_start_matches(is_blank);
        }
        if trims {
            text = text.trim_end_matches(is_blank);
        }
        if !text.is_empty() {
            self.tokens.push(Token { at, glued: false, kind: Kind::Plain(text.to_owned()) });
        }
        self.advance(end);
        if self.rest.is_empty() {
            return Ok(false);
        }
        let open = self.at;
        self.advance(if trims { 3 } else { 2 });
        let after_blanks = self.rest.trim_start_matches(is_blank);
        if after_blanks.starts_with("/*") {
            return self.comment(open);
        }
        self.tokens.push(Token { at: open, glued: false, kind: Kind::Open });
        self.action(open)
    }

    fn comment(&mut self, open: Position) -> Result<bool, ParseError> {
        let Some(end) = self.rest.find("*/") else {
            return Self::fail(open, "the comment is not closed with */");
        };
        self.advance(end + 2);
        let blanks = self.rest.len() - self.rest.trim_start_matches(is_blank).len();
        let (tail, trim) = (&self.rest[blanks..], blanks > 0 && self.rest[blanks..].starts_with("-}}"));
        if !trim && !tail.starts_with("}}") {
            return Self::fail(open, "a comment must fill its action: expected }} behind */");
        }
        self.advance(blanks + if trim { 3 } else { 2 });
        Ok(trim)
    }

    fn action(&mut self, open: Position) -> Result<bool, ParseError> {
        let mut glued = false;
        loop {
            let blanks = self.rest.len() - self.rest.trim_start_matches(is_blank).len();
            if blanks > 0 {
                self.advance(blanks);
                glued = false;
            }
            let at = self.at;
            let trim = blanks > 0 && self.rest.starts_with("-}}");
            if trim || self.rest.starts_with("}}") {
                self.tokens.push(Token { at, glued, kind: Kind::Close });
                self.advance(if trim { 3 } else { 2 });
                return Ok(trim);
            }
            let Some(first) = self.rest.chars().next() else {
                return Self::fail(open, "the action is not closed with }}");
            };
            let (kind, bytes) = self.token(at, first)?;
            self.tokens.push(Token { at, glued, kind });
            self.advance(bytes);
            glued = true;
        }
    }

    /// The token at the start of the rest, which begins with `first`, and its length.
    fn token(&self, at: Position, first: char) -> Result<(Kind, usize), ParseError> {
        let name = |from: usize| {
            let tail = &self.rest[from..];
            tail[..tail.find(|c| !is_name(c)).unwrap_or(tail.len())].to_owned()
        };
        match first {
            '|' => Ok((Kind::Pipe, 1)),
            ',' => Ok((Kind::Comma, 1)),
            '(' => Ok((Kind::LeftParen, 1)),
            ')' => Ok((Kind::RightParen, 1)),
            ':' if self.rest.starts_with(":=") => Ok((Kind::Declare, 2)),
            '.' => {
                let field = name(1);
                let bytes = 1 + field.len();
                Ok((if field.is_empty() { Kind::Dot } else { Kind::Field(field) }, bytes))
            }
            '$' => {
                let variable = format!("${}", name(1));
                let bytes = variable.len();
                Ok((Kind::Variable(variable), bytes))
            }
            '"' => self.quoted(at),
            '`' => match self.rest[1..].find('`') {
                Some(end) => Ok((Kind::Text(self.rest[1..=end].to_owned()), end + 2)),
                None => Self::fail(at, "the raw text is not closed with `"),
            },
            '{' if self.rest.starts_with("{{") => Self::fail(at, "an action inside an action"),
            c if c.is_ascii_digit() || c == '-' || c == '+' => {
                let digits = name(1);
                let text = &self.rest[..1 + digits.len()];
                if self.rest[text.len()..].starts_with('.') {
                    return Self::fail(at, "fractions are not supported");
                }
                match text.parse() {
                    Ok(number) => Ok((Kind::Int(number), text.len())),
                    Err(_) => Self::fail(at, format!("{text:?} is not a whole number")),
                }
            }
            c if is_name(c) => {
                let word = name(0);
                let bytes = word.len();
                Ok((Kind::Word(word), bytes))
            }
            c => Self::fail(at, format!("unexpected {c:?}")),
        }
    }

    fn quoted(&self, at: Position) -> Result<(Kind, usize), ParseError> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices().skip(1);
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => return Ok((Kind::Text(text), i + 1)),
                '\n' => break,
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => text.push('\n'),
                    Some('t') => text.push('\t'),
                    Some('r') => text.push('\r'),
                    Some(c @ ('"' | '\\')) => text.push(c),
                    Some(c) => {
                        return Self::fail(
                            at,
                            format!("unknown escape \\{c}; known are \\n \\t \\r \\\" \\\\"),
                        );
                    }
                    None => break,
                },
                c => text.push(c),
            }
        }
        Self::fail(at, "the text is not closed with \" on its line")
    }
}
