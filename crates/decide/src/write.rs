//! The bytes of `bigfleet.decide/v1`, and beside it what that format cannot say.
//!
//! One machine or cluster a line, so that a large file can be searched. What a state cannot have is left out: it means
//! nothing.

use std::collections::BTreeMap;
use std::io::{self, Write};

use bigfleet_engine::{Eligibility, Facts, Policy, Purpose};
use bigfleet_proto::gate::metadata;
use bigfleet_proto::v1alpha1 as wire;
use bigfleet_types::{
    ClusterId, Machine, MachineState, NanoDollars, Need, NeedKey, PenaltyBucket, UnixNanos,
};
use serde::Serialize;

mod views;

use views::{DemandView, EntryView, HoldsView, PolicyView, WeightsView};

use crate::input::Input;

/// What a file does not say of the input that it was written from. With nothing in it, the file says all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Beside {
    format: &'static str,
    /// Of machines.
    pub machines: Vec<MachineBeside>,
    /// Of rows and of the policy, as sentences.
    pub other: Vec<String>,
}

/// What a file does not say of one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MachineBeside {
    /// Its id.
    pub id: String,
    /// What may be done with it, where that is neither everything nor nothing. The file says everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub eligibility: Option<EligibilityBeside>,
    /// What else is missing or not exact, as sentences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// [`Eligibility`], as it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[allow(clippy::struct_excessive_bools, reason = "as many as the engine tells apart")]
pub struct EligibilityBeside {
    /// May be bootstrapped or provisioned.
    pub acquirable: bool,
    /// Counts as supply of its cluster.
    pub creditable: bool,
    /// May be preempted.
    pub preemptible: bool,
    /// May be reclaimed or deleted.
    pub releasable: bool,
}

impl Beside {
    /// Whether the file says all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.machines.is_empty() && self.other.is_empty()
    }

    /// The file `bigfleet.decide-beside/v1`, with a newline at its end.
    ///
    /// # Errors
    /// None in practice: there is nothing in it that JSON could not say.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        Ok(text)
    }
}

impl Input {
    /// Writes the file that [`crate::read`] reads as this input, and gives what it cannot say.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write(&self, to: &mut impl Write) -> io::Result<Beside> {
        let mut beside = Beside { format: "bigfleet.decide-beside/v1", ..Beside::default() };
        writeln!(to, "{{\n\"format\": \"bigfleet.decide/v1\",\n\"nowUnixNanos\": {},", self.now.0)?;
        write!(to, "\"policy\": ")?;
        serde_json::to_writer(&mut *to, &self.policy_view(&mut beside))?;
        write!(to, ",\n\"readyClusters\": ")?;
        let ready: Vec<&str> = self.ready.iter().map(ClusterId::as_str).collect();
        serde_json::to_writer(&mut *to, &ready)?;
        write!(to, ",\n\"demand\": [")?;
        let demand =
            self.demand.iter().map(|(cluster, rows)| self.demand_view(cluster, rows, &mut beside.other));
        lines(to, demand)?;
        write!(to, "],\n\"fleet\": [")?;
        let machines = &mut beside.machines;
        lines(to, self.fleet.iter().filter_map(|(machine, facts)| entry(machine, facts, machines)))?;
        writeln!(to, "]\n}}")?;
        Ok(beside)
    }

    fn policy_view(&self, beside: &mut Beside) -> PolicyView {
        let Policy { on_demand_idle_hold, spot_idle_hold, reclaim_after, reclaim_grace, victims } =
            &self.policy;
        let mut seconds = |name: &str, duration: std::time::Duration| {
            let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
            if std::time::Duration::from_secs(seconds.unsigned_abs()) != duration {
                beside.other.push(format!(
                    "policy.{name} is {duration:?}, which is not a number of seconds that fits"
                ));
            }
            seconds
        };
        let mut view = PolicyView {
            idle_hold_seconds: HoldsView {
                on_demand: seconds("idleHoldSeconds.onDemand", *on_demand_idle_hold),
                spot: seconds("idleHoldSeconds.spot", *spot_idle_hold),
            },
            reclaim_cap_fraction: self.reclaim_cap.map_or(0.0, |cap| cap.fraction()),
            reclaim_grace_seconds: seconds("reclaimGraceSeconds", *reclaim_grace),
            reclaim_after_seconds: seconds("reclaimAfterSeconds", *reclaim_after),
            drain_estimate_seconds: seconds("drainEstimateSeconds", victims.drain_estimate),
            victim_weights: WeightsView::default(),
        };
        let mut weight = |name: &str, nano: u64| {
            let weight = NanoDollars::from_nano(i64::try_from(nano).unwrap_or(i64::MAX)).dollars();
            let read = NanoDollars::from_dollars(weight).map(|read| read.nano().unsigned_abs());
            if read != Some(nano) {
                beside
                    .other
                    .push(format!("policy.victimWeights.{name} is {nano} billionths, too many to be exact"));
            }
            weight
        };
        view.victim_weights = WeightsView {
            priority: weight("priority", victims.priority_weight),
            drain: weight("drain", victims.drain_weight),
            interruption: weight("interruption", victims.interruption_weight),
            reclamation: weight("reclamation", victims.reclamation_weight),
        };
        view
    }

    fn demand_view<'a>(
        &self,
        cluster: &'a ClusterId,
        rows: &'a [Need],
        beside: &mut Vec<String>,
    ) -> DemandView<'a> {
        let arrivals = rows.iter().map(|need| {
            // Whoever decides fills in the time of the decision.
            let arrival = need.arrival.unwrap_or(self.now);
            if arrival.0 < 0 {
                let key = need.key(cluster);
                let UnixNanos(arrival) = arrival;
                beside.push(format!(
                    "the row {} {:?} of {cluster} arrived at {arrival}, before 1970",
                    key.fingerprint,
                    key.group.as_str()
                ));
            }
            arrival.0.max(0)
        });
        DemandView {
            arrival_unix_nanos: arrivals.collect(),
            rollup: views::RollupView {
                cluster_id: cluster.as_str(),
                needs: rows.iter().map(views::need).collect(),
            },
        }
    }
}

fn lines<T: Serialize>(to: &mut impl Write, entries: impl Iterator<Item = T>) -> io::Result<()> {
    let mut separator = "\n";
    for entry in entries {
        to.write_all(separator.as_bytes())?;
        serde_json::to_writer(&mut *to, &entry)?;
        separator = ",\n";
    }
    to.write_all(b"\n")
}

/// The entry of a machine, if it can have one; `beside` learns what the entry does not say.
fn entry<'a>(
    machine: &'a Machine,
    facts: &'a Facts,
    beside: &mut Vec<MachineBeside>,
) -> Option<EntryView<'a>> {
    let state = machine.state;
    let mut notes = Vec::new();
    if state.is_bound() && machine.cluster.is_none() {
        notes.push(format!("left out: it is {state}, and its cluster is not known"));
    }
    if NanoDollars::from_dollars(machine.price.dollars()) != Some(machine.price) {
        notes.push(format!(
            "its price is {} billionths of a dollar, too many to be exact",
            machine.price.nano()
        ));
    }
    let stamps = if state.is_bound() { metadata::encode(&machine.attribution) } else { BTreeMap::new() };
    if state.is_bound() && metadata::decode(&stamps).0 != machine.attribution {
        notes.push(format!("its stamps are {:?}", machine.attribution));
    }
    let withheld = facts.eligibility == Eligibility::WITHHELD && state != MachineState::Configured;
    let Eligibility { acquirable, creditable, preemptible, releasable } = facts.eligibility;
    let eligibility = (!withheld && facts.eligibility != Eligibility::ALL).then_some(EligibilityBeside {
        acquirable,
        creditable,
        preemptible,
        releasable,
    });
    if eligibility.is_some() || !notes.is_empty() {
        beside.push(MachineBeside { id: machine.id.to_string(), eligibility, notes });
    }
    if state.is_bound() && machine.cluster.is_none() {
        return None;
    }
    let only =
        |allowed: MachineState, nanos: Option<UnixNanos>| nanos.filter(|_| state == allowed).map(|at| at.0);
    let purpose = Some(&facts.preempted_for).filter(|_| state == MachineState::Draining);
    Some(EntryView {
        machine: views::machine(machine, stamps),
        idle_since_unix_nanos: only(MachineState::Idle, facts.idle_since),
        created_for: facts.created_for.as_ref().filter(|_| state == MachineState::Creating).map(views::key),
        excess_since_unix_nanos: only(MachineState::Configured, facts.excess_since),
        preempted_for: match purpose {
            Some(Purpose::Preemption(by)) => {
                Some(views::PreemptedForView { key: views::key(&by.need), priority: by.priority })
            }
            _ => None,
        },
        preempted_for_unknown: purpose == Some(&Purpose::Unknown),
        withheld,
    })
}
