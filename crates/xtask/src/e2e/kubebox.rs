//! The Kubernetes programs: built once from `e2e/kubebox`, kept outside the clone by what they were built from.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::workspace;

/// What decides the result, beside the Go toolchain and the flags.
const INPUTS: [&str; 4] = ["go.mod", "go.sum", "main.go", "podresources.go"];
/// The names that the program answers to.
const NAMES: [&str; 8] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "kubectl",
    "helm",
    "podresources",
];
/// How kwok plays kubelets: files of its own module.
const STAGES: [&str; 5] = [
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-ready",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
];

/// A folder with all programs.
#[derive(Debug, Clone)]
pub(super) struct Kubebox {
    folder: PathBuf,
}

impl Kubebox {
    /// Finds the programs, or builds them: some ten minutes on two cores, the first time on a machine.
    ///
    /// # Errors
    /// Go is missing, or the build fails.
    pub(super) fn find_or_build() -> Result<Self> {
        let source = workspace::root().join("e2e/kubebox");
        let flags = link_flags(&source)?;
        let folder = cache()?.join(key(&source, &go_version()?, &flags)?);
        if !folder.join("kwok-stages.yaml").is_file() {
            build(&source, &flags, &folder)?;
        }
        Ok(Self { folder })
    }

    /// One of the programs.
    pub(super) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set")?)
            .join(".cache"),
    };
    Ok(base.join("bigfleet/kubebox"))
}

fn go<S: AsRef<OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut go = Command::new("go");
    go.args(args);
    go.env("GOTOOLCHAIN", "local").env("GOWORK", "off").env("GOFLAGS", "").env("CGO_ENABLED", "0");
    go
}

fn go_version() -> Result<String> {
    let missing = "the Kubernetes programs of the end-to-end tests are built with Go, and `go` cannot be run; \
                   install Go 1.26 or newer from https://go.dev/dl and put it on PATH";
    let output = go(["version"]).output().context(missing)?;
    if !output.status.success() {
        bail!("{missing} ({})", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Kubernetes learns its own version from the linker.
fn link_flags(source: &Path) -> Result<String> {
    let text = std::fs::read_to_string(source.join("go.mod")).context("cannot read e2e/kubebox/go.mod")?;
    let version = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("k8s.io/kubernetes v"))
        .context("e2e/kubebox/go.mod requires no k8s.io/kubernetes")?;
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let set = |name: &str, value: &str| format!("-X k8s.io/component-base/version.{name}={value}");
    let version = set("gitVersion", &format!("v{version}"));
    Ok(format!("-s -w {version} {} {}", set("gitMajor", major), set("gitMinor", minor)))
}

fn key(source: &Path, go_version: &str, flags: &str) -> Result<String> {
    let mut hash = Sha256::new();
    for name in INPUTS {
        let bytes = std::fs::read(source.join(name)).with_context(|| format!("cannot read {name}"))?;
        hash.update(u64::try_from(bytes.len())?.to_le_bytes());
        hash.update(bytes);
    }
    for text in [go_version, flags].into_iter().chain(NAMES).chain(STAGES) {
        hash.update(text);
        hash.update([0]);
    }
    Ok(hash.finalize().iter().take(8).fold(String::new(), |mut hex, byte| {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        hex
    }))
}

fn build(source: &Path, flags: &str, folder: &Path) -> Result<()> {
    println!("building Kubernetes, once on this machine: minutes to ten of them, 3.3 GiB of memory");
    let start = Instant::now();
    // Beside the place it goes to, so that the last step is one rename: nobody ever finds half a folder.
    let partial = folder.with_extension(format!("partial.{}", std::process::id()));
    std::fs::create_dir_all(&partial).with_context(|| format!("cannot make {}", partial.display()))?;
    let result = build_into(source, flags, &partial).and_then(|()| {
        if folder.exists() {
            std::fs::remove_dir_all(folder)?;
        }
        std::fs::rename(&partial, folder).with_context(|| format!("cannot make {}", folder.display()))
    });
    if result.is_err() && partial.exists() {
        std::fs::remove_dir_all(&partial)?;
    }
    result?;
    println!("built in {:.1} minutes: {}", start.elapsed().as_secs_f64() / 60.0, folder.display());
    Ok(())
}

fn build_into(source: &Path, flags: &str, folder: &Path) -> Result<()> {
    // GOGC: compiler and linker collect garbage less often. Without DWARF there is a sixth less to do.
    let mut build = go(["build", "-trimpath", "-gcflags=all=-dwarf=false", "-ldflags", flags, "-o"]);
    build.arg(folder.join("kubebox")).arg(".").current_dir(source).env("GOGC", "400");
    workspace::run(&mut build)?;
    for name in NAMES {
        std::os::unix::fs::symlink("kubebox", folder.join(name))?;
    }
    let mut list = go(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"]);
    let output = list.current_dir(source).stderr(Stdio::inherit()).output()?;
    let module = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    let mut stages = String::new();
    for name in STAGES {
        let file = module.join("kustomize/stage").join(name).with_extension("yaml");
        let text =
            std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        stages.push_str("---\n");
        stages.push_str(&text);
    }
    Ok(std::fs::write(folder.join("kwok-stages.yaml"), stages)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_knows_every_input() {
        let source = workspace::root().join("e2e/kubebox");
        let copy = tempfile::tempdir().unwrap();
        for name in INPUTS {
            std::fs::copy(source.join(name), copy.path().join(name)).unwrap();
        }
        let base = key(copy.path(), "go1", "-s").unwrap();
        assert_eq!(base, key(&source, "go1", "-s").unwrap());
        assert_ne!(base, key(copy.path(), "go2", "-s").unwrap());
        assert_ne!(base, key(copy.path(), "go1", "-w").unwrap());
        for name in INPUTS {
            let file = copy.path().join(name);
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, format!("{text}\n")).unwrap();
            assert_ne!(base, key(copy.path(), "go1", "-s").unwrap(), "{name}");
            std::fs::write(&file, text).unwrap();
        }
        assert!(key(Path::new("/nowhere"), "go1", "-s").is_err());
        // What is compiled is what is hashed.
        let mut compiled: Vec<String> = std::fs::read_dir(&source)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".go") || name.starts_with("go."))
            .collect();
        compiled.sort();
        let mut inputs = INPUTS.map(str::to_owned).to_vec();
        inputs.sort();
        assert_eq!(compiled, inputs);
    }

    #[test]
    fn kubernetes_is_told_its_version() {
        let flags = link_flags(&workspace::root().join("e2e/kubebox")).unwrap();
        assert!(flags.contains("gitVersion=v1.") && flags.contains("gitMajor=1 "), "{flags}");
    }
}
