//! Tokens into a tree. Functions and variables are resolved here, so that a typing error stops the start and not a
//! machine's boot.

use super::func::Function;
use super::lex::{Kind, Token};
use super::{ParseError, Position, Value};

/// How deep blocks and parentheses may nest: evaluation recurses as deep.
const DEPTH: usize = 64;

#[derive(Debug, Clone)]
pub(super) enum Node {
    Text(Position, String),
    /// A pipeline; prints its value unless it declares a variable.
    Pipe(Pipe),
    Branch(Branch),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BranchKind {
    If,
    With,
    Range,
}

#[derive(Debug, Clone)]
pub(super) struct Branch {
    pub(super) kind: BranchKind,
    pub(super) pipe: Pipe,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

#[derive(Debug, Clone)]
pub(super) struct Pipe {
    pub(super) at: Position,
    pub(super) declares: Vec<String>,
    pub(super) commands: Vec<Command>,
}

/// A value, or a function with its arguments; a value piped in comes last.
#[derive(Debug, Clone)]
pub(super) struct Command {
    pub(super) at: Position,
    pub(super) function: Option<Function>,
    pub(super) terms: Vec<Term>,
}

#[derive(Debug, Clone)]
pub(super) struct Term {
    pub(super) at: Position,
    pub(super) base: Base,
    pub(super) fields: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) enum Base {
    Dot,
    Variable(String),
    Constant(Value),
    Pipe(Box<Pipe>),
}

/// What ended a list of nodes.
enum Stop {
    Source,
    End,
    Else,
}

struct Parser {
    tokens: std::iter::Peekable<std::vec::IntoIter<Token>>,
    variables: Vec<String>,
    depth: usize,
    last: Position,
}

/// The tree of a whole source.
pub(super) fn parse(tokens: Vec<Token>) -> Result<Vec<Node>, ParseError> {
    let mut parser = Parser {
        tokens: tokens.into_iter().peekable(),
        variables: vec!["$".to_owned()],
        depth: 0,
        last: Position { line: 1, column: 1 },
    };
    match parser.nodes()? {
        (nodes, Stop::Source) => Ok(nodes),
        (_, Stop::End) => fail(parser.last, "end without if, with or range"),
        (_, Stop::Else) => fail(parser.last, "else without if, with or range"),
    }
}

fn fail<T>(at: Position, problem: impl Into<String>) -> Result<T, ParseError> {
    Err(ParseError { at, problem: problem.into() })
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        let token = self.tokens.next();
        if let Some(token) = &token {
            self.last = token.at;
        }
        token
    }

    fn peek(&mut self) -> Option<&Kind> {
        self.tokens.peek().map(|token| &token.kind)
    }

    fn close(&mut self, what: &str) -> Result<(), ParseError> {
        match self.next() {
            Some(Token { kind: Kind::Close, .. }) => Ok(()),
            Some(token) => fail(token.at, format!("{what} takes nothing more: expected }}}}")),
            None => fail(self.last, format!("{what} is not closed with }}}}")),
        }
    }

    fn deeper<T>(
        &mut self,
        at: Position,
        inner: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        if self.depth == DEPTH {
            return fail(at, format!("nested deeper than {DEPTH} levels"));
        }
        self.depth += 1;
        let result = inner(self);
        self.depth -= 1;
        result
    }

    /// Nodes up to `end`, `else` (both consumed up to and including the word) or the end of the source.
    fn nodes(&mut self) -> Result<(Vec<Node>, Stop), ParseError> {
        let mut nodes = Vec::new();
        while let Some(token) = self.next() {
            if let Kind::Plain(text) = token.kind {
                nodes.push(Node::Text(token.at, text));
                continue;
            }
            let word = match self.peek() {
                Some(Kind::Word(word)) => word.clone(),
                _ => String::new(),
            };
            let branch = match word.as_str() {
                "if" => BranchKind::If,
                "with" => BranchKind::With,
                "range" => BranchKind::Range,
                "end" => {
                    self.next();
                    self.close("end")?;
                    return Ok((nodes, Stop::End));
                }
                "else" => {
                    self.next();
                    return Ok((nodes, Stop::Else));
                }
                "define" | "template" | "block" | "break" | "continue" => {
                    return fail(token.at, format!("{word} is not supported in bootstrap templates"));
                }
                _ => {
                    let pipe = self.pipe(1, "the action")?;
                    self.close("the action")?;
                    nodes.push(Node::Pipe(pipe));
                    continue;
                }
            };
            self.next();
            nodes.push(Node::Branch(self.deeper(token.at, |p| p.branch(branch, &word, token.at))?));
        }
        Ok((nodes, Stop::Source))
    }

    fn branch(&mut self, kind: BranchKind, word: &str, at: Position) -> Result<Branch, ParseError> {
        let scope = self.variables.len();
        let pipe = self.pipe(if kind == BranchKind::Range { 2 } else { 1 }, word)?;
        self.close(word)?;
        let (body, end) = self.nodes()?;
        // In the other branch a loop's variables have no value; those of if and with do.
        if kind == BranchKind::Range {
            self.variables.truncate(scope);
        } else {
            self.variables.truncate(scope + pipe.declares.len());
        }
        let otherwise = match end {
            Stop::End => Vec::new(),
            Stop::Source => return fail(at, format!("{word} has no end")),
            Stop::Else => self.otherwise(word, at)?,
        };
        self.variables.truncate(scope);
        Ok(Branch { kind, pipe, body, otherwise })
    }

    /// What follows the word `else`: a chained branch, or `}}`, nodes and `end`.
    fn otherwise(&mut self, word: &str, at: Position) -> Result<Vec<Node>, ParseError> {
        let chained = match self.peek() {
            Some(Kind::Word(next)) if next == "if" && word == "if" => BranchKind::If,
            Some(Kind::Word(next)) if next == "with" && word == "with" => BranchKind::With,
            _ => {
                self.close("else")?;
                return match self.nodes()? {
                    (nodes, Stop::End) => Ok(nodes),
                    (_, Stop::Source) => fail(at, format!("{word} has no end")),
                    (_, Stop::Else) => fail(self.last, "a second else"),
                };
            }
        };
        self.next();
        let at = self.last;
        Ok(vec![Node::Branch(self.deeper(at, |p| p.branch(chained, word, at))?)])
    }

    /// `[$a[, $b] :=] command {| command}`, with at most `declarations` variables.
    fn pipe(&mut self, declarations: usize, what: &str) -> Result<Pipe, ParseError> {
        let at = self.tokens.peek().map_or(self.last, |token| token.at);
        let declares = self.declarations(declarations)?;
        let mut commands = vec![self.command(None, what)?];
        while self.peek() == Some(&Kind::Pipe) {
            self.next();
            let piped = commands.last().map(|c| c.at);
            commands.push(self.command(piped, what)?);
        }
        self.variables.extend(declares.iter().cloned());
        Ok(Pipe { at, declares, commands })
    }

    fn declarations(&mut self, most: usize) -> Result<Vec<String>, ParseError> {
        let mut ahead = self.tokens.clone();
        let mut names = Vec::new();
        while let Some(Token { kind: Kind::Variable(name), at, .. }) = ahead.next() {
            names.push((name, at));
            match ahead.next().map(|token| token.kind) {
                Some(Kind::Comma) => {}
                Some(Kind::Declare) => {
                    if let Some((_, at)) = names.get(most) {
                        return fail(*at, format!("at most {most} variables can be declared here"));
                    }
                    if let Some((_, at)) = names.iter().find(|(name, _)| name == "$") {
                        return fail(*at, "$ cannot be declared");
                    }
                    self.tokens = ahead;
                    return Ok(names.into_iter().map(|(name, _)| name).collect());
                }
                _ => return Ok(Vec::new()),
            }
        }
        Ok(Vec::new())
    }

    fn command(&mut self, piped: Option<Position>, what: &str) -> Result<Command, ParseError> {
        let at = self.tokens.peek().map_or(self.last, |token| token.at);
        let mut function = None;
        if let Some(Kind::Word(word)) = self.peek()
            && !is_constant(word)
        {
            let word = word.clone();
            function = Some(self.function(&word, at)?);
            self.next();
        }
        let mut terms = Vec::new();
        while let Some(Token { at, kind, .. }) = self.tokens.peek() {
            let at = *at;
            match kind {
                Kind::Dot | Kind::Field(_) | Kind::Variable(_) | Kind::Text(_) | Kind::Int(_) => {}
                Kind::LeftParen => {}
                Kind::Word(word) if is_constant(word) => {}
                Kind::Word(word) => {
                    return fail(at, format!("{word} has to be in parentheses to be an argument"));
                }
                Kind::Declare => return fail(at, ":= needs variables before it"),
                Kind::Comma => return fail(at, "unexpected ,"),
                _ => break,
            }
            terms.push(self.term()?);
        }
        match function {
            None if terms.is_empty() => fail(at, format!("{what} lacks a value")),
            None if terms.len() > 1 => fail(terms[1].at, "only a function takes arguments"),
            None if piped.is_some() => fail(at, "a value can be piped into a function only"),
            Some(f) => {
                let count = terms.len() + usize::from(piped.is_some());
                match f.check_count(count) {
                    Ok(()) => Ok(Command { at, function, terms }),
                    Err(problem) => fail(at, problem),
                }
            }
            None => Ok(Command { at, function, terms }),
        }
    }

    fn function(&self, word: &str, at: Position) -> Result<Function, ParseError> {
        Function::named(word).map_or_else(
            || fail(at, format!("unknown function {word:?}; known are {}", Function::names())),
            Ok,
        )
    }

    fn term(&mut self) -> Result<Term, ParseError> {
        let Some(token) = self.next() else {
            return fail(self.last, "a value is missing");
        };
        let mut fields = Vec::new();
        let base = match token.kind {
            Kind::Dot => Base::Dot,
            Kind::Field(name) => {
                fields.push(name);
                Base::Dot
            }
            Kind::Variable(name) => {
                if !self.variables.contains(&name) {
                    return fail(token.at, format!("unknown variable {name}"));
                }
                Base::Variable(name)
            }
            Kind::Text(text) => Base::Constant(Value::text(&text)),
            Kind::Int(number) => Base::Constant(Value::Int(number)),
            Kind::Word(word) => Base::Constant(Value::Bool(word == "true")),
            Kind::LeftParen => {
                let pipe = self.deeper(token.at, |p| p.pipe(0, "the parenthesis"))?;
                match self.next() {
                    Some(Token { kind: Kind::RightParen, .. }) => Base::Pipe(Box::new(pipe)),
                    _ => return fail(token.at, "the parenthesis is not closed"),
                }
            }
            _ => return fail(token.at, "a value is missing"),
        };
        let chains = match base {
            Base::Constant(_) => false,
            Base::Dot => !fields.is_empty(),
            Base::Variable(_) | Base::Pipe(_) => true,
        };
        while let Some(Token { glued: true, at, kind }) = self.tokens.peek() {
            match kind {
                Kind::Field(name) if chains => {
                    fields.push(name.clone());
                    self.next();
                }
                Kind::Close | Kind::RightParen | Kind::Pipe => break,
                _ => return fail(*at, "a blank is missing between two values"),
            }
        }
        Ok(Term { at: token.at, base, fields })
    }
}

fn is_constant(word: &str) -> bool {
    matches!(word, "true" | "false")
}
