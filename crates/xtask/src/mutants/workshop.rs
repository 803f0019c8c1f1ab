//! A copy of the repository in which the engine has all changes at once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use cargo_metadata::diagnostic::DiagnosticLevel;
use cargo_metadata::{Message, MetadataCommand};

use super::list::Mutant;
use super::weave::{SWITCH, alter, owner, weave};
use crate::workspace::{self, cargo};

/// The copy, and where it is built.
pub(super) struct Workshop {
    copy: PathBuf,
    target: PathBuf,
}

impl Workshop {
    /// Makes the copy. What was built in it before stays.
    pub(super) fn open() -> Result<Self> {
        let root = workspace::root();
        let metadata = MetadataCommand::new()
            .current_dir(&root)
            .no_deps()
            .exec()
            .context("cannot ask for the target")?;
        let folder = metadata.target_directory.into_std_path_buf().join("mutants");
        let (copy, target) = (folder.join("copy"), folder.join("target"));
        if copy.exists() {
            std::fs::remove_dir_all(&copy).with_context(|| format!("cannot remove {}", copy.display()))?;
        }
        for file in workspace::files(&root)? {
            let to = copy.join(&file);
            let made = to.parent().map_or(Ok(()), std::fs::create_dir_all);
            made.and_then(|()| std::fs::copy(root.join(&file), &to))
                .with_context(|| format!("cannot copy {} to {}", file.display(), to.display()))?;
        }
        Ok(Self { copy, target })
    }

    /// Puts the changes in, but for those that do not compile: gives the numbers of these.
    pub(super) fn weave(&self, changes: &BTreeMap<usize, &Mutant>) -> Result<BTreeSet<usize>> {
        self.write(Path::new("crates/engine/src/lib.rs"), |text| Ok(format!("{text}{SWITCH}")))?;
        let mut by_file: BTreeMap<&str, Vec<(usize, &Mutant)>> = BTreeMap::new();
        for (number, mutant) in changes {
            by_file.entry(&mutant.file).or_default().push((*number, mutant));
        }
        let mut unviable = BTreeSet::new();
        loop {
            for (file, changes) in &by_file {
                let viable: Vec<_> =
                    changes.iter().copied().filter(|(number, _)| !unviable.contains(number)).collect();
                self.write(Path::new(file), |text| weave(text, &viable))?;
            }
            let found = self.errors()?;
            if found.is_empty() {
                return Ok(unviable);
            }
            unviable.extend(found);
        }
    }

    /// Builds the tests with one change instead of those that were put into its file. They have the names that they had.
    /// Says whether that compiles.
    pub(super) fn alter(&self, change: &Mutant) -> Result<bool> {
        self.write(Path::new(&change.file), |text| alter(text, change))?;
        let (_, is_ok) = Self::messages(&mut self.cargo(&["check", "--lib"]))?;
        if is_ok {
            self.tests().with_context(|| format!("with {}", change.listed))?;
        }
        Ok(is_ok)
    }

    /// Takes such a change back; those that were put into its file before do not come back.
    pub(super) fn restore(&self, change: &Mutant) -> Result<()> {
        self.write(Path::new(&change.file), |text| Ok(text.to_owned()))
    }

    /// Writes a file anew from what it is in the repository.
    fn write(&self, file: &Path, change: impl FnOnce(&str) -> Result<String>) -> Result<()> {
        let text = std::fs::read_to_string(workspace::root().join(file))
            .with_context(|| format!("cannot read {}", file.display()))?;
        std::fs::write(self.copy.join(file), change(&text)?)
            .with_context(|| format!("cannot write {}", file.display()))
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = cargo(arguments);
        command.args(["--package", "bigfleet-engine", "--locked", "--message-format", "json"]);
        command.current_dir(&self.copy).env("CARGO_TARGET_DIR", &self.target);
        command.env("CARGO_PROFILE_DEV_OPT_LEVEL", "1").env("CARGO_PROFILE_DEV_DEBUG", "0");
        command
    }

    fn messages(command: &mut Command) -> Result<(Vec<Message>, bool)> {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().context("cannot start cargo")?;
        let output = child.stdout.take().context("cargo prints nothing")?;
        let messages: Result<Vec<Message>, _> = Message::parse_stream(BufReader::new(output)).collect();
        let is_ok = child.wait().context("cargo got lost")?.success();
        Ok((messages.context("cannot read what cargo prints")?, is_ok))
    }

    /// The changes in which the compiler finds errors.
    fn errors(&self) -> Result<BTreeSet<usize>> {
        let (messages, is_ok) = Self::messages(&mut self.cargo(&["check", "--lib"]))?;
        let mut found = BTreeSet::new();
        for message in messages {
            let Message::CompilerMessage(message) = message else { continue };
            if !matches!(message.message.level, DiagnosticLevel::Error | DiagnosticLevel::Ice) {
                continue;
            }
            for span in message.message.spans.iter().filter(|span| span.is_primary) {
                let woven = std::fs::read_to_string(self.copy.join(&span.file_name)).unwrap_or_default();
                match owner(&woven, usize::try_from(span.byte_start).unwrap_or(usize::MAX)) {
                    0 => bail!("the copy does not compile: {}", message.message),
                    number => found.insert(number),
                };
            }
        }
        if found.is_empty() && !is_ok {
            bail!("cargo cannot check the copy in {}", self.copy.display());
        }
        Ok(found)
    }

    /// Builds the tests: their names and executables, to be run in the folder of the crate.
    pub(super) fn tests(&self) -> Result<(Vec<(String, PathBuf)>, PathBuf)> {
        let (messages, is_ok) = Self::messages(&mut self.cargo(&["test", "--no-run"]))?;
        let tests: Vec<(String, PathBuf)> = messages
            .into_iter()
            .filter_map(|message| match message {
                Message::CompilerArtifact(artifact) => {
                    Some((artifact.target.name, artifact.executable?.into_std_path_buf()))
                }
                _ => None,
            })
            .collect();
        if !is_ok || tests.is_empty() {
            bail!("cargo cannot build the tests of the copy in {}", self.copy.display());
        }
        Ok((tests, self.copy.join("crates/engine")))
    }
}
