//! `bigfleet provider new`: a provider to begin with.

use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command};

use crate::command::{Failure, Outcome, print};

/// What is written, and where. `{{name}}`, `{{metrics}}` and `{{kit}}` stand for what was asked for.
const FILES: [(&str, &str); 5] = [
    ("Cargo.toml", include_str!("template/Cargo.toml.txt")),
    ("src/main.rs", include_str!("template/main.rs.txt")),
    ("src/cloud.rs", include_str!("template/cloud.rs.txt")),
    ("README.md", include_str!("template/README.md.txt")),
    (".gitignore", "/target\n"),
];
/// Where in a checkout the kit is.
const KIT: &str = "crates/provider-kit/Cargo.toml";

pub(super) fn command() -> Command {
    Command::new("new")
        .about("Write a provider to begin with: a crate that compiles, serves and leads to what is left to write")
        .arg(Arg::new("name").required(true).help("Its name: lower-case letters, digits and dashes"))
        .arg(Arg::new("dir").required(true).help("The folder to write; must not exist or be empty"))
        .arg(
            Arg::new("kit")
                .long("kit")
                .value_name("DIR")
                .help("A checkout of BigFleet; searched for upwards from here and from the new folder"),
        )
}

pub(super) fn run(matches: &ArgMatches) -> Outcome {
    let text = |name| matches.get_one::<String>(name).map_or("", String::as_str);
    let (name, dir) = (text("name"), Path::new(text("dir")));
    let sound = name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if !sound {
        return Err(Failure::Usage(format!(
            "NAME {name:?}: begin with a lower-case letter and go on with letters, digits and dashes"
        )));
    }
    let kit = kit(matches.get_one::<String>("kit").map(Path::new), dir)?;
    if dir.exists() && std::fs::read_dir(dir)?.next().is_some() {
        return Err(Failure::Usage(format!("DIR {}: is not empty; nothing was written", dir.display())));
    }
    for (path, content) in FILES {
        let path = dir.join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        let kit = kit.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
        let content = content.replace("{{name}}", name).replace("{{kit}}", &kit);
        std::fs::write(&path, content.replace("{{metrics}}", &name.replace('-', "_")))?;
    }
    print(&format!(
        "wrote {0}; next:\n  cd {0}\n  cargo run -- --use-fake-backend --addr 127.0.0.1:9000\n\
         then fill in src/cloud.rs from top to bottom\n",
        dir.display()
    ))
}

/// The checkout whose kit the new crate builds on, as an absolute path.
fn kit(asked: Option<&Path>, dir: &Path) -> Result<PathBuf, Failure> {
    if let Some(asked) = asked {
        if !asked.join(KIT).is_file() {
            return Err(Failure::Usage(format!("--kit {}: holds no {KIT}", asked.display())));
        }
        return Ok(asked.canonicalize()?);
    }
    let here = std::env::current_dir()?;
    let starts = [here.clone(), here.join(dir)];
    let found = starts.iter().flat_map(|start| start.ancestors()).find(|folder| folder.join(KIT).is_file());
    found.map(Path::to_owned).ok_or_else(|| {
        Failure::Usage(format!(
            "--kit: no checkout of BigFleet above {}; name one, so that the new crate can use its kit",
            here.display()
        ))
    })
}
