//! `bigfleet conformance`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use bigfleet_conformance::{
    Authority, Error as RunError, Event, Launch, Only, Options, Outcome as Found, Profile,
    Program as Provider, Report, Series, Settings, Subject, Verdict, behaviours, run as run_suite,
};

use super::{Failure, Outcome, block_on, print};
use crate::config::{Flag, Kind, Later, Program, Values};
use crate::logging;

const MINTED: &str = "the suite mints a certificate for each shard id; name the authority with --tls-ca and --tls-ca-key, or say --tls";
/// The status of a run that certifies nothing and saw nothing broken.
const INCOMPLETE: u8 = 3;

const FLAGS: &[Flag] = &[
    Flag {
        name: "target",
        kind: Kind::Address,
        default: Some(""),
        help: "Test the provider that runs at this address",
    },
    Flag {
        name: "exec",
        kind: Kind::Text,
        default: Some(""),
        help: "Test this command, started with the contract's flags added; quotes as in a shell",
    },
    Flag {
        name: "fault-exec",
        kind: Kind::Text,
        default: Some(""),
        help: "The command that breaks on demand, for the profiles fault and durable; without it that of --exec",
    },
    Flag {
        name: "profile",
        kind: Kind::Required,
        default: Some("core"),
        help: "What the provider claims: core, cloud, spot, bare-metal, fault, durable, scale; with commas between",
    },
    Flag {
        name: "only",
        kind: Kind::Text,
        default: Some(""),
        help: "Run these behaviours only, such as B3*,FullLifecycle; there is no certificate for a part",
    },
    Flag {
        name: "out",
        kind: Kind::Path,
        default: Some("conformance-report"),
        help: "The folder for report.json, junit.xml, summary.txt and what providers print",
    },
    Flag {
        name: "list",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Print every behaviour with its profiles and its clause, and test nothing",
    },
    Flag {
        name: "tls",
        kind: Kind::Bool,
        default: Some("false"),
        help: "Run --exec under mutual TLS, with an authority made for the run",
    },
    Flag {
        name: "tls-ca",
        kind: Kind::Path,
        default: Some(""),
        help: "The test authority that the provider trusts (PEM); a client certificate is minted for each shard id",
    },
    Flag {
        name: "tls-ca-key",
        kind: Kind::Path,
        default: Some(""),
        help: "The private key of --tls-ca (PEM)",
    },
    Flag {
        name: "settle-timeout",
        kind: Kind::PositiveDuration,
        default: Some("30s"),
        help: "How long a transition may take; real clouds need minutes",
    },
    Flag {
        name: "scale-seed",
        kind: Kind::Count(100),
        default: Some("8000"),
        help: "Machines of the profile scale",
    },
    Flag {
        name: "soak",
        kind: Kind::Duration,
        default: Some("10s"),
        help: "How long the profile scale churns",
    },
    Flag { name: "random-seed", kind: Kind::Count(0), default: Some("1"), help: "Where chance begins" },
];

pub(super) const PROGRAM: Program = Program {
    name: "conformance",
    about: "Test a provider against the contract: exit 0 certified, 1 failed, 3 incomplete",
    flags: &[FLAGS, logging::FLAGS],
    later: &[Later { name: "tls-cert", reason: MINTED }, Later { name: "tls-key", reason: MINTED }],
};

fn options(values: &Values) -> Result<Options, Failure> {
    let words = values.text("profile").split(',').map(str::trim).filter(|word| !word.is_empty());
    let profiles: BTreeSet<Profile> = words
        .map(str::parse)
        .collect::<Result<_, _>>()
        .map_err(|error| Failure::Usage(format!("--profile: {error}")))?;
    if profiles.is_empty() {
        return Err(Failure::Usage("--profile: names no profile".to_owned()));
    }
    let only = values.text("only");
    let settings = Settings {
        settle: values.duration("settle-timeout"),
        scale_seed: u32::try_from(values.count("scale-seed"))
            .map_err(|_| Failure::Usage("--scale-seed: is larger than 4294967295".to_owned()))?,
        soak: values.duration("soak"),
        random_seed: u64::try_from(values.count("random-seed")).unwrap_or(u64::MAX),
        ..Settings::default()
    };
    Ok(Options { profiles, only: (!only.is_empty()).then(|| Only::new(only)), settings, authority: None })
}

fn authority(values: &Values, out: &Path) -> Result<Option<Arc<Authority>>, Failure> {
    let folder = out.join("tls");
    let made = match (values.path("tls-ca"), values.path("tls-ca-key"), values.switch("tls")) {
        (None, None, false) => return Ok(None),
        (None, None, true) if values.text("exec").is_empty() => {
            return Err(Failure::Usage(
                "--tls: a provider at --target trusts an authority of its own; name it with --tls-ca and --tls-ca-key"
                    .to_owned(),
            ));
        }
        (None, None, true) => Authority::generate(&folder),
        (Some(ca), Some(key), _) => Authority::load(&ca, &key, &folder),
        _ => {
            return Err(Failure::Usage(
                "--tls-ca, --tls-ca-key: certificates are minted with both of them or not at all".to_owned(),
            ));
        }
    };
    Ok(Some(Arc::new(made.map_err(|error| Failure::Usage(format!("--tls-ca, --tls-ca-key: {error}")))?)))
}

fn program(
    flag: &str,
    line: &str,
    logs: &Path,
    authority: Option<&Authority>,
) -> Result<Arc<dyn Launch>, Failure> {
    let words =
        shlex::split(line).ok_or_else(|| Failure::Usage(format!("--{flag} {line:?}: a quote is open")))?;
    let Some(program) = Provider::new(words, logs) else {
        return Err(Failure::Usage(format!("--{flag} {line:?}: names no program")));
    };
    match authority {
        Some(authority) => Ok(Arc::new(program.tls(authority.server().map_err(anyhow::Error::from)?))),
        None => Ok(Arc::new(program)),
    }
}

fn subject(values: &Values, out: &Path, authority: Option<&Authority>) -> Result<Subject, Failure> {
    let (target, exec, fault) = (values.text("target"), values.text("exec"), values.text("fault-exec"));
    match (target, exec) {
        ("", "") => Err(Failure::Usage("--target or --exec: one of them says what to test".to_owned())),
        (addr, "") if fault.is_empty() => Ok(Subject::Address(addr.to_owned())),
        (_, "") => Err(Failure::Usage(
            "--fault-exec: goes with --exec; for a --target, run the profile fault against its address"
                .to_owned(),
        )),
        ("", line) => {
            let program = program("exec", line, out, authority)?;
            let fault = match fault {
                "" => Arc::clone(&program),
                line => self::program("fault-exec", line, &fault_logs(out)?, authority)?,
            };
            Ok(Subject::Program { program, fault, name: line.to_owned() })
        }
        _ => Err(Failure::Usage("--target, --exec: only one of them can be tested at a time".to_owned())),
    }
}

fn fault_logs(out: &Path) -> Result<PathBuf, Failure> {
    let folder = out.join("fault");
    std::fs::create_dir_all(&folder).with_context(|| format!("--out: cannot make {}", folder.display()))?;
    Ok(folder)
}

pub(super) fn run(values: &Values) -> Outcome {
    if values.switch("list") {
        return print(&listing());
    }
    let mut options = options(values)?;
    let out = values.path("out").unwrap_or_else(|| ".".into());
    std::fs::create_dir_all(&out).with_context(|| format!("--out: cannot make {}", out.display()))?;
    options.authority = authority(values, &out)?;
    let subject = subject(values, &out, options.authority.as_deref())?;
    block_on(async {
        let report = run_suite(&subject, &options, &mut progress).await;
        let report = report.map_err(|error| match error {
            RunError::Nothing { .. } => Failure::Usage(error.to_string()),
            error => error.into(),
        })?;
        write(&out, &report)?;
        print(&report.text())?;
        match report.verdict {
            Verdict::Certified => Ok(()),
            Verdict::Failed => Err(Failure::Said(1)),
            Verdict::Incomplete => Err(Failure::Said(INCOMPLETE)),
        }
    })
}

fn write(out: &Path, report: &Report) -> Outcome {
    let json = report.json()?;
    for (name, text) in [("report.json", json), ("junit.xml", report.junit()), ("summary.txt", report.text())]
    {
        let path = out.join(name);
        std::fs::write(&path, text).with_context(|| format!("--out: cannot write {}", path.display()))?;
    }
    Ok(())
}

/// One line on standard error for each step.
fn progress(event: &Event<'_>) {
    let line = match event {
        Event::Lane { lane, addr, behaviours } => {
            let place = if addr.is_empty() { String::new() } else { format!(" at {addr}") };
            format!("{lane:?} lane{place}: {behaviours} behaviours")
        }
        Event::Begun(_) => return,
        Event::Found(finding) => {
            let word = match finding.outcome {
                Found::Passed => "ok",
                Found::Failed(_) if finding.series == Series::Ours => "note",
                Found::Failed(_) => "FAILED",
                Found::Skipped(_) => "skipped",
                Found::NotApplicable(_) => "absent",
            };
            format!("  {word:8} {:<8} {:6.2} s  {}", finding.id, finding.seconds, finding.clause)
        }
    };
    super::say(&line);
}

fn listing() -> String {
    let mut text = String::new();
    for behaviour in behaviours() {
        let profiles: Vec<_> = behaviour.profiles.iter().map(|p| p.name()).collect();
        text += &format!("{:<32} {:<12} {}\n", behaviour.id, profiles.join(","), behaviour.clause);
    }
    text
}
