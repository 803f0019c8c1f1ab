//! The rows that were measured last, one JSON object a line, so that the page can be written anew at any time.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{LARGEST, provider, usual};

/// Rows by workload, in the order in which they run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results(Vec<(String, Value)>);

impl Results {
    /// Reads a file. One that does not exist holds no rows.
    ///
    /// # Errors
    /// The file cannot be read, or a line is no row.
    pub fn read(file: &Path) -> Result<Self> {
        match fs::read_to_string(file) {
            Ok(text) => Self::parse(&text).with_context(|| format!("{} is damaged", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
        }
    }

    /// Reads rows, one a line.
    ///
    /// # Errors
    /// A line is no JSON object with a `workload`.
    pub fn parse(text: &str) -> Result<Self> {
        let mut results = Self::default();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let row = serde_json::from_str(line).with_context(|| format!("line {number} is no JSON"))?;
            results.put(row).with_context(|| format!("line {number}"))?;
        }
        Ok(results)
    }

    /// Puts a row in, in place of an older one of its workload.
    ///
    /// # Errors
    /// It has no `workload`.
    pub fn put(&mut self, row: Value) -> Result<()> {
        let name = row["workload"].as_str().context("a row has no \"workload\"")?.to_owned();
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = row,
            None => self.0.push((name, row)),
        }
        let place =
            |name: &str| usual().chain([LARGEST]).chain(provider::names()).position(|known| known == name);
        self.0.sort_by_key(|(name, _)| place(name).unwrap_or(usize::MAX));
        Ok(())
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().map(|(_, row)| row)
    }

    /// The file's text.
    #[must_use]
    pub fn text(&self) -> String {
        self.rows().map(|row| format!("{row}\n")).collect()
    }
}
