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
    assert_eq!(rest.machines.len(), 2, "the unsent one and the changed one");
    assert_eq!(rest.machines[1].id, moved);
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
