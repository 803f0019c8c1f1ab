//! Links from one document to another file of the repository.

use std::path::Path;

use anyhow::{Context, Result};

use crate::workspace;

pub(super) fn check() -> Result<Vec<String>> {
    let root = workspace::root();
    let mut found = Vec::new();
    for file in workspace::files(&root)? {
        if file.extension().is_some_and(|e| e == "md") {
            let text = std::fs::read_to_string(root.join(&file))
                .with_context(|| format!("cannot read {}", file.display()))?;
            found.extend(dead(&root, &file, &text));
        }
    }
    Ok(found)
}

/// Links of `text`, the content of `file`, that lead to no file. Addresses on the web and anchors are not followed.
fn dead(root: &Path, file: &Path, text: &str) -> Vec<String> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let mut found = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for target in line.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or(target);
            let elsewhere = path.is_empty() || path.contains(':');
            if !elsewhere && !root.join(folder).join(path).exists() {
                found.push(format!("{}:{number} links to {target}, which is not there", file.display()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_nothing_is_found() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("docs")).unwrap();
        std::fs::write(dir.path().join("docs/b.md"), "").unwrap();
        let text = "[b](b.md) [web](https://example.org/x) [here](#top)\n[b](b.md#part) and [c](c.md)\n";
        let found = dead(dir.path(), Path::new("docs/a.md"), text);
        assert_eq!(found, ["docs/a.md:2 links to c.md, which is not there"]);
    }
}
