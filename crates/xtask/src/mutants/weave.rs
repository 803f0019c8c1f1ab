//! Many changes in one text: a function with changes becomes a choice among its bodies.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result};

use super::list::{Mutant, Position};

/// What the changed crate asks which change is on.
pub(super) const SWITCH: &str = r#"
mod mutant {
    /// The number of the change that is on; 0: none.
    pub(crate) fn on() -> usize {
        static ON: std::sync::LazyLock<usize> =
            std::sync::LazyLock::new(|| std::env::var("MUTANT").ok().and_then(|on| on.parse().ok()).unwrap_or(0));
        *ON
    }
}
"#;

/// The text with all changes, each of which is on when its number is. They are in functions, and of this text.
pub(super) fn weave(text: &str, changes: &[(usize, &Mutant)]) -> Result<String> {
    let mut functions: BTreeMap<(usize, usize), Vec<(usize, &Mutant)>> = BTreeMap::new();
    for (number, mutant) in changes {
        let function =
            mutant.function.clone().with_context(|| format!("{} is in no function", mutant.name))?;
        let Range { start, end } = offsets(text, &function)?;
        functions.entry((start, end)).or_default().push((*number, mutant));
    }
    let (mut woven, mut at) = (String::new(), 0);
    for ((start, end), changes) in functions {
        let body = start + body(&text[start..end]).context("a function has no body")?;
        let signature = &text[start..body];
        // The bodies of such a function are of different types.
        let is_opaque = signature.contains("-> impl Iterator");
        let choice = |body: &str| match is_opaque {
            true => format!("{{ {body}.collect::<Vec<_>>().into_iter() }}"),
            false => body.to_owned(),
        };
        woven.push_str(&text[at..body]);
        woven.push_str("{ match crate::mutant::on() {\n");
        for (number, mutant) in changes {
            let Range { start: from, end: to } = offsets(text, &mutant.span)?;
            let changed = format!("{}{} {}", &text[body..from], mutant.replacement, &text[to..end]);
            woven.push_str(&format!("/*mutant {number}*/ {number} => {}\n", choice(&changed)));
        }
        woven.push_str(&format!("/*mutant 0*/ _ => {}\n}} }}", choice(&text[body..end])));
        at = end;
    }
    woven.push_str(&text[at..]);
    Ok(woven)
}

/// The text with one change, wherever in it.
pub(super) fn alter(text: &str, change: &Mutant) -> Result<String> {
    let Range { start, end } = offsets(text, &change.span)?;
    Ok(format!("{}{}{}", &text[..start], change.replacement, &text[end..]))
}

/// Which change a place in a woven text belongs to; 0: none.
pub(super) fn owner(woven: &str, offset: usize) -> usize {
    let before = woven.get(..offset).unwrap_or(woven);
    let number = before.rsplit_once("/*mutant ").and_then(|(_, rest)| rest.split_once("*/")?.0.parse().ok());
    number.unwrap_or(0)
}

/// Where the body of a function begins.
fn body(function: &str) -> Option<usize> {
    let mut depth = 0;
    function.char_indices().find_map(|(at, c)| {
        match c {
            '(' | '[' => depth += 1,
            ')' | ']' => depth -= 1,
            '{' if depth == 0 => return Some(at),
            _ => {}
        }
        None
    })
}

fn offsets(text: &str, span: &Range<Position>) -> Result<Range<usize>> {
    let offset = |(line, column): Position| {
        let from: usize = text.split_inclusive('\n').take(line.checked_sub(1)?).map(str::len).sum();
        let rest = text.get(from..)?;
        let within = rest.char_indices().map(|(at, _)| at).chain([rest.len()]).nth(column.checked_sub(1)?)?;
        Some(from + within)
    };
    let range = offset(span.start).zip(offset(span.end)).map(|(start, end)| start..end);
    range.with_context(|| format!("the text has no lines {span:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_becomes_a_choice_among_its_bodies() {
        let text = "fn a() {}\n\nfn b(x: [u8; { 2 }]) -> bool {\n    1 < 2\n}\nfn c() {}\n";
        let change = |with: &str, span| Mutant {
            function: Some((3, 1)..(5, 2)),
            span,
            replacement: with.into(),
            ..Mutant::default()
        };
        let (less, body) = (change(">", (4, 7)..(4, 8)), change("true", (4, 5)..(4, 10)));
        let woven = weave(text, &[(7, &less), (9, &body)]).unwrap();
        let expected = "fn a() {}\n\nfn b(x: [u8; { 2 }]) -> bool { match crate::mutant::on() {\n\
            /*mutant 7*/ 7 => {\n    1 >  2\n}\n\
            /*mutant 9*/ 9 => {\n    true \n}\n\
            /*mutant 0*/ _ => {\n    1 < 2\n}\n} }\nfn c() {}\n";
        assert_eq!(woven, expected);
        let of = |place: &str| owner(&woven, woven.find(place).unwrap());
        assert_eq!((of("1 >"), of("true"), of("1 < 2"), of("fn b"), of("fn c")), (7, 9, 0, 0, 0));
    }

    #[test]
    fn a_change_outside_of_functions_takes_the_place_of_what_was_there() {
        let text = "const A: u32 = 1 << 4;\nconst B: u32 = 1 << 5;\n";
        let change = Mutant { span: (2, 18)..(2, 20), replacement: ">>".to_owned(), ..Mutant::default() };
        assert_eq!(alter(text, &change).unwrap(), "const A: u32 = 1 << 4;\nconst B: u32 = 1 >> 5;\n");
    }
}
