//! B101 to B109: the states that a machine goes through, and what it carries in each.

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;

use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, broken, ensure, equal, ok};
use crate::context::{Context, map, metadata, transitional};
use crate::record;

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B101" [Core] => cycles_leave_nothing_behind;
        "Four rounds of Configure and Drain leave cluster, shard_metadata and last_error empty at each Idle."
        "Clear all three in the one place where a Drain completes, in the same record that says Idle."
    "B103" [Core] => configure_passes_configuring;
        "During a Configure no transitional state other than CONFIGURING is seen, and it ends in CONFIGURED."
        "Derive the transitional state from the kind of the call, not from what the substrate says meanwhile."
    "B104" [Core] => drain_passes_draining;
        "During a Drain no transitional state other than DRAINING is seen, and it ends in IDLE."
        "Derive the transitional state from the kind of the call, not from what the substrate says meanwhile."
    "B105" [Core] => traces_follow_edges;
        "The states seen over Create, Configure and Drain follow the legal edges; none is skipped backwards."
        "Let one transition function decide every change of state, and refuse all other edges there."
    "B106" [Core] => cluster_while_bound;
        "cluster is set in CONFIGURED and in every CONFIGURING that is seen, and is empty after a Drain."
        "Write the binding when the Configure is accepted, before the acknowledgement, not when it completes."
    "B107" [Core] => host_while_real;
        "A Speculative machine has no host; an Idle or Configured one has."
        "Set host when a Create completes and clear it when a Delete completes; nowhere else."
    "B108" [Core] => settled_stays;
        "A machine that has settled does not move again by itself."
        "Do not feed the substrate's status into the state of a machine that nobody asked to move."
    "B109" [Cloud] needs Delete => delete_passes_deleting;
        "During a Delete no transitional state other than DELETING is seen, and it ends in SPECULATIVE."
        "Derive the transitional state from the kind of the call, not from what the substrate says meanwhile."
];

async fn cycles_leave_nothing_behind(c: &Context) -> Check {
    let id = c.idle().await?;
    for round in 1..=4 {
        c.bind(&id, &format!("conformance-b101-{round}"), &metadata()).await?;
        let idle = c.free(&id).await?;
        let clean = idle.cluster.is_empty() && idle.shard_metadata.is_empty() && idle.last_error.is_empty();
        ensure(clean, || format!("round {round}: something is left at Idle: {}", record::machine(&idle)))?;
    }
    Ok(())
}

/// The only transitional state of a trace may be `only`.
fn passes(seen: &[pb::Machine], only: S) -> Check {
    match seen.iter().find(|m| transitional(m.state()) && m.state() != only) {
        Some(m) => broken(format!("seen on the way: {}", record::machine(m))),
        None => Ok(()),
    }
}

async fn configure_passes_configuring(c: &Context) -> Check {
    let id = c.idle().await?;
    ok("Configure", c.configure(&id, "conformance-b103", &metadata()).await)?;
    passes(&c.trace(&id, S::Configured).await?, S::Configuring)
}

async fn drain_passes_draining(c: &Context) -> Check {
    let id = c.configured("conformance-b104").await?;
    ok("Drain", c.drain(&id, 5).await)?;
    passes(&c.trace(&id, S::Idle).await?, S::Draining)
}

async fn delete_passes_deleting(c: &Context) -> Check {
    let id = c.idle().await?;
    ok("Delete", c.delete(&id).await)?;
    passes(&c.trace(&id, S::Speculative).await?, S::Deleting)
}

async fn traces_follow_edges(c: &Context) -> Check {
    let id = c.speculative().await?;
    let mut seen = vec![S::Speculative];
    let note = |seen: &mut Vec<S>, trace: Vec<pb::Machine>| {
        for state in trace.iter().map(pb::Machine::state) {
            if seen.last() != Some(&state) {
                seen.push(state);
            }
        }
    };
    ok("Create", c.create(&id).await)?;
    note(&mut seen, c.trace(&id, S::Idle).await?);
    ok("Configure", c.configure(&id, "conformance-b105", &metadata()).await)?;
    note(&mut seen, c.trace(&id, S::Configured).await?);
    ok("Drain", c.drain(&id, 5).await)?;
    note(&mut seen, c.trace(&id, S::Idle).await?);
    let legal = |from: S, to: S| {
        matches!(
            (from, to),
            (S::Speculative, S::Creating | S::Idle)
                | (S::Creating, S::Idle)
                | (S::Idle, S::Configuring | S::Configured)
                | (S::Configuring, S::Configured)
                | (S::Configured, S::Draining | S::Idle)
                | (S::Draining, S::Idle)
        )
    };
    for pair in seen.windows(2) {
        if let [from, to] = pair {
            ensure(legal(*from, *to), || {
                let names = [*from, *to].map(|s| record::state(s.into()));
                format!("{} came after {}, which no edge allows", names[1], names[0])
            })?;
        }
    }
    Ok(())
}

async fn cluster_while_bound(c: &Context) -> Check {
    let (id, cluster) = (c.idle().await?, "conformance-b106");
    ok("Configure", c.configure(&id, cluster, &map(&[("k", "v")])).await)?;
    for m in c.trace(&id, S::Configured).await? {
        if matches!(m.state(), S::Configuring | S::Configured) {
            equal(&format!("cluster in {}", record::state(m.state)), &m.cluster.as_str(), &cluster)?;
        }
    }
    equal("cluster after the Drain", &c.free(&id).await?.cluster.as_str(), &"")
}

async fn host_while_real(c: &Context) -> Check {
    let has =
        |m: &pb::Machine| m.host.as_ref().is_some_and(|h| !(h.provider.is_empty() && h.r#ref.is_empty()));
    let id = c.speculative().await?;
    let slot = c.machine(&id).await?;
    ensure(!has(&slot), || format!("a Speculative machine has a host: {}", record::machine(&slot)))?;
    ok("Create", c.create(&id).await)?;
    let idle = c.reach(&id, S::Idle).await?;
    ensure(has(&idle), || format!("an Idle machine has no host: {}", record::machine(&idle)))?;
    let bound = c.bind(&id, "conformance-b107", &metadata()).await?;
    ensure(has(&bound), || format!("a Configured machine has no host: {}", record::machine(&bound)))
}

async fn settled_stays(c: &Context) -> Check {
    let id = c.idle().await?;
    c.stays(&id, S::Idle).await?;
    c.bind(&id, "conformance-b108", &metadata()).await?;
    c.stays(&id, S::Configured).await
}
