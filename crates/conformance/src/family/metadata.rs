//! B501 to B505: the shard's notes, kept to the byte.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1 as pb;
use pb::MachineState as S;
use tonic::Code;

use super::errors::kept_or_refused;
use crate::behaviour::{Behaviour, behaviours};
use crate::check::{Check, ensure, equal, ok};
use crate::context::{Context, map};
use crate::record;

pub(super) const TABLE: &[Behaviour] = behaviours![Extension, Core:
    "B501" [Core] => hostile_map_comes_back;
        "55 keys with NUL, control characters, Unicode and empty values come back to the byte, on Get and List."
        "Keep the map as it came: no trimming, no lower case, no filter of keys or of empty values."
    "B502" [Core] => drained_is_cleared;
        "A Drain clears shard_metadata with the cluster; the next binding has no key of the one before."
        "Replace the map at Configure and clear it at the end of a Drain; never merge."
    "B503" [Core] => large_map_is_not_cut;
        "2 MiB of metadata are kept to the byte or refused with INVALID_ARGUMENT; never cut."
        "Check the size when the request comes; if the substrate's tags are too small, keep the map yourself."
    "B504" [Core] => visible_while_configuring;
        "Metadata are there already in a CONFIGURING that is seen, and in CONFIGURED."
        "Write the binding when the Configure is accepted, before the acknowledgement."
    "B505" [Core] => stored_copies_stand_alone;
        "What was stored with one machine is not altered by a later call, of this machine or another."
        "Copy the map out of the request; do not keep a reference to a shared or reused one."
];

/// 55 keys, each with something that a careless store alters.
pub(super) fn hostile() -> BTreeMap<String, String> {
    let mut map = map(&[
        ("bigfleet.lucy.sh/assigned-priority", "1000000"),
        ("nul\0in the key", "a key with a NUL"),
        ("nul", "before\0after"),
        ("only-nul", "\0"),
        ("control", "\u{1}\u{2}\u{1f}\u{7f}"),
        ("c1", "\u{85}\u{9f}"),
        ("empty", ""),
        ("spaces", "  around  "),
        ("lines", "one\r\ntwo\n"),
        ("unicode", "\u{3b1}\u{3b2} \u{4f60}\u{597d} \u{1f980}"),
        ("combining", "e\u{301} and \u{e9}"),
        ("Case", "Kept"),
    ]);
    for n in map.len()..55 {
        map.insert(format!("key-{n:02}-\u{3c0}"), format!("value {n}\0\u{1f680}"));
    }
    map
}

async fn hostile_map_comes_back(c: &Context) -> Check {
    let md = hostile();
    let id = c.configured_with("conformance-b501", &md).await?;
    for _ in 0..3 {
        equal("shard_metadata on Get", &c.machine(&id).await?.shard_metadata, &md)?;
    }
    let listed = c.listed(&[S::Configured]).await?;
    let found = listed.into_iter().find(|m| m.id == id).map(|m| m.shard_metadata);
    equal("shard_metadata on List", &found, &Some(md))
}

async fn drained_is_cleared(c: &Context) -> Check {
    let old = map(&[("old/a", "1"), ("old/b", "2")]);
    let id = c.configured_with("conformance-b502-old", &old).await?;
    let idle = c.free(&id).await?;
    ensure(idle.cluster.is_empty() && idle.shard_metadata.is_empty(), || {
        format!("the binding is left after the Drain: {}", record::machine(&idle))
    })?;
    let new = map(&[("new/x", "10")]);
    let bound = c.bind(&id, "conformance-b502-new", &new).await?;
    equal("shard_metadata of the next binding", &bound.shard_metadata, &new)?;
    equal("cluster of the next binding", &bound.cluster.as_str(), &"conformance-b502-new")
}

async fn large_map_is_not_cut(c: &Context) -> Check {
    let id = c.idle().await?;
    let large = (0..256).map(|n| (format!("conformance/large-{n:03}"), "x".repeat(8 * 1024))).collect();
    kept_or_refused(c, &id, &large, b"# small\n", &[Code::InvalidArgument]).await
}

async fn visible_while_configuring(c: &Context) -> Check {
    let md = map(&[("b504/early", "seen"), ("b504/other", "\u{4f60}")]);
    let id = c.idle().await?;
    ok("Configure", c.configure(&id, "conformance-b504", &md).await)?;
    for m in c.trace(&id, S::Configured).await? {
        if matches!(m.state(), S::Configuring | S::Configured) {
            equal(&format!("shard_metadata in {}", record::state(m.state)), &m.shard_metadata, &md)?;
        }
    }
    Ok(())
}

async fn stored_copies_stand_alone(c: &Context) -> Check {
    let mut md = map(&[("b505/keep", "as it was"), ("b505/alter", "before"), ("b505/drop", "there")]);
    let id = c.configured_with("conformance-b505", &md).await?;
    let stored = md.clone();
    md.insert("b505/alter".into(), "after".into());
    md.insert("b505/new".into(), "too".into());
    md.remove("b505/drop");
    c.configured_with("conformance-b505-other", &md).await?;
    equal(
        "shard_metadata after another machine's Configure",
        &c.machine(&id).await?.shard_metadata,
        &stored,
    )?;
    // A repeat with another map starts nothing, so it stores nothing.
    ok("the Configure again, with another map", c.configure(&id, "conformance-b505", &md).await)?;
    equal("shard_metadata after a repeat with another map", &c.machine(&id).await?.shard_metadata, &stored)
}
