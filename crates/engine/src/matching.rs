//! Which machines a profile accepts: the definition on one machine, and its memo per class.

use std::sync::Arc;

use bigfleet_types::{
    Fingerprint, Machine, Operator, PenaltyBucket, Profile, Requirement, WhenUnsatisfiable, keys,
};
use smallvec::SmallVec;

use crate::class::{ClassIx, Classes, Traits};
use crate::intern::{KeyIx, Map, Symbols, ValueIx, index};

index! {
    /// A profile of some live Need.
    ProfileIx;
}

/// Whether a machine meets every requirement of a profile. That the machines of a gang share one value is not the
/// matter of one machine.
///
/// This is the definition; [`crate::Engine`] keeps its results per class of machines.
#[must_use]
pub fn matches(profile: &Profile, machine: &Machine) -> bool {
    profile.requirements().iter().all(|requirement| meets(requirement, machine.attribute(&requirement.key)))
}

fn meets(requirement: &Requirement, value: Option<&str>) -> bool {
    let listed = value.is_some_and(|value| requirement.values.iter().any(|listed| **listed == *value));
    holds(requirement.operator, requirement.values.is_empty(), value.is_some(), value == Some(""), listed)
}

/// The truth table of a requirement.
fn holds(operator: Operator, no_values: bool, present: bool, empty: bool, listed: bool) -> bool {
    match operator {
        Operator::In => listed,
        Operator::NotIn => !listed,
        Operator::Exists => present,
        Operator::DoesNotExist => !present,
        Operator::Same => present && !empty && (no_values || listed),
    }
}

#[derive(Debug)]
struct Term {
    key: KeyIx,
    operator: Operator,
    values: SmallVec<[ValueIx; 4]>,
}

impl Term {
    fn compile(requirement: &Requirement, symbols: &mut Symbols) -> Self {
        let key = symbols.mention_key(&requirement.key);
        let is_host = &*requirement.key == keys::HOSTNAME;
        let values = requirement.values.iter();
        let values =
            values.map(|text| if is_host { symbols.mention_host(text) } else { symbols.value(text) });
        Self { key, operator: requirement.operator, values: values.collect() }
    }

    fn meets(&self, traits: &Traits) -> bool {
        let value = traits.attributes.get(self.key.at()).copied().unwrap_or(ValueIx::ABSENT);
        let listed = self.values.contains(&value);
        let (present, empty) = (value != ValueIx::ABSENT, value == ValueIx::EMPTY);
        holds(self.operator, self.values.is_empty(), present, empty, listed)
    }
}

/// A spread that is enforced.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpreadRule {
    pub(crate) key: KeyIx,
    /// How far a domain may be ahead of the emptiest; at least 1.
    pub(crate) skew: usize,
}

/// The spreads that a profile enforces. Those over hostnames always hold, as every machine is one of its own, and a
/// gang in one domain cannot be spread.
fn spread_rules(profile: &Profile, symbols: &mut Symbols) -> SpreadRules {
    let enforced = profile.spread().iter().filter(|term| {
        term.when_unsatisfiable == WhenUnsatisfiable::DoNotSchedule && &*term.topology_key != keys::HOSTNAME
    });
    // Even a gang's, as what it folds into is spread.
    let rules: SpreadRules = enforced
        .map(|term| SpreadRule {
            key: symbols.mention_key(&term.topology_key),
            skew: usize::try_from(term.max_skew.max(1)).unwrap_or(1),
        })
        .collect();
    if profile.same().is_some() { SpreadRules::new() } else { rules }
}

/// The enforced spreads of one profile.
pub(crate) type SpreadRules = SmallVec<[SpreadRule; 1]>;

/// Tells profiles apart even when one takes the place of another.
pub(crate) type Serial = u64;

/// A profile in numbers, with the classes that match it among those looked at so far.
#[derive(Debug)]
struct Entry {
    serial: Serial,
    fingerprint: Fingerprint,
    interruption: PenaltyBucket,
    terms: Vec<Term>,
    same: Option<KeyIx>,
    spread: SpreadRules,
    needs: usize,
    looked_at: usize,
    bits: Vec<u64>,
    matching: Vec<ClassIx>,
}

/// The match memo, profile by class.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    by_fingerprint: Map<Fingerprint, ProfileIx>,
    entries: Vec<Option<Entry>>,
    free: Vec<ProfileIx>,
    serials: Serial,
}

impl Matching {
    /// The entry of a profile, with one more Need that uses it.
    pub(crate) fn retain(&mut self, profile: &Arc<Profile>, symbols: &mut Symbols) -> ProfileIx {
        let fingerprint = profile.fingerprint();
        if let Some(ix) = self.by_fingerprint.get(&fingerprint) {
            if let Some(entry) = &mut self.entries[ix.at()] {
                entry.needs += 1;
            }
            return *ix;
        }
        self.serials += 1;
        let entry = Entry {
            serial: self.serials,
            fingerprint,
            interruption: profile.interruption(),
            terms: profile.requirements().iter().map(|r| Term::compile(r, symbols)).collect(),
            same: profile.same().map(|requirement| symbols.mention_key(&requirement.key)),
            spread: spread_rules(profile, symbols),
            needs: 1,
            looked_at: 0,
            bits: Vec::new(),
            matching: Vec::new(),
        };
        let ix = if let Some(ix) = self.free.pop() {
            self.entries[ix.at()] = Some(entry);
            ix
        } else {
            self.entries.push(Some(entry));
            ProfileIx::new(self.entries.len() - 1)
        };
        self.by_fingerprint.insert(fingerprint, ix);
        ix
    }

    /// The entry of a profile that some Need uses.
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<ProfileIx> {
        self.by_fingerprint.get(&fingerprint).copied()
    }

    /// The number that no other profile ever has.
    pub(crate) fn serial(&self, ix: ProfileIx) -> Serial {
        self.entries[ix.at()].as_ref().map_or(0, |entry| entry.serial)
    }

    /// One Need less uses the profile; the last one takes the entry with it.
    pub(crate) fn release(&mut self, ix: ProfileIx) {
        let Some(entry) = &mut self.entries[ix.at()] else { return };
        entry.needs -= 1;
        if entry.needs == 0 {
            self.by_fingerprint.remove(&entry.fingerprint);
            self.entries[ix.at()] = None;
            self.free.push(ix);
        }
    }

    /// Looks at the classes that are new since the last time. Answers below hold for these.
    pub(crate) fn look(&mut self, ix: ProfileIx, classes: &Classes) {
        let Some(entry) = &mut self.entries[ix.at()] else { return };
        if entry.looked_at == classes.len() {
            return;
        }
        entry.bits.resize(classes.len().div_ceil(64), 0);
        for position in entry.looked_at..classes.len() {
            let class = ClassIx::new(position);
            let traits = &classes.get(class).traits;
            if entry.terms.iter().all(|term| term.meets(traits)) {
                entry.bits[position / 64] |= 1 << (position % 64);
                entry.matching.push(class);
            }
        }
        entry.looked_at = classes.len();
    }

    /// [`Self::look`] for all profiles.
    pub(crate) fn look_for_all(&mut self, classes: &Classes) {
        (0..self.entries.len()).map(ProfileIx::new).for_each(|ix| self.look(ix, classes));
    }

    /// The first requirement, by its place in the profile, that a class does not meet.
    pub(crate) fn failing(&self, ix: ProfileIx, traits: &Traits) -> Option<usize> {
        self.entries[ix.at()].as_ref()?.terms.iter().position(|term| !term.meets(traits))
    }

    pub(crate) fn matches(&self, ix: ProfileIx, class: ClassIx) -> bool {
        let (word, bit) = (class.at() / 64, class.at() % 64);
        self.entries[ix.at()].as_ref().is_some_and(|e| e.bits.get(word).is_some_and(|w| w >> bit & 1 == 1))
    }

    /// Whether some class matches both profiles.
    pub(crate) fn overlap(&self, a: ProfileIx, b: ProfileIx) -> bool {
        self.bits(a).iter().zip(self.bits(b)).any(|(a, b)| a & b != 0)
    }

    /// By class, 64 in a word: whether it matches. Those beyond the end were not looked at.
    pub(crate) fn bits(&self, ix: ProfileIx) -> &[u64] {
        self.entries[ix.at()].as_ref().map_or(&[], |entry| &entry.bits)
    }

    /// The classes that match, in no order that may matter.
    pub(crate) fn classes(&self, ix: ProfileIx) -> &[ClassIx] {
        self.entries[ix.at()].as_ref().map_or(&[], |entry| &entry.matching)
    }

    /// The key that all machines of a gang agree on; `None` for a plain Need.
    pub(crate) fn same(&self, ix: ProfileIx) -> Option<KeyIx> {
        self.entries[ix.at()].as_ref()?.same
    }

    pub(crate) fn spread(&self, ix: ProfileIx) -> &[SpreadRule] {
        self.entries[ix.at()].as_ref().map_or(&[], |entry| &entry.spread)
    }

    pub(crate) fn interruption(&self, ix: ProfileIx) -> PenaltyBucket {
        self.entries[ix.at()].as_ref().map_or(PenaltyBucket::ZERO, |entry| entry.interruption)
    }
}

#[cfg(test)]
mod tests {
    use bigfleet_types::{MachineId, MachineState};

    use super::*;

    /// Example 11, on the definition and on the memo.
    #[test]
    fn ex11_matching_table() {
        let mut machine = Machine::new(MachineId::trusted("m"), MachineState::Idle);
        machine.instance_type = "m5".into();
        machine.zone = "z1".into();
        machine.labels.insert("team".into(), "".into());
        machine.labels.insert(keys::ZONE.into(), "z9".into());
        let table: &[(&str, Operator, &[&str], bool)] = &[
            (keys::INSTANCE_TYPE, Operator::In, &["m5"], true),
            (keys::INSTANCE_TYPE_BETA, Operator::In, &["m5"], true),
            (keys::INSTANCE_TYPE, Operator::In, &["M5"], false),
            ("rack", Operator::NotIn, &["r1"], true),
            ("rack", Operator::NotIn, &[], true),
            ("team", Operator::Exists, &[], true),
            ("team", Operator::Same, &[], false),
            ("team", Operator::In, &[""], true),
            ("rack", Operator::Exists, &[], false),
            ("rack", Operator::DoesNotExist, &[], true),
            ("rack", Operator::Same, &[], false),
            (keys::ZONE, Operator::Same, &[], true),
            (keys::ZONE, Operator::Same, &["z1"], true),
            (keys::ZONE, Operator::Same, &["z2"], false),
            (keys::ZONE, Operator::In, &[], false),
            (keys::ZONE, Operator::In, &["z9"], false),
            (keys::ZONE, Operator::NotIn, &["z9"], true),
            (keys::HOSTNAME, Operator::In, &["m"], true),
            (keys::HOSTNAME, Operator::NotIn, &["other"], true),
            (keys::HOSTNAME, Operator::Exists, &[], true),
            (keys::HOSTNAME, Operator::In, &["other"], false),
            (keys::CAPACITY_TYPE, Operator::Exists, &[], false),
        ];
        for (key, operator, values, expected) in table {
            let values = values.iter().map(|v| (*v).into()).collect();
            let requirement = Requirement { key: (*key).into(), operator: *operator, values };
            let zero = PenaltyBucket::ZERO;
            let profile = Arc::new(Profile::new(vec![requirement], vec![], 0, zero, zero));
            assert_eq!(matches(&profile, &machine), *expected, "{profile:?}");
            let (mut symbols, mut matching, mut classes) =
                (Symbols::default(), Matching::default(), Classes::default());
            let ix = matching.retain(&profile, &mut symbols);
            let class = crate::class::class_of(&machine, &mut classes, &mut symbols);
            matching.look(ix, &classes);
            assert_eq!(matching.matches(ix, class), *expected, "memo of {profile:?}");
        }
    }
}
