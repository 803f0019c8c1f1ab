//! Running the suite: a process for each lane, a probe of the optional features, one behaviour after the other.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;
use tonic::Code;

use crate::authority::Authority;
use crate::behaviour::{Behaviour, Feature, Lane, Only, Profile};
use crate::check::{Check, Stop, code, ok};
use crate::context::{Context, Features, Programs, Run, Settings, transitional};
use crate::family;
use crate::launch::{Launch, LaunchError, Running, Spec};
use crate::report::{Finding, Outcome, Probes, Report};

/// Speculative slots that a plain provider is started with.
const CORE_SEED: u32 = 256;
/// Those of a provider that breaks on demand.
const FAULT_SEED: u32 = 64;
/// The limit of its transitions.
const FAULT_TIMEOUT: Duration = Duration::from_secs(2);

/// What is run against.
#[derive(Clone)]
pub enum Subject {
    /// A provider that runs already: `host:port`. It is started and killed by nobody, so that behaviours which need
    /// that are skipped.
    Address(String),
    /// A provider that the suite starts, once for each lane.
    Program {
        /// The provider under test.
        program: Arc<dyn Launch>,
        /// The one that breaks on demand; often the same.
        fault: Arc<dyn Launch>,
        /// How it is called in reports.
        name: String,
    },
}

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The claims. `cloud`, `spot` and `bare-metal` bring `core` with them.
    pub profiles: BTreeSet<Profile>,
    /// A part of the suite; all that the profiles require when `None`.
    pub only: Option<Only>,
    /// Patience and sizes.
    pub settings: Settings,
    /// Mints a certificate for each shard id, and so runs everything under TLS; plaintext when `None`.
    pub authority: Option<Arc<Authority>>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The target is no address.
    #[error("{0}; nothing was tested")]
    Address(String),
    /// The provider was not started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// Nothing answers there.
    #[error("the provider at {addr} does not answer a List: {status}; nothing was tested")]
    Silent {
        /// The address.
        addr: String,
        /// What came back.
        status: String,
    },
    /// `only` chose nothing.
    #[error("--only {only} chooses no behaviour of the profiles {profiles}; `--list` prints them")]
    Nothing {
        /// Its words.
        only: String,
        /// The claims.
        profiles: String,
    },
}

/// What happens meanwhile.
#[derive(Debug)]
pub enum Event<'a> {
    /// A lane begins, against this address, with so many behaviours.
    Lane {
        /// The lane.
        lane: Lane,
        /// The address; empty when the lane's behaviours start providers themselves.
        addr: &'a str,
        /// Its behaviours.
        behaviours: usize,
    },
    /// A behaviour begins.
    Begun(&'a Behaviour),
    /// A behaviour came out.
    Found(&'a Finding),
}

/// Runs what `options` ask for against `subject`, telling `progress` as it goes. Must run on a tokio runtime.
///
/// # Errors
/// When nothing could be tested at all. A provider that breaks clauses is a report, not an error.
pub async fn run(
    subject: &Subject,
    options: &Options,
    progress: &mut (dyn FnMut(&Event<'_>) + Send),
) -> Result<Report, Error> {
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let profiles = with_core(&options.profiles);
    let chosen: Vec<_> = family::all()
        .filter(|behaviour| behaviour.profiles.iter().any(|profile| profiles.contains(profile)))
        .filter(|behaviour| options.only.as_ref().is_none_or(|only| only.takes(behaviour.id)))
        .collect();
    if let Some(only) = options.only.as_ref().filter(|_| chosen.is_empty()) {
        let names: Vec<_> = profiles.iter().map(|p| p.name()).collect();
        return Err(Error::Nothing { only: only.to_string(), profiles: names.join(",") });
    }
    let (programs, name) = match subject {
        Subject::Address(addr) => (Programs::default(), addr.clone()),
        Subject::Program { program, fault, name } => {
            (Programs { subject: Some(Arc::clone(program)), fault: Some(Arc::clone(fault)) }, name.clone())
        }
    };
    let mut suite = Suite {
        subject,
        options,
        programs,
        run: Arc::new(Run::new(began.as_millis())),
        probes: Probes::default(),
        findings: Vec::new(),
        left_behind: Vec::new(),
    };
    for lane in [Lane::Core, Lane::Fault, Lane::Durable, Lane::Scale] {
        let behaviours: Vec<_> = chosen.iter().copied().filter(|b| b.lane == lane).collect();
        if !behaviours.is_empty() {
            suite.lane(lane, &behaviours, progress).await?;
        }
    }
    let profiles: Vec<_> = profiles.into_iter().collect();
    let only = options.only.as_ref().map(ToString::to_string);
    let (verdict, mut reasons) = Report::judge(&suite.findings, &profiles, only.as_deref());
    if profiles.contains(&Profile::Spot) && suite.probes.spot == Some(false) {
        reasons.push("no machine is SPOT, so the claim spot rests on nothing".to_owned());
    }
    Ok(Report {
        verdict,
        reasons,
        subject: name,
        profiles,
        only,
        unix_seconds: began.as_secs(),
        tls: options.authority.is_some(),
        random_seed: options.settings.random_seed,
        probes: suite.probes,
        findings: suite.findings,
        left_behind: suite.left_behind,
    })
}

fn with_core(claimed: &BTreeSet<Profile>) -> BTreeSet<Profile> {
    let mut profiles = claimed.clone();
    if claimed.iter().any(|p| matches!(p, Profile::Cloud | Profile::Spot | Profile::BareMetal)) {
        profiles.insert(Profile::Core);
    }
    profiles
}

struct Suite<'a> {
    subject: &'a Subject,
    options: &'a Options,
    programs: Programs,
    run: Arc<Run>,
    probes: Probes,
    findings: Vec<Finding>,
    left_behind: Vec<String>,
}

impl Suite<'_> {
    async fn lane(
        &mut self,
        lane: Lane,
        behaviours: &[&'static Behaviour],
        progress: &mut (dyn FnMut(&Event<'_>) + Send),
    ) -> Result<(), Error> {
        let mut running = self.start(lane).await?;
        // The durable lane's behaviours start providers of their own.
        let addr = match (&running, self.subject) {
            (Some(running), _) => running.addr().to_owned(),
            (None, Subject::Address(addr)) => addr.clone(),
            (None, Subject::Program { .. }) => String::new(),
        };
        progress(&Event::Lane { lane, addr: &addr, behaviours: behaviours.len() });
        let dialled = if addr.is_empty() { "127.0.0.1:1" } else { &addr };
        let mut features = Features::default();
        if lane != Lane::Durable {
            let mut probe = self.context(dialled, features)?;
            if let Err(status) =
                probe.list(pb::ListFilter { max_results: 1, ..pb::ListFilter::default() }).await
            {
                return Err(Error::Silent { addr, status: crate::check::shown(&status) });
            }
            // What cannot be probed is taken to be there: its behaviours then say what is wrong.
            features = Features { delete: true, revision: true };
            let probed = self.probe(&probe).await;
            features.delete = probed.delete.unwrap_or(true);
            features.revision = probed.since_revision.unwrap_or(true);
            self.note(probed);
            probe.features = features;
            self.left_behind.extend(probe.tidy().await);
        }
        for behaviour in behaviours {
            progress(&Event::Begun(behaviour));
            let finding = self.behaviour(behaviour, dialled, features).await?;
            progress(&Event::Found(&finding));
            self.findings.push(finding);
        }
        if let Some(running) = &mut running {
            running.kill().await?;
        }
        Ok(())
    }

    async fn start(&self, lane: Lane) -> Result<Option<Box<dyn Running>>, LaunchError> {
        let Subject::Program { program, fault, .. } = self.subject else { return Ok(None) };
        let spec = |seed, transition_timeout| Spec { lane, seed, state: None, transition_timeout };
        match lane {
            Lane::Core => program.start(&spec(CORE_SEED, None)).await.map(Some),
            Lane::Fault => fault.start(&spec(FAULT_SEED, Some(FAULT_TIMEOUT))).await.map(Some),
            Lane::Scale => program.start(&spec(self.options.settings.scale_seed, None)).await.map(Some),
            Lane::Durable => Ok(None),
        }
    }

    fn context(&self, addr: &str, features: Features) -> Result<Context, Error> {
        Context::new(addr, &self.run, &self.programs, self.options, features).map_err(|stop| match stop {
            Stop::Broken(why) | Stop::Unseen(why) | Stop::NotApplicable(why) => Error::Address(why),
        })
    }

    /// What the first lane found stands; later lanes may run other programs.
    fn note(&mut self, probed: Probes) {
        if self.probes == Probes::default() {
            self.probes = probed;
        }
    }

    /// Looks for optional features with one machine. What the look could not decide stays `None`.
    async fn probe(&self, c: &Context) -> Probes {
        let mut probes = Probes::default();
        if let Err(stop) = look(c, &mut probes).await {
            tracing::warn!(?stop, "the probe of optional features ended early");
        }
        probes
    }

    async fn behaviour(
        &mut self,
        behaviour: &'static Behaviour,
        addr: &str,
        features: Features,
    ) -> Result<Finding, Error> {
        let context = self.context(addr, features)?;
        let absent = behaviour.needs.filter(|feature| match feature {
            Feature::Delete => !features.delete,
            Feature::Revision => !features.revision,
        });
        let begun = Instant::now();
        let ended = match absent {
            Some(feature) => Err(Stop::NotApplicable(format!("the provider has no {}", feature.name()))),
            None => (behaviour.probe)(&context).await,
        };
        let seconds = begun.elapsed().as_secs_f64();
        let calls = context.calls();
        let outcome = match ended {
            Ok(()) => Outcome::Passed,
            Err(Stop::Broken(what)) => Outcome::Failed(what),
            Err(Stop::Unseen(why)) => Outcome::Skipped(why),
            Err(Stop::NotApplicable(why)) => Outcome::NotApplicable(why),
        };
        self.left_behind.extend(context.tidy().await);
        let calls = if matches!(outcome, Outcome::Failed(_)) { calls } else { Vec::new() };
        Ok(Finding {
            id: behaviour.id,
            series: behaviour.series,
            lane: behaviour.lane,
            clause: behaviour.clause,
            mend: behaviour.mend,
            outcome,
            seconds,
            calls,
        })
    }
}

async fn look(c: &Context, probes: &mut Probes) -> Check {
    let machines = c.listed(&[]).await?;
    probes.spot = Some(machines.iter().any(|m| m.capacity_type() == pb::CapacityType::Spot));
    let before = c.cursor().await?;
    let id = c.speculative().await?;
    let ack = ok("Create", c.create(&id).await)?;
    probes.asynchronous = Some(ack.machine.is_some_and(|m| transitional(m.state())));
    c.reach(&id, S::Idle).await?;
    let after = c.cursor().await?;
    probes.since_revision = Some(!before.is_empty() && before != after);
    let delete = c.delete(&id).await;
    probes.delete = Some(code(&delete) != Code::Unimplemented);
    if delete.is_ok() {
        c.reach(&id, S::Speculative).await?;
    }
    Ok(())
}
