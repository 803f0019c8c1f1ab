//! Evaluation with bounded work: every node costs a step, and every 64 bytes that a function touches cost another.

use super::func::{self, Function};
use super::parse::{Base, Branch, BranchKind, Command, Node, Pipe, Term};
use super::{OUTPUT_BYTES, Position, RenderError, STEPS, Value};

struct Evaluator {
    out: String,
    steps: u32,
    /// Innermost last; the first is `$`.
    variables: Vec<(String, Value)>,
}

/// The text that `nodes` make of `data`.
pub(super) fn render(nodes: &[Node], data: &Value) -> Result<String, RenderError> {
    let mut evaluator =
        Evaluator { out: String::new(), steps: 0, variables: vec![("$".to_owned(), data.clone())] };
    evaluator.nodes(nodes, data)?;
    Ok(evaluator.out)
}

fn failed<T>(at: Position, problem: impl Into<String>) -> Result<T, RenderError> {
    Err(RenderError::Failed { at, problem: problem.into() })
}

impl Evaluator {
    fn charge(&mut self, at: Position, bytes: usize) -> Result<(), RenderError> {
        let cost = u32::try_from(bytes / 64).unwrap_or(STEPS).saturating_add(1);
        self.steps = self.steps.saturating_add(cost);
        if self.steps > STEPS { Err(RenderError::TooLong { at }) } else { Ok(()) }
    }

    fn write(&mut self, at: Position, text: &str) -> Result<(), RenderError> {
        if self.out.len() + text.len() > OUTPUT_BYTES {
            return Err(RenderError::TooLarge { at });
        }
        self.out.push_str(text);
        Ok(())
    }

    fn nodes(&mut self, nodes: &[Node], dot: &Value) -> Result<(), RenderError> {
        for node in nodes {
            match node {
                Node::Text(at, text) => {
                    self.charge(*at, text.len())?;
                    self.write(*at, text)?;
                }
                Node::Pipe(pipe) => {
                    let value = self.pipe(pipe, dot)?;
                    if let Some(name) = pipe.declares.first() {
                        self.variables.push((name.clone(), value));
                    } else {
                        present(pipe.at, &value)?;
                        self.charge(pipe.at, value.weight())?;
                        if let Value::Text(text) = &value {
                            self.write(pipe.at, text)?;
                        } else {
                            self.write(pipe.at, &value.to_string())?;
                        }
                    }
                }
                Node::Branch(branch) => {
                    let scope = self.variables.len();
                    self.branch(branch, dot)?;
                    self.variables.truncate(scope);
                }
            }
        }
        Ok(())
    }

    fn branch(&mut self, branch: &Branch, dot: &Value) -> Result<(), RenderError> {
        let Branch { kind, pipe, body, otherwise } = branch;
        let value = self.pipe(pipe, dot)?;
        if *kind == BranchKind::Range {
            return self.range(branch, &value, dot);
        }
        if let Some(name) = pipe.declares.first() {
            self.variables.push((name.clone(), value.clone()));
        }
        match (value.is_true(), kind) {
            (true, BranchKind::With) => self.nodes(body, &value),
            (true, _) => self.nodes(body, dot),
            (false, _) => self.nodes(otherwise, dot),
        }
    }

    fn range(&mut self, branch: &Branch, over: &Value, dot: &Value) -> Result<(), RenderError> {
        let Branch { pipe, body, otherwise, .. } = branch;
        present(pipe.at, over)?;
        let items: Vec<(Value, Value)> = match over {
            Value::List(items) => (0i64..).map(Value::Int).zip(items.iter().cloned()).collect(),
            Value::Map(entries) => entries.iter().map(|(k, v)| (Value::text(k), Value::text(v))).collect(),
            other => return failed(pipe.at, format!("range cannot loop over {}", other.kind())),
        };
        self.charge(pipe.at, items.len())?;
        if items.is_empty() {
            return self.nodes(otherwise, dot);
        }
        let scope = self.variables.len();
        for (key, value) in items {
            self.charge(pipe.at, 0)?;
            match pipe.declares.as_slice() {
                [one] => self.variables.push((one.clone(), value.clone())),
                [first, second] => {
                    self.variables.push((first.clone(), key));
                    self.variables.push((second.clone(), value.clone()));
                }
                _ => {}
            }
            self.nodes(body, &value)?;
            self.variables.truncate(scope);
        }
        Ok(())
    }

    fn pipe(&mut self, pipe: &Pipe, dot: &Value) -> Result<Value, RenderError> {
        let mut value = None;
        for command in &pipe.commands {
            value = Some(self.command(command, dot, value)?);
        }
        value.map_or_else(|| failed(pipe.at, "a value is missing"), Ok)
    }

    fn command(
        &mut self,
        command: &Command,
        dot: &Value,
        piped: Option<Value>,
    ) -> Result<Value, RenderError> {
        let at = command.at;
        self.charge(at, 0)?;
        let Some(function) = command.function else {
            let Some(term) = command.terms.first() else {
                return failed(at, "a value is missing");
            };
            return self.term(term, dot);
        };
        if matches!(function, Function::And | Function::Or) {
            return self.shortcut(command, function == Function::Or, dot, piped);
        }
        let mut arguments = Vec::with_capacity(command.terms.len() + 1);
        for term in &command.terms {
            arguments.push(self.term(term, dot)?);
        }
        arguments.extend(piped);
        if function != Function::Not {
            for argument in &arguments {
                present(at, argument)?;
            }
        }
        self.charge(at, arguments.iter().map(Value::weight).sum())?;
        let value =
            func::call(function, &arguments).map_err(|problem| RenderError::Failed { at, problem })?;
        let weight = value.weight();
        self.charge(at, weight)?;
        // A variable that holds what can never be printed would only let texts grow without bound.
        if weight > 4 * OUTPUT_BYTES { Err(RenderError::TooLarge { at }) } else { Ok(value) }
    }

    /// `and` gives its first argument that is not true, `or` its first that is, else the last.
    fn shortcut(
        &mut self,
        command: &Command,
        stop_at: bool,
        dot: &Value,
        piped: Option<Value>,
    ) -> Result<Value, RenderError> {
        let mut value = None;
        for term in &command.terms {
            let this = self.term(term, dot)?;
            if this.is_true() == stop_at {
                return Ok(this);
            }
            value = Some(this);
        }
        piped.or(value).map_or_else(|| failed(command.at, "a value is missing"), Ok)
    }

    fn term(&mut self, term: &Term, dot: &Value) -> Result<Value, RenderError> {
        self.charge(term.at, 0)?;
        let mut value = match &term.base {
            Base::Dot => dot.clone(),
            Base::Constant(value) => value.clone(),
            Base::Pipe(pipe) => self.pipe(pipe, dot)?,
            Base::Variable(name) => match self.variables.iter().rev().find(|(known, _)| known == name) {
                Some((_, value)) => value.clone(),
                None => return failed(term.at, format!("{name} has no value here")),
            },
        };
        for name in &term.fields {
            value = field(term.at, &value, name)?;
        }
        Ok(value)
    }
}

fn field(at: Position, of: &Value, name: &str) -> Result<Value, RenderError> {
    match of {
        Value::Record(fields) => match fields.iter().find(|(known, _)| *known == name) {
            Some((_, value)) => Ok(value.clone()),
            None => {
                let known: Vec<String> = fields.iter().map(|(known, _)| format!(".{known}")).collect();
                failed(at, format!("unknown field .{name}; known are {}", known.join(" ")))
            }
        },
        Value::Map(entries) => match entries.get(name) {
            Some(value) => Ok(Value::text(value)),
            None => failed(at, format!("the map has no key {name:?}")),
        },
        Value::Absent(reason) => failed(at, *reason),
        other => failed(at, format!("{} has no field .{name}", other.kind())),
    }
}

fn present(at: Position, value: &Value) -> Result<(), RenderError> {
    value.absence().map_or(Ok(()), |reason| failed(at, reason))
}
