//! The list of changes that cargo-mutants makes.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result};
use serde_json::Value;

/// A line and a column, from 1 on.
pub(super) type Position = (usize, usize);

/// One change.
#[derive(Debug, Default)]
pub(super) struct Mutant {
    /// From the root.
    pub(super) file: String,
    /// As cargo-mutants lists it, with line and column.
    pub(super) listed: String,
    /// Without these, which other edits change. Of equal ones in a file, the second and those after it have a number.
    pub(super) name: String,
    /// The function that it is in, if any.
    pub(super) function: Option<Range<Position>>,
    /// What is replaced.
    pub(super) span: Range<Position>,
    /// By what.
    pub(super) replacement: String,
}

/// Reads what `cargo mutants --list --json` prints.
pub(super) fn read(json: &str) -> Result<Vec<Mutant>> {
    let list: Vec<Value> = serde_json::from_str(json).context("cargo-mutants printed no list")?;
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mutants = list.iter().map(|entry| {
        let mut mutant =
            mutant(entry).with_context(|| format!("cannot read a mutant of the list: {entry}"))?;
        let times = times.entry(mutant.name.clone()).or_default();
        *times += 1;
        if *times > 1 {
            mutant.name = format!("{} ({times})", mutant.name);
        }
        Ok(mutant)
    });
    mutants.collect()
}

fn mutant(entry: &Value) -> Option<Mutant> {
    let text = |key: &str| Some(entry.get(key)?.as_str()?.to_owned());
    let (file, listed) = (text("file")?, text("name")?);
    let (_, what) = listed.split_once(": ")?;
    Some(Mutant {
        name: format!("{file}: {what}"),
        function: entry.get("function").and_then(|function| span(function.get("span")?)),
        span: span(entry.get("span")?)?,
        replacement: text("replacement")?,
        file,
        listed,
    })
}

fn span(of: &Value) -> Option<Range<Position>> {
    let number = |end: &Value, key: &str| usize::try_from(end.get(key)?.as_u64()?).ok();
    let position = |end: &Value| Some((number(end, "line")?, number(end, "column")?));
    Some(position(of.get("start")?)?..position(of.get("end")?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_no_lines_and_equal_ones_have_numbers() {
        let span = r#"{"start":{"line":3,"column":5},"end":{"line":3,"column":6}}"#;
        let entry = |line: u32, function: &str| {
            format!(
                r#"{{"file":"a.rs","name":"a.rs:{line}:5: replace < with > in f","function":{function},
                    "span":{span},"replacement":">"}}"#
            )
        };
        let function = format!(r#"{{"function_name":"f","span":{span}}}"#);
        let list = format!("[{},{}]", entry(3, &function), entry(4, "null"));
        let [first, second] = &read(&list).unwrap()[..] else { panic!("two entries") };
        assert_eq!(
            (&*first.name, &*second.name),
            ("a.rs: replace < with > in f", "a.rs: replace < with > in f (2)")
        );
        assert_eq!((first.function.clone(), second.function.clone()), (Some((3, 5)..(3, 6)), None));
        assert!(read("[{}]").is_err());
    }
}
