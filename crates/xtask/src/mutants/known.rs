//! Changes that make no difference, with the reasons.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::list::Mutant;

const TEXT: &str = include_str!("equivalent.txt");

/// Their names.
pub(super) struct Known(BTreeSet<String>);

impl Known {
    /// Reads the list: paragraphs of a reason, in lines that begin with `#`, and the names that it explains.
    pub(super) fn read() -> Result<Self> {
        Self::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Self> {
        let mut names = BTreeSet::new();
        for paragraph in text.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
            let (why, named): (Vec<&str>, Vec<&str>) =
                paragraph.trim().lines().partition(|line| line.starts_with('#'));
            if why.is_empty() {
                bail!("equivalent.txt gives no reason for `{}`", named.join("`, `"));
            }
            for name in named {
                if !names.insert(name.to_owned()) {
                    bail!("equivalent.txt explains `{name}` twice");
                }
            }
        }
        Ok(Self(names))
    }

    pub(super) fn explains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// The names that cargo-mutants does not list (any more).
    pub(super) fn stale(&self, all: &[Mutant]) -> Vec<&str> {
        let listed: BTreeSet<&str> = all.iter().map(|mutant| &*mutant.name).collect();
        self.0.iter().map(|name| &**name).filter(|name| !listed.contains(name)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_that_makes_no_difference_has_a_reason() {
        let known = Known::read().unwrap();
        for name in &known.0 {
            let (file, _) = name.split_once(": ").unwrap();
            assert!(crate::workspace::root().join(file).is_file(), "{name}");
        }
        assert!(Known::parse("a.rs: x").is_err());
        assert!(Known::parse("# why\na.rs: x\n\n# why else\na.rs: x").is_err());
        let known = Known::parse("# why\na.rs: x\na.rs: y\n").unwrap();
        assert!(known.explains("a.rs: y"));
        let listed = Mutant { name: "a.rs: y".into(), ..Mutant::default() };
        assert_eq!(known.stale(&[listed]), ["a.rs: x"]);
    }
}
