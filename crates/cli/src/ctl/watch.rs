//! `bigfleet ctl watch`: one summary line a look when something changed, and a line for each change.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::{Context, fleet};
use crate::command::{Outcome, print};

/// What one look saw.
#[derive(Serialize, PartialEq, Clone, Default)]
struct Look {
    machines: BTreeMap<String, usize>,
    dollars_per_hour: f64,
    needs: usize,
    unmet: usize,
    #[serde(skip)]
    states: BTreeMap<String, String>,
    #[serde(skip)]
    whys: BTreeMap<String, String>,
    changes: Vec<String>,
}

pub(super) async fn run(context: &Context, interval: Duration, count: Option<u64>) -> Outcome {
    let mut last = None;
    let mut left = count;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        let mut look = look(context).await?;
        if let Some(last) = &last {
            look.changes = changes(last, &look);
        }
        if last.is_none() || !look.changes.is_empty() {
            print(&if context.json { format!("{}\n", serde_json::to_string(&look)?) } else { text(&look) })?;
        }
        last = Some(look);
        if let Some(left) = &mut left {
            *left -= 1;
            if *left == 0 {
                return Ok(());
            }
        }
    }
}

async fn look(context: &Context) -> anyhow::Result<Look> {
    let (needs, machines) = futures::try_join!(
        fleet::needs(&context.shard, "", context.timeout),
        fleet::machines(&context.provider, context.timeout)
    )?;
    let place = |m: &bigfleet_proto::v1alpha1::Machine| match m.cluster.as_str() {
        "" => fleet::state(m),
        cluster => format!("{} in {cluster}", fleet::state(m)),
    };
    let key = |view: &bigfleet_proto::v1alpha1::NeedView| {
        let group = view.need.as_ref().map(|need| need.group.as_str()).unwrap_or_default();
        format!("{} {} {group}", view.cluster_id, view.profile_fingerprint).trim_end().to_owned()
    };
    let why = |view: &bigfleet_proto::v1alpha1::NeedView| match (view.satisfied, fleet::explain(view)) {
        (true, why) if why.is_empty() => "satisfied".to_owned(),
        (true, why) => format!("satisfied, but {why}"),
        (false, why) => format!("unmet: {why}"),
    };
    Ok(Look {
        machines: fleet::by_state(&machines),
        dollars_per_hour: fleet::dollars_per_hour(&machines),
        needs: needs.views.len(),
        unmet: needs.views.iter().filter(|view| !view.satisfied).count(),
        states: machines.iter().map(|machine| (machine.id.clone(), place(machine))).collect(),
        whys: needs.views.iter().map(|view| (key(view), why(view))).collect(),
        changes: Vec::new(),
    })
}

/// One line for each thing that differs, machines first.
fn changes(before: &Look, after: &Look) -> Vec<String> {
    let of = |what: &str, before: &BTreeMap<String, String>, after: &BTreeMap<String, String>| {
        let mut keys: Vec<_> = before.keys().chain(after.keys()).collect();
        keys.sort();
        keys.dedup();
        let differs = keys.into_iter().filter(|key| before.get(*key) != after.get(*key));
        let name = |side: Option<&String>| side.map_or("gone".to_owned(), Clone::clone);
        differs
            .map(|key| match before.get(key) {
                None => format!("{what} {key}: {}", name(after.get(key))),
                Some(old) => format!("{what} {key}: {old} -> {}", name(after.get(key))),
            })
            .collect::<Vec<_>>()
    };
    let mut lines = of("machine", &before.states, &after.states);
    lines.extend(of("need", &before.whys, &after.whys));
    lines
}

fn text(look: &Look) -> String {
    let machines: Vec<_> = look.machines.iter().map(|(state, n)| format!("{n} {state}")).collect();
    let summary = format!(
        "machines: {}; needs: {} ({} unmet); ${:.2} an hour\n",
        machines.join(", "),
        look.needs,
        look.unmet,
        look.dollars_per_hour
    );
    look.changes.iter().map(|change| format!("  {change}\n")).collect::<String>() + &summary
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_what_came_what_went_and_what_moved() {
        let states = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(id, state)| ((*id).to_owned(), (*state).to_owned())).collect()
        };
        let before = Look { states: states(&[("a", "Idle"), ("b", "Idle")]), ..Look::default() };
        let after = Look { states: states(&[("a", "Idle"), ("c", "Creating")]), ..Look::default() };
        assert_eq!(changes(&before, &after), ["machine b: Idle -> gone", "machine c: Creating"]);
        assert!(changes(&after, &after).is_empty());
    }
}
