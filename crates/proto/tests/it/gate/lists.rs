//! Lists read where they lie say what the generated decoder and the gate say record by record, whatever the bytes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bigfleet_proto::gate::Unreadable;
use bigfleet_proto::gate::machine::{Difference, Known, Listing, Record, Violation, record};
use bigfleet_proto::v1alpha1::{HostRef, Machine, MachineList, Resources};
use bigfleet_types::MachineId;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message as _;

use super::arbitrary::{damaged, machine, text};
use super::map;

/// What a List says, by the generated decoder and one record at a time.
fn slowly(bytes: &[u8]) -> Result<Listing, String> {
    let message = MachineList::decode(bytes).map_err(|error| error.to_string())?;
    let (mut last, mut violations) = (HashMap::new(), Vec::new());
    for (i, machine) in message.machines.iter().enumerate() {
        if last.insert(&machine.id, i).is_some() && !machine.id.is_empty() {
            violations.push(Violation::DuplicateId);
        }
    }
    let at = |(i, machine): (usize, &Machine)| {
        let mut passed = record(machine);
        if let Err(refused) = &mut passed.machine {
            refused.error.field = format!("machines[{i}].{}", refused.error.field);
        }
        passed
    };
    let is_last =
        |(i, machine): &(usize, &Machine)| machine.id.is_empty() || last.get(&machine.id) == Some(i);
    let changed = message.machines.iter().enumerate().filter(is_last).map(at).collect();
    let mut removed = Vec::new();
    for id in &message.removed_ids {
        match MachineId::parse(id) {
            Ok(id) => removed.push(id),
            Err(_) => violations.push(Violation::BadRemovedId),
        }
    }
    let revision = (!message.revision.is_empty()).then(|| message.revision.clone());
    let records = Difference { whole: true, changed, gone: Vec::new(), violations };
    Ok(Listing { records, revision, removed })
}

/// Where violations of the List itself come from does not matter.
fn sorted(listing: Result<Listing, Unreadable>) -> Result<Listing, String> {
    listing.map_err(|error| error.to_string()).map(|mut listing| {
        listing.records.violations.sort();
        listing
    })
}

/// Reads bytes as the first List.
fn first(bytes: &[u8]) -> Result<Listing, String> {
    sorted(Known::default().read(bytes))
}

/// What somebody knows who hears only of differences.
#[derive(Default)]
struct Told(BTreeMap<MachineId, Record>);

impl Told {
    fn hear(&mut self, difference: Difference<Record>) {
        if difference.whole {
            self.0.clear();
        }
        for id in difference.gone {
            assert!(self.0.remove(&id).is_some(), "{id} is gone, but never was there");
        }
        for record in difference.changed {
            if let Some(id) = record.id.clone() {
                self.0.insert(id, record);
            }
        }
    }
}

fn lists() -> impl Strategy<Value = MachineList> {
    (vec(machine(), 0..6), vec(text(), 0..3)).prop_map(|(machines, removed_ids)| MachineList {
        machines,
        removed_ids,
        revision: Bytes::from_static(b"r"),
    })
}

#[test]
fn a_record_that_comes_twice_and_says_the_same_stands_where_it_is_last() {
    let machine = |id: &str| Machine { id: id.to_owned(), ..Machine::default() };
    let list = MachineList { machines: ["a", "b", "a"].map(machine).into(), ..MachineList::default() };
    let bytes = list.encode_to_vec();
    let listing = first(&bytes).unwrap();
    let ids: Vec<_> =
        listing.records.changed.iter().map(|record| record.id.as_ref().unwrap().as_str()).collect();
    assert_eq!(ids, ["b", "a"]);
    assert!(listing.records.violations.contains(&Violation::DuplicateId));
    assert_eq!(Ok(listing), slowly(&bytes).and_then(|listing| sorted(Ok(listing))));
}

proptest! {
    #[test]
    fn lists_read_in_place_say_what_the_generated_decoder_says(
        list in lists(),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = list.encode_to_vec();
        let clean = sorted(Ok(slowly(&bytes).unwrap()));
        prop_assert_eq!(first(&bytes), clean);
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
            let slow = slowly(&bytes).and_then(|listing| sorted(Ok(listing)));
            prop_assert_eq!(first(&bytes), slow);
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        prop_assert_eq!(first(&bytes), slowly(&bytes).and_then(|listing| sorted(Ok(listing))));
    }

    #[test]
    fn damaged_real_lists(changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)) {
        for name in ["real_aws_List", "real_hetzner_List", "full_MachineList"] {
            let bytes = damaged(name, &changes);
            prop_assert_eq!(first(&bytes), slowly(&bytes).and_then(|listing| sorted(Ok(listing))));
        }
    }

    /// Records come, change, swap places, come twice and go: whoever hears only of differences knows what each List says.
    #[test]
    fn differences_add_up_to_lists(rounds in vec((vec((0..6usize, machine()), 0..6), any::<bool>()), 1..8)) {
        let (mut known, mut told) = (Known::default(), Told::default());
        let mut fleet: Vec<Machine> = Vec::new();
        for (edits, reversed) in rounds {
            for (at, machine) in edits {
                if at < fleet.len() {
                    if at % 2 == 0 { fleet[at] = machine } else { fleet.remove(at); }
                } else {
                    fleet.push(machine);
                }
            }
            if reversed {
                fleet.reverse();
            }
            let bytes = MachineList { machines: fleet.clone(), ..MachineList::default() }.encode_to_vec();
            let listing = known.read(&bytes).unwrap();
            let always = |record: &Record| record.machine.is_err() || !record.violations.is_empty();
            let mut whole = slowly(&bytes).unwrap().records.changed;
            let must_be_told = whole.iter().filter(|record| always(record)).count();
            prop_assert_eq!(listing.records.changed.iter().filter(|record| always(record)).count(), must_be_told);
            told.hear(listing.records);
            // A record that is as it was keeps the place at which it was refused.
            whole.retain(|record| record.id.is_some());
            let said: BTreeMap<_, _> =
                whole.into_iter().filter_map(|record| Some((record.id.clone()?, record))).collect();
            prop_assert_eq!(&told.0, &said);
            for (id, record) in &said {
                prop_assert!(known.contains(id));
                prop_assert_eq!(known.get(id), record.machine.as_ref().ok());
            }
            let again = known.read(&bytes).unwrap().records;
            // Of an id that comes twice, each record may differ from the other.
            let twice = |id: &MachineId| fleet.iter().filter(|machine| machine.id == id.as_str()).count() > 1;
            let told_again = |record: &Record| always(record) || record.id.as_ref().is_some_and(twice);
            prop_assert!(again.changed.iter().all(told_again) && again.gone.is_empty());
        }
    }
}

fn idle(id: &str) -> Machine {
    Machine {
        id: id.to_owned(),
        state: 3,
        host: Some(HostRef { provider: "p".to_owned(), r#ref: format!("i-{id}") }),
        instance_type: "m6i.large".to_owned(),
        resources: Some(Resources { resources: map(&[("cpu", "2"), ("memory", "8Gi")]) }),
        labels: map(&[("a", "1"), ("b", "2"), ("c", "3")]),
        ..Machine::default()
    }
}

fn list_of(records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        prost::encoding::encode_key(1, prost::encoding::WireType::LengthDelimited, &mut bytes);
        prost::encoding::encode_varint(record.len() as u64, &mut bytes);
        bytes.extend_from_slice(record);
    }
    bytes
}

/// Maps have no order on the wire, and some encoders shuffle them each time.
#[test]
fn shuffled_maps_are_no_news() {
    let entry = |key: &str, value: &str| {
        let one = Machine { labels: map(&[(key, value)]), ..Machine::default() };
        one.encode_to_vec()
    };
    let plain = Machine { labels: BTreeMap::new(), ..idle("m") }.encode_to_vec();
    let with = |order: [&str; 3]| -> Vec<u8> {
        let labels = order.iter().flat_map(|key| entry(key, if *key == "a" { "1" } else { "2" }));
        plain.iter().copied().chain(labels).collect()
    };
    let mut known = Known::default();
    assert_eq!(known.read(&list_of(&[&with(["a", "b", "c"])])).unwrap().records.changed.len(), 1);
    let before = Arc::clone(known.get(&MachineId::trusted("m")).unwrap());
    for order in [["c", "b", "a"], ["b", "a", "c"]] {
        let records = known.read(&list_of(&[&with(order)])).unwrap().records;
        assert_eq!((records.changed.len(), records.gone.len(), records.whole), (0, 0, false));
    }
    assert!(Arc::ptr_eq(&before, known.get(&MachineId::trusted("m")).unwrap()));
    // The same texts in other places are news.
    let swapped = Machine { labels: map(&[("a", "2"), ("b", "1"), ("c", "2")]), ..idle("m") };
    assert_eq!(known.read(&list_of(&[&swapped.encode_to_vec()])).unwrap().records.changed.len(), 1);
}

/// What no encoder of ours writes and every decoder must take: unknown fields, groups, messages in parts, keys twice.
#[test]
fn rare_encodings_mean_what_they_mean() {
    let plain = idle("m").encode_to_vec();
    let more = |tail: &[u8]| -> Vec<u8> { [&plain, tail].concat() };
    let group = [0xfb, 0x07, 0x08, 0x01, 0xfc, 0x07];
    let part = Machine {
        resources: Some(Resources { resources: map(&[("cpu", "4"), ("gpu", "1")]) }),
        labels: map(&[("a", "9")]),
        ..Machine::default()
    };
    for record in [
        more(&[0xf8, 0x07, 0x05]),
        more(&[0xfd, 0x07, 1, 2, 3, 4]),
        more(&[0xf9, 0x07, 1, 2, 3, 4, 5, 6, 7, 8]),
        more(&group),
        more(&part.encode_to_vec()),
        more(&[0x10, 0x05, 0x10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]),
    ] {
        let bytes = list_of(&[&record, &idle("n").encode_to_vec()]);
        let slow = slowly(&bytes).unwrap();
        let mut known = Known::default();
        assert_eq!(known.read(&bytes).unwrap(), slow);
        // And again: nothing is lost, and nothing that is wrong is taken for known.
        let mut told = Told::default();
        told.hear(slow.records.clone());
        told.hear(known.read(&bytes).unwrap().records);
        let said = slow.records.changed.into_iter().filter_map(|record| Some((record.id.clone()?, record)));
        assert_eq!(told.0, said.collect());
    }
}

/// A List that cannot be read makes the next one come whole: nobody was told what its first half said.
#[test]
fn after_an_unreadable_list_the_next_is_whole() {
    let mut known = Known::default();
    let good = MachineList { machines: vec![idle("a"), idle("b")], ..MachineList::default() }.encode_to_vec();
    assert_eq!(known.read(&good).unwrap().records.changed.len(), 2);
    let mut moved = idle("a");
    moved.zone = "z2".to_owned();
    let torn = list_of(&[&moved.encode_to_vec(), &[0x0a, 0x7f]]);
    let error = known.read(&torn).unwrap_err();
    assert_eq!(error.to_string(), MachineList::decode(torn.as_slice()).unwrap_err().to_string());
    let next = known.read(&good).unwrap().records;
    assert!(next.whole && next.changed.len() == 2 && next.gone.is_empty());
    assert!(!known.read(&good).unwrap().records.whole);
}
