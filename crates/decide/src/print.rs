//! The bytes of `bigfleet.decision/v1`. The structs say which members there are and in which order; `serde_json` writes
//! two spaces an indentation and escapes nothing but quotes, backslashes and control characters.

use std::collections::BTreeMap;

use bigfleet_engine::{MatchingSupply, SameVerdict, Shortfall, UnmetReason, Verdict};
use bigfleet_types::NeedKey;
use serde::Serialize;

use crate::report::{Action, Report};

impl Report {
    /// The file that says it all, with a newline at its end.
    ///
    /// # Errors
    /// None in practice: there is nothing in a report that JSON could not say.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        let file = File {
            format: "bigfleet.decision/v1",
            actions: self.actions.iter().map(action).collect(),
            deferred: self.deferred.iter().map(action).collect(),
            needs: self.needs.iter().map(|verdict| need(verdict)).collect(),
            shortfalls: self.shortfalls.iter().map(shortfall).collect(),
            claimed_machine_ids: self.claimed_machine_ids.iter().map(|id| id.as_str()).collect(),
        };
        let mut text = serde_json::to_string_pretty(&file)?;
        text.push('\n');
        Ok(text)
    }
}

/// Names and canonical quantities.
type Amounts = BTreeMap<String, String>;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct File<'a> {
    format: &'static str,
    actions: Vec<ActionView<'a>>,
    deferred: Vec<ActionView<'a>>,
    needs: Vec<NeedView<'a>>,
    shortfalls: Vec<ShortfallView<'a>>,
    claimed_machine_ids: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ActionView<'a> {
    seq: u64,
    kind: &'static str,
    machine_id: &'a str,
    cluster: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    need: Option<KeyView<'a>>,
    grace_seconds: u64,
    preemptor_priority: i32,
    reason: &'static str,
}

#[derive(Serialize)]
struct KeyView<'a> {
    cluster: &'a str,
    fingerprint: String,
    group: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NeedView<'a> {
    #[serde(flatten)]
    key: KeyView<'a>,
    priority: i32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<MemberView>,
    satisfied: bool,
    residual: Amounts,
    claimed: u32,
    bootstraps: u32,
    provisions: u32,
    #[serde(flatten)]
    same: Option<SameView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unmet_reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    matching_supply: Option<SupplyView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preemption: Option<PreemptionView>,
}

#[derive(Serialize)]
struct MemberView {
    fingerprint: String,
    group: String,
    satisfied: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SameView<'a> {
    same_domain: &'a str,
    same_satisfiable: bool,
    same_candidates: Vec<CandidateView<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct CandidateView<'a> {
    domain: &'a str,
    coverage_per_mille: u16,
    satisfiable: bool,
}

#[derive(Serialize)]
struct SupplyView {
    idle: u16,
    configured: u16,
    speculative: u16,
    capped: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PreemptionView {
    victims_found: u32,
    capacity_freed: Amounts,
}

#[derive(Serialize)]
struct ShortfallView<'a> {
    #[serde(flatten)]
    key: KeyView<'a>,
    priority: i32,
    deficit: Amounts,
    preempted: bool,
}

fn action(action: &Action) -> ActionView<'_> {
    ActionView {
        seq: action.seq,
        kind: action.kind.name(),
        machine_id: action.machine.as_str(),
        cluster: action.cluster.as_ref().map_or("", |cluster| cluster.as_str()),
        need: action.need_key.as_ref().map(key),
        grace_seconds: action.grace.as_secs(),
        preemptor_priority: action.preemptor_priority,
        reason: action.kind.reason(),
    }
}

fn key(key: &NeedKey) -> KeyView<'_> {
    KeyView {
        cluster: key.cluster.as_str(),
        fingerprint: key.fingerprint.to_string(),
        group: key.group.as_str(),
    }
}

fn need(verdict: &Verdict) -> NeedView<'_> {
    let members = verdict.gangs.iter().map(|member| MemberView {
        fingerprint: member.key.fingerprint.to_string(),
        group: member.key.group.as_str().to_owned(),
        satisfied: member.satisfied,
    });
    NeedView {
        key: key(&verdict.key),
        priority: verdict.need.profile.priority(),
        members: members.collect(),
        satisfied: verdict.satisfied,
        residual: verdict.residual.to_strings(),
        claimed: verdict.claimed,
        bootstraps: verdict.bootstraps,
        provisions: verdict.provisions,
        same: verdict.same.as_ref().map(same),
        unmet_reason: (!verdict.satisfied).then(|| unmet_reason(verdict.reason)),
        matching_supply: verdict.supply.filter(|_| !verdict.satisfied).map(supply),
        preemption: verdict.preemption.as_ref().map(|preemption| PreemptionView {
            victims_found: preemption.victims,
            capacity_freed: preemption.freed.to_strings(),
        }),
    }
}

fn same(same: &SameVerdict) -> SameView<'_> {
    let candidates = same.candidates.iter().map(|candidate| CandidateView {
        domain: &candidate.domain,
        coverage_per_mille: candidate.per_mille,
        satisfiable: candidate.satisfiable,
    });
    SameView {
        same_domain: same.domain.as_deref().unwrap_or_default(),
        same_satisfiable: same.satisfiable,
        same_candidates: candidates.collect(),
    }
}

fn supply(supply: MatchingSupply) -> SupplyView {
    SupplyView {
        idle: supply.idle,
        configured: supply.configured,
        speculative: supply.speculative,
        capped: supply.capped,
    }
}

fn shortfall(shortfall: &Shortfall) -> ShortfallView<'_> {
    ShortfallView {
        key: key(&shortfall.key),
        priority: shortfall.need.profile.priority(),
        deficit: shortfall.deficit.to_strings(),
        preempted: shortfall.preempted,
    }
}

/// The name on the wire without its prefix.
pub(crate) fn unmet_reason(reason: UnmetReason) -> &'static str {
    match reason {
        UnmetReason::Unspecified => "UNSPECIFIED",
        UnmetReason::PriorityStarved => "PRIORITY_STARVED",
        UnmetReason::NoMatchingSupply => "NO_MATCHING_SUPPLY",
        UnmetReason::TopologyUnsatisfiable => "TOPOLOGY_UNSATISFIABLE",
        UnmetReason::PreemptionExhausted => "PREEMPTION_EXHAUSTED",
    }
}
