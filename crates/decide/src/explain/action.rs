//! One action: what decided on it, and the runners-up.

use bigfleet_engine::{Action, ActionExplanation, ActionKind, Alternative, Victim, Why};
use bigfleet_types::{ClusterId, NeedKey, UnixNanos};

use super::page::{Page, ago, cost, penalty, points};

/// Tells of an action in a few lines. `for_other`: the Need that it serves is not told anyway.
pub(super) fn tell(
    page: &mut Page,
    action: &Action,
    explained: &ActionExplanation,
    now: UnixNanos,
    is_deferred: bool,
    for_other: bool,
) {
    let (kind, machine, price) = (action.kind, &action.machine, cost(explained.cost));
    match &explained.why {
        Why::Acquired { next } => {
            page.line(2, format_args!("{kind} {machine} at {price}"));
            page.line(3, format_args!("else {}", or_nothing(next.iter().map(alternative))));
        }
        Why::Preempted { victim, next } => {
            let from = owner(victim.cluster.as_ref());
            let by = action
                .need_key
                .as_ref()
                .filter(|_| for_other)
                .map(|key| format!(", for {}", name(key)))
                .unwrap_or_default();
            let grace = action.grace.as_secs();
            page.line(
                2,
                format_args!("{kind} {machine}{from}, {}{by}, {price}, {grace} s to drain", standing(victim)),
            );
            let next = next
                .iter()
                .map(|next| format!("{}{}, {}", next.machine, owner(next.cluster.as_ref()), standing(next)));
            page.line(3, format_args!("else {}", or_nothing(next)));
        }
        Why::Excess { reclamation, since } => {
            let waiting = ago(now, *since);
            let held = if is_deferred { "; held back by the reclaim cap" } else { "" };
            page.line(2, format_args!("{kind} {machine}: no Need claims it, for {waiting} now{held}"));
            let value = penalty(*reclamation);
            page.line(3, format_args!("the dearest go first: {price}, then the least valuable: {value}"));
        }
        Why::HoldOver { since, hold } => {
            let (idle, hold) = (ago(now, *since), hold.as_secs());
            page.line(2, format_args!("{kind} {machine}: idle for {idle}, held for {hold} s, {price}"));
        }
    }
}

fn or_nothing(next: impl Iterator<Item = String>) -> String {
    let next: Vec<String> = next.collect();
    if next.is_empty() { "nothing".to_owned() } else { next.join("; ") }
}

fn alternative(next: &Alternative) -> String {
    let verb = match next.kind {
        ActionKind::Bootstrap => "bootstrap",
        _ => "provision",
    };
    format!("{verb} {} at {}", next.machine, cost(next.cost))
}

fn owner(cluster: Option<&ClusterId>) -> String {
    cluster.map(|cluster| format!(" of {cluster}")).unwrap_or_default()
}

fn standing(victim: &Victim) -> String {
    let claim = match &victim.claimed_by {
        Some(key) => format!("claimed by {}", name(key)),
        None if victim.excess => "excess".to_owned(),
        None => "unclaimed".to_owned(),
    };
    format!("priority {}, {claim}, score {}", victim.priority, points(victim.score))
}

/// `web/86bb71f0...`, with its group if it has one.
pub(super) fn name(key: &NeedKey) -> String {
    let group = key.group.as_str();
    let group = if group.is_empty() { String::new() } else { format!(" group {group:?}") };
    format!("{}/{}{group}", key.cluster, key.fingerprint)
}
