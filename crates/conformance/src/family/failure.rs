//! B701 to B708: a substrate that fails. The provider breaks on demand, by cluster id and by label.

use std::time::Duration;

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, broken, ensure, equal, ok, refused};
use crate::context::{Context, Kind, Token, metadata};
use crate::record;

/// The limit of transitions with which the provider of this lane is started.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Fault:
    "B701" [Fault] => failed_configure;
        "A Configure whose work fails ends in FAILED with last_error."
        "Turn every error of the back end into FAILED, with its text."
    "B702" [Fault] => failed_create;
        "A Create whose work fails ends in FAILED with last_error."
        "Turn every error of the back end into FAILED, with its text."
    "B703" [Fault] => timed_out;
        "A transition beyond its time limit ends in FAILED with last_error, and never goes back silently."
        "Give every transition a limit of its own and say in last_error that it passed."
    "B704" [Fault] => late_success_is_dropped;
        "A success that comes after the machine failed changes nothing."
        "When work ends, compare the machine's state and operation with those it began with; drop it if they moved on."
    "B705" [Fault] => failed_is_final;
        "A FAILED machine refuses every change, not with FAILED_PRECONDITION, and keeps last_error."
        "FAILED is no state from which any call starts; a person repairs, the shard takes another machine."
    "B706" [Fault] => failed_drain;
        "A Drain with grace 0 whose work fails ends in IDLE, or in FAILED with last_error; it does not get stuck."
        "Turn the back end's error into FAILED; never go back to CONFIGURED."
    "B707" [Fault] => failed_is_readable;
        "A FAILED machine is still answered by Get and List, with the same last_error each time."
        "Keep failed machines in the inventory."
    "B708" [Fault] => configured_means_ready;
        "CONFIGURED is said only once the node is Ready; if that never comes, the machine is FAILED in time."
        "Hold CONFIGURING until the node is seen Ready, within the limit of the Configure."
];

fn limit(c: &Context) -> Duration {
    TIMEOUT + c.settings.settle
}

async fn fail(c: &Context, cluster: &str) -> Check<(String, String)> {
    let id = c.idle().await?;
    ok(&format!("Configure for {cluster}"), c.configure(&id, cluster, &metadata()).await)?;
    let failed = c.reach_within(&id, S::Failed, limit(c)).await?;
    ensure(!failed.last_error.is_empty(), || "FAILED without last_error".to_owned())?;
    Ok((id, failed.last_error))
}

async fn failed_configure(c: &Context) -> Check {
    let (id, _) = fail(c, "fault-error").await?;
    c.stays(&id, S::Failed).await
}

async fn failed_create(c: &Context) -> Check {
    let id = c.doomed().await?;
    ok("Create", c.create(&id).await)?;
    let failed = c.reach_within(&id, S::Failed, limit(c)).await?;
    ensure(!failed.last_error.is_empty(), || "FAILED without last_error".to_owned())?;
    c.stays(&id, S::Failed).await
}

async fn timed_out(c: &Context) -> Check {
    let (id, error) = fail(c, "fault-timeout").await?;
    let says = ["time", "deadline"].iter().any(|word| error.to_lowercase().contains(word));
    ensure(says, || format!("last_error does not say that a time limit passed: {error:?}"))?;
    c.stays(&id, S::Failed).await
}

async fn late_success_is_dropped(c: &Context) -> Check {
    let (id, error) = fail(c, "fault-slow-ok").await?;
    // The work reports success about a second after the limit.
    let must = "stay FAILED though its work succeeded late";
    c.watch(&id, TIMEOUT, |m| m.state() == S::Failed, must).await?;
    equal("last_error afterwards", &c.machine(&id).await?.last_error, &error)
}

async fn failed_is_final(c: &Context) -> Check {
    let (id, error) = fail(c, "fault-error").await?;
    for kind in Kind::ALL {
        refused(&format!("{kind:?} of a FAILED machine"), &c.act(kind, &id, &Token::default()).await)?;
    }
    let m = c.machine(&id).await?;
    ensure(m.state() == S::Failed, || format!("it left FAILED: {}", record::machine(&m)))?;
    equal("last_error afterwards", &m.last_error, &error)
}

async fn failed_drain(c: &Context) -> Check {
    let id = c.configured("fault-drain-error").await?;
    ok("Drain", c.drain(&id, 0).await)?;
    let m = c.settled(&id).await?;
    match m.state() {
        S::Idle => Ok(()),
        S::Failed => ensure(!m.last_error.is_empty(), || "FAILED without last_error".to_owned()),
        _ => broken(format!("the Drain ended elsewhere: {}", record::machine(&m))),
    }
}

async fn failed_is_readable(c: &Context) -> Check {
    let (id, error) = fail(c, "fault-error").await?;
    for _ in 0..3 {
        let m = c.machine(&id).await?;
        ensure(m.state() == S::Failed, || format!("Get shows {}", record::machine(&m)))?;
        equal("last_error on Get", &m.last_error, &error)?;
    }
    let listed = c.listed(&[S::Failed]).await?;
    let found = listed.into_iter().find(|m| m.id == id).map(|m| m.last_error);
    equal("last_error on List of FAILED machines", &found, &Some(error))
}

async fn configured_means_ready(c: &Context) -> Check {
    let id = c.idle().await?;
    ok("Configure", c.configure(&id, "fault-readiness-block", &metadata()).await)?;
    let trace = c.trace(&id, S::Failed).await?;
    if let Some(m) = trace.iter().find(|m| m.state() == S::Configured) {
        return broken(format!("CONFIGURED though the node never became Ready: {}", record::machine(m)));
    }
    let error = trace.last().map(|m| m.last_error.clone()).unwrap_or_default();
    ensure(!error.is_empty(), || "FAILED without last_error".to_owned())
}
