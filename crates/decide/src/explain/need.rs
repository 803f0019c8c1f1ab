//! One Need: what it wants, what it got, and what became of every class of machines from where it stands.

use bigfleet_engine::{
    ClassExplanation, Decisions, Fate, NeedExplanation, Rule, SameVerdict, Shape, UnmetReason, Verdict,
};
use bigfleet_types::{Operator, Profile, Requirement, StampedPenalty, WhenUnsatisfiable};

use super::action::name;
use super::page::{Page, cost, decimal, machines, penalty, price};
use crate::print::unmet_reason;

/// Tells of a Need. `fleet`: how many machines there are.
pub(super) fn tell(page: &mut Page, explained: &NeedExplanation, decisions: &Decisions, fleet: usize) {
    let verdict = &decisions.verdicts[explained.verdict];
    let need = &verdict.need;
    let (place, needs) = (explained.verdict + 1, decisions.verdicts.len());
    let priority = need.profile.priority();
    page.line(0, format_args!("{}", name(&verdict.key)));
    page.line(1, format_args!("precedence  {place} of {needs}, priority {priority}"));
    let floor = if need.min_unit.is_empty() {
        String::new()
    } else {
        format!(", new machines of at least {}", need.min_unit)
    };
    page.line(1, format_args!("wants       {}{floor}", need.aggregate));
    constraints(page, &need.profile);
    outcome(page, verdict);
    if let Some(shortfall) = decisions.shortfalls.iter().find(|shortfall| shortfall.key == verdict.key) {
        page.line(1, format_args!("shortfall   {} that no phase could meet", shortfall.deficit));
    }
    if let Some(same) = &verdict.same {
        domain(page, same);
    }
    for gang in verdict.gangs.iter() {
        let state = if gang.satisfied { "satisfied" } else { "unsatisfied" };
        page.line(1, format_args!("folds       {}, {state}", name(&gang.key)));
    }
    for rival in &explained.rivals {
        let (who, priority, held) = (name(&rival.key), rival.priority, machines(rival.machines));
        page.line(1, format_args!("rival       {who}, priority {priority}, holds {held} that it could use"));
    }
    classes(page, &explained.classes, fleet);
}

fn constraints(page: &mut Page, profile: &Profile) {
    for requirement in profile.requirements() {
        page.line(1, format_args!("requires    {}", condition(requirement)));
    }
    for term in profile.spread() {
        let (key, skew) = (&term.topology_key, term.max_skew.max(1));
        let wish = match term.when_unsatisfiable {
            WhenUnsatisfiable::DoNotSchedule => "",
            _ => ", not enforced",
        };
        page.line(1, format_args!("spread      over {key}, at most {skew} apart{wish}"));
    }
    let [interruption, reclamation] =
        [profile.interruption(), profile.reclamation()].map(|bucket| penalty(StampedPenalty::from(bucket)));
    page.line(1, format_args!("penalties   interruption {interruption}, reclamation {reclamation}"));
}

fn condition(requirement: &Requirement) -> String {
    let key = &requirement.key;
    let values = requirement.values.join(", ");
    match requirement.operator {
        Operator::In => format!("{key} in [{values}]"),
        Operator::NotIn => format!("{key} not in [{values}]"),
        Operator::Exists => format!("{key} present"),
        Operator::DoesNotExist => format!("{key} absent"),
        Operator::Same if requirement.values.is_empty() => format!("one {key} for all"),
        Operator::Same => format!("one {key} for all, in [{values}]"),
    }
}

fn outcome(page: &mut Page, verdict: &Verdict) {
    let acquired = verdict.bootstraps + verdict.provisions;
    let kept = verdict.claimed.saturating_sub(acquired);
    let claims = machines(verdict.claimed);
    let (bootstraps, provisions) = (verdict.bootstraps, verdict.provisions);
    page.line(
        1,
        format_args!(
            "has         {claims}: {kept} kept, {bootstraps} bootstrapped, {provisions} provisioned"
        ),
    );
    if let Some(preemption) = &verdict.preemption {
        let (victims, freed) = (machines(preemption.victims), &preemption.freed);
        page.line(1, format_args!("preempts    {victims}, which frees {freed}"));
    }
    if verdict.satisfied {
        return page.line(1, format_args!("verdict     satisfied"));
    }
    let (reason, words) = (unmet_reason(verdict.reason), reason(verdict.reason));
    page.line(1, format_args!("verdict     lacks {}: {reason}, {words}", verdict.residual));
    if let Some(supply) = verdict.supply {
        let (idle, configured, speculative) = (supply.idle, supply.configured, supply.speculative);
        let capped = if supply.capped { "; no more than 256 are counted" } else { "" };
        page.line(
            1,
            format_args!(
                "supply      {idle} Idle, {configured} Configured, {speculative} Speculative fit, whoever holds them{capped}"
            ),
        );
    }
}

fn reason(reason: UnmetReason) -> &'static str {
    match reason {
        UnmetReason::Unspecified => "nothing is missing",
        UnmetReason::PriorityStarved => "others go first, or what it preempts is not here yet",
        UnmetReason::NoMatchingSupply => "no machine of the fleet fits",
        UnmetReason::TopologyUnsatisfiable => "no one domain can hold it",
        UnmetReason::PreemptionExhausted => "all that it may preempt is not enough",
    }
}

fn domain(page: &mut Page, same: &SameVerdict) {
    let chosen = match (&same.domain, same.satisfiable) {
        (Some(domain), true) => format!("{domain}, which can hold it"),
        (Some(domain), false) => format!("{domain}, which cannot hold all of it"),
        (None, true) => "none, as nothing is wanted".to_owned(),
        (None, false) => "none offers anything".to_owned(),
    };
    let considered = same.candidates.iter().map(|candidate| {
        let share = decimal(u128::from(candidate.per_mille), 10);
        format!("{} {share} %", candidate.domain)
    });
    let considered: Vec<String> = considered.collect();
    let considered = if considered.is_empty() {
        String::new()
    } else {
        format!("; considered: {}", considered.join(", "))
    };
    page.line(1, format_args!("domain      {chosen}{considered}"));
}

fn classes(page: &mut Page, classes: &[ClassExplanation], fleet: usize) {
    page.gap();
    let kinds = match classes.len() {
        1 => "1 class".to_owned(),
        number => format!("{number} classes"),
    };
    let all = machines(u64::try_from(fleet).unwrap_or(u64::MAX));
    page.line(1, format_args!("the fleet as it sees it, best first: {all} in {kinds}"));
    let fates = || classes.iter().flat_map(|class| &class.fates);
    let digits = fates().map(|fate| fate.machines.to_string().len()).max().unwrap_or(1);
    let states = fates().map(|fate| fate.state.name().len()).max().unwrap_or(1);
    for class in classes {
        page.line(2, format_args!("{}", heading(class)));
        for fate in &class.fates {
            let (number, state) = (fate.machines, fate.state.name());
            page.line(3, format_args!("{number:>digits$} {state:<states$}  {}", sentence(fate)));
        }
    }
}

/// `a3-highgpu-8g, zone z1, bare-metal, nvidia.com/gpu 8: $0/h`.
fn heading(class: &ClassExplanation) -> String {
    let Shape { instance_type, zone, capacity_type, capacity, .. } = &class.shape;
    let mut parts: Vec<String> = Vec::new();
    parts.extend((!instance_type.is_empty()).then(|| instance_type.to_string()));
    parts.extend((!zone.is_empty()).then(|| format!("zone {zone}")));
    parts.extend(capacity_type.label().map(str::to_owned));
    for (key, value) in &class.shape.labels {
        parts.extend(value.as_ref().map(|value| format!("{key}={value}")));
    }
    parts.push(capacity.to_string());
    let chance = class.shape.interruption_probability;
    let mut costs = cost(class.cost);
    if chance.nano() > 0 {
        let (price, chance) = (price(class.shape.price), decimal(u128::from(chance.nano()), 1_000_000_000));
        costs = format!("{costs} ({price}, interrupted with probability {chance})");
    }
    if class.unrequested > 0 {
        costs = format!("{costs}, {} kinds of devices not asked for", class.unrequested);
    }
    format!("{}: {costs}", parts.join(", "))
}

/// What became of machines, in words, and the first of them.
fn sentence(fate: &Fate) -> String {
    let words = match &fate.rule {
        Rule::Credited => "kept: counts for it",
        Rule::Bootstrapped => "bootstrapped for it",
        Rule::Provisioned => "provisioned for it",
        Rule::Preempted => "preempted for it",
        Rule::DrainCounted => "draining, and expected by it",
        Rule::ReservedForMove => "reserved for it in the domain that it moves to",
        Rule::Withdrawn => "given up again: the gang moves to another domain",
        Rule::NotUsable => "no use to anybody in this state",
        Rule::Withheld => "held back by the shard",
        Rule::Requirement(key) => {
            return with_first(fate, &format!("does not meet its requirement on {key}"));
        }
        Rule::BelowMinUnit => "smaller than its largest pod",
        Rule::ForAnotherNeed => "on its way to another Need",
        Rule::BoundElsewhere => "bound to another cluster, and not preempted",
        Rule::PriorityNotLower => "bound to another cluster, where it matters as much or more",
        Rule::ClusterSilent => "without stamps, in a cluster that has not reported",
        Rule::TakenInPhase2 => "preempted or reserved for a Need that goes first",
        Rule::Claimed => "claimed by a Need that goes first, or by an equal that has it already",
        Rule::NoProgress => "offers nothing that is still missing",
        Rule::OtherDomain => "outside its domain",
        Rule::Skew => "would break its spread",
        Rule::GangIncomplete => "not taken: the gang could not be completed",
        Rule::NotNeeded => "not needed",
    };
    with_first(fate, words)
}

fn with_first(fate: &Fate, words: &str) -> String {
    let dots = if fate.machines > 1 { ", ..." } else { "" };
    format!("{words} ({}{dots})", fate.first)
}
