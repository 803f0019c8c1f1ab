//! Lists: filters, caps, cursors, removals.

use std::collections::BTreeSet;

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_provider_kit::Kind;
use bigfleet_types::MachineState;

use crate::fixture::{ids, number, options, start};

#[tokio::test]
async fn filters_and_caps_hold() {
    let cloud = start(options()).await;
    let only = |states: &[MachineState]| pb::ListFilter {
        states: states.iter().map(|s| number(*s)).collect(),
        ..pb::ListFilter::default()
    };
    let list = cloud.client.list(only(&[MachineState::Idle])).await;
    assert_eq!(list.machines.len(), 4);
    assert!(list.machines.iter().all(|m| m.state == number(MachineState::Idle)));
    assert_eq!(
        cloud.client.list(only(&[MachineState::Idle, MachineState::Speculative])).await.machines.len(),
        10
    );
    assert_eq!(cloud.client.list(only(&[MachineState::Failed])).await.machines.len(), 0);
    for (cap, len) in [(0, 10), (1, 1), (2, 2), (3, 3), (100, 10)] {
        assert_eq!(cloud.client.list_since(b"", cap).await.machines.len(), len);
    }
    cloud.stop().await;
}

#[tokio::test]
async fn a_walk_in_pages_meets_every_machine_once() {
    let cloud = start(options()).await;
    for cap in [1, 3, 4] {
        let (mut cursor, mut seen) = (Vec::new(), Vec::new());
        loop {
            let page = cloud.client.list_since(&cursor, cap).await;
            if page.machines.is_empty() {
                break;
            }
            seen.extend(page.machines.into_iter().map(|m| m.id));
            cursor = page.revision.to_vec();
        }
        assert_eq!(seen.len(), 10, "cap {cap}");
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 10, "cap {cap}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn a_machine_that_changes_during_a_walk_is_met_again() {
    let cloud = start(options()).await;
    let first = cloud.client.list_since(b"", 9).await;
    let moved = first.machines[0].id.clone();
    cloud.control().fail_machine(&moved, "broke").await.unwrap();
    let rest = cloud.client.list_since(&first.revision, 0).await;
    assert_eq!(rest.machines.len(), 1, "the one that was not sent yet");
    assert_eq!(
        ids(&cloud.client.list_since(&rest.revision, 0).await),
        [moved],
        "and then what changed meanwhile"
    );
    cloud.stop().await;
}

#[tokio::test]
async fn deltas_hold_what_changed_and_what_is_gone() {
    let cloud = start(options()).await;
    let (client, control) = (&cloud.client, cloud.control());
    let start = client.list_since(b"", 0).await.revision;
    let idle = client.list_since(&start, 0).await;
    assert_eq!((idle.machines.len(), &idle.revision), (0, &start), "nothing happened, nothing moves");

    control.stage(Kind::Create, true);
    client.create("spec-1").await.unwrap();
    let delta = client.list_since(&start, 0).await;
    assert_eq!(ids(&delta), ["spec-1"]);
    let order = |bytes: &[u8]| std::str::from_utf8(bytes).unwrap().parse::<u64>().unwrap();
    assert!(order(&delta.revision) > order(&start));

    control.remove_machine("idle-3").await.unwrap();
    let delta = client.list_since(&start, 0).await;
    assert_eq!((ids(&delta), delta.removed_ids.as_slice()), (vec!["spec-1"], &["idle-3".to_owned()][..]));
    let whole = client.list_since(b"", 0).await;
    assert_eq!((whole.machines.len(), whole.removed_ids.len()), (9, 0));

    // A cursor that is none of ours means everything.
    let mut ahead = (order(&whole.revision) + 1).to_string().into_bytes();
    for garbage in
        [b"xyz".to_vec(), b"-1".to_vec(), b"007".to_vec(), b"+3".to_vec(), vec![0xff], ahead.clone()]
    {
        assert_eq!(client.list_since(&garbage, 0).await.machines.len(), 9, "{garbage:?}");
    }
    ahead.push(b'0');
    assert_eq!(client.list_since(&ahead, 0).await.machines.len(), 9);
    // So does one of ours with any byte changed.
    for at in 0..start.len() {
        let mut changed = start.to_vec();
        changed[at] ^= 1;
        assert_eq!(client.list_since(&changed, 0).await.machines.len(), 9, "byte {at}");
    }
    cloud.stop().await;
}

#[tokio::test]
async fn a_list_beyond_four_mebibytes_arrives() {
    let mut options = options();
    options.seeds.speculative = 60_000;
    let cloud = start(options).await;
    let list = cloud.client.list_since(b"", 0).await;
    assert_eq!(list.machines.len(), 60_006);
    assert!(prost::Message::encoded_len(&list) > 4 << 20);
    cloud.stop().await;
}

/// A runner that takes the first machine of three capped lists must get three machines.
#[tokio::test]
async fn b302_a_capped_list_begins_elsewhere_each_time() {
    let cloud = start(options()).await;
    let slots = pb::ListFilter {
        states: vec![number(MachineState::Speculative)],
        max_results: 1,
        ..pb::ListFilter::default()
    };
    let mut firsts = BTreeSet::new();
    for _ in 0..6 {
        firsts.insert(ids(&cloud.client.list(slots.clone()).await)[0].to_owned());
        // Lists of other states do not disturb the turn.
        cloud.client.list_since(b"", 3).await;
    }
    assert_eq!(firsts.len(), 6, "six slots, each once");
    // From wherever a walk begins, it meets everything once, and its end is the present.
    for _ in 0..4 {
        let (mut cursor, mut seen) = (Vec::new(), Vec::new());
        loop {
            let page = cloud.client.list_since(&cursor, 4).await;
            let last = page.machines.len() < 4;
            seen.extend(page.machines.into_iter().map(|m| m.id));
            cursor = page.revision.to_vec();
            if last {
                break;
            }
        }
        assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (10, 10));
        assert_eq!(cursor, cloud.client.list_since(b"", 0).await.revision);
        assert_eq!(cloud.client.list_since(&cursor, 0).await.machines.len(), 0);
    }
    cloud.stop().await;
}

/// What a provider without a durable store said in its last life means nothing in this one.
#[tokio::test]
async fn a_cursor_of_another_life_brings_a_whole_list() {
    let first = start(options()).await;
    let cursor = first.client.list_since(b"", 0).await.revision;
    first.stop().await;
    let second = start(options()).await;
    assert_eq!(second.client.list_since(&cursor, 0).await.machines.len(), 10);
    second.stop().await;
}

#[tokio::test]
async fn large_blobs_and_metadata_are_taken() {
    let cloud = start(options()).await;
    let metadata = (0..16)
        .map(|n| (format!("key-{n}"), "v".repeat(128 << 10)))
        .collect::<std::collections::BTreeMap<_, _>>();
    cloud.client.configure_with("idle-0", "a", &vec![7; 3 << 20], metadata.clone()).await.unwrap();
    let machine = cloud.settled("idle-0", MachineState::Configured).await;
    assert!(machine.shard_metadata == metadata, "2 MiB come back byte for byte");
    cloud.stop().await;
}
