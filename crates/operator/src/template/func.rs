//! The functions of templates.

use base64::Engine as _;

use super::Value;
use super::printf;

/// A known function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    Eq,
    Ne,
    Lt,
    Gt,
    And,
    Or,
    Not,
    Len,
    Index,
    Printf,
    Quote,
    Join,
    B64enc,
    ToJson,
}

/// Name, function, fewest and most arguments.
const ALL: [(&str, Function, usize, usize); 14] = [
    ("eq", Function::Eq, 2, usize::MAX),
    ("ne", Function::Ne, 2, 2),
    ("lt", Function::Lt, 2, 2),
    ("gt", Function::Gt, 2, 2),
    ("and", Function::And, 1, usize::MAX),
    ("or", Function::Or, 1, usize::MAX),
    ("not", Function::Not, 1, 1),
    ("len", Function::Len, 1, 1),
    ("index", Function::Index, 1, usize::MAX),
    ("printf", Function::Printf, 1, usize::MAX),
    ("quote", Function::Quote, 1, usize::MAX),
    ("join", Function::Join, 2, 2),
    ("b64enc", Function::B64enc, 1, 1),
    ("toJson", Function::ToJson, 1, 1),
];

impl Function {
    pub(super) fn named(name: &str) -> Option<Self> {
        ALL.iter().find(|(known, ..)| *known == name).map(|(_, function, ..)| *function)
    }

    pub(super) fn names() -> String {
        ALL.map(|(name, ..)| name).join(" ")
    }

    /// Refuses a number of arguments that the function does not take.
    pub(super) fn check_count(self, count: usize) -> Result<(), String> {
        let Some((name, _, fewest, most)) = ALL.iter().find(|(_, function, ..)| *function == self) else {
            return Ok(());
        };
        match count {
            n if n < *fewest => Err(format!("{name} takes at least {fewest} arguments, it has {n}")),
            n if n > *most => Err(format!("{name} takes at most {most} arguments, it has {n}")),
            _ => Ok(()),
        }
    }
}

/// Calls a function. `And` and `Or` are the evaluator's, because they do not look at all their arguments.
///
/// # Errors
/// When the arguments are of the wrong kind.
pub(super) fn call(function: Function, arguments: &[Value]) -> Result<Value, String> {
    use Function::{And, B64enc, Eq, Gt, Index, Join, Len, Lt, Ne, Not, Or, Printf, Quote, ToJson};
    match (function, arguments) {
        (Eq, [first, others @ ..]) => {
            for other in others {
                if equal(first, other)? {
                    return Ok(Value::Bool(true));
                }
            }
            Ok(Value::Bool(false))
        }
        (Ne, [a, b]) => Ok(Value::Bool(!equal(a, b)?)),
        (Lt, [a, b]) => Ok(Value::Bool(order(a, b)?.is_lt())),
        (Gt, [a, b]) => Ok(Value::Bool(order(a, b)?.is_gt())),
        (Not, [a]) => Ok(Value::Bool(!a.is_true())),
        (Len, [a]) => len(a),
        (Index, [of, keys @ ..]) => keys.iter().try_fold(of.clone(), |of, key| index(&of, key)),
        (Printf, [Value::Text(format), rest @ ..]) => {
            printf::printf(format, rest).map(|text| Value::text(&text))
        }
        (Printf, [other, ..]) => Err(format!("printf takes a format text first, not {}", other.kind())),
        (Quote, all) => {
            let quoted: Vec<String> = all.iter().map(|value| printf::quoted(&value.to_string())).collect();
            Ok(Value::text(&quoted.join(" ")))
        }
        (Join, [Value::Text(separator), list]) => join(separator, list),
        (Join, [other, _]) => Err(format!("join takes a separator text first, not {}", other.kind())),
        (B64enc, [Value::Text(text)]) => {
            Ok(Value::text(&base64::engine::general_purpose::STANDARD.encode(text.as_bytes())))
        }
        (B64enc, [other]) => Err(format!("b64enc takes a text, not {}", other.kind())),
        (ToJson, [value]) => Ok(Value::text(&value.to_json().to_string())),
        (And | Or | Ne | Lt | Gt | Eq | Not | Len | Index | Printf | Join | B64enc | ToJson, _) => {
            Err("wrong number of arguments".to_owned())
        }
    }
}

fn incomparable(a: &Value, b: &Value) -> String {
    format!("{} and {} cannot be compared", a.kind(), b.kind())
}

fn equal(a: &Value, b: &Value) -> Result<bool, String> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Ok(a == b),
        (Value::Int(a), Value::Int(b)) => Ok(a == b),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        _ => Err(incomparable(a, b)),
    }
}

fn order(a: &Value, b: &Value) -> Result<std::cmp::Ordering, String> {
    match (a, b) {
        (Value::Text(a), Value::Text(b)) => Ok(a.cmp(b)),
        (Value::Int(a), Value::Int(b)) => Ok(a.cmp(b)),
        _ => Err(incomparable(a, b)),
    }
}

fn len(of: &Value) -> Result<Value, String> {
    let len = match of {
        Value::Text(text) => text.len(),
        Value::List(items) => items.len(),
        Value::Map(entries) => entries.len(),
        other => return Err(format!("{} has no length", other.kind())),
    };
    i64::try_from(len).map(Value::Int).map_err(|_| "the length is too large".to_owned())
}

fn index(of: &Value, key: &Value) -> Result<Value, String> {
    match (of, key) {
        (Value::List(items), Value::Int(i)) => usize::try_from(*i)
            .ok()
            .and_then(|i| items.get(i).cloned())
            .ok_or_else(|| format!("index {i} is outside the list of {}", items.len())),
        (Value::Map(entries), Value::Text(key)) => {
            Ok(Value::text(entries.get(&**key).map_or("", String::as_str)))
        }
        (of, key) => Err(format!("{} cannot be indexed with {}", of.kind(), key.kind())),
    }
}

fn join(separator: &str, list: &Value) -> Result<Value, String> {
    let Value::List(items) = list else {
        return Err(format!("join takes a list, not {}", list.kind()));
    };
    let bytes = items.iter().map(|item| item.weight() + separator.len()).sum::<usize>();
    if bytes > 4 * super::OUTPUT_BYTES {
        return Err("join makes a text that is too large".to_owned());
    }
    let texts: Vec<String> = items.iter().map(Value::to_string).collect();
    Ok(Value::text(&texts.join(separator)))
}
