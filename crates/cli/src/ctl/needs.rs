//! `bigfleet ctl needs`.

use serde::Serialize;

use super::table::{or_dash, render};
use super::{Context, fleet};
use crate::command::{Outcome, print};

const HEADERS: [&str; 10] =
    ["CLUSTER", "NEED", "GROUP", "PRIORITY", "STATUS", "CLAIMED", "COMING", "MISSING", "AGE", "WHY"];

/// One Need for a machine to read.
#[derive(Serialize)]
struct Row<'a> {
    cluster: &'a str,
    fingerprint: &'a str,
    group: String,
    priority: i32,
    requirements: String,
    satisfied: bool,
    claimed: i32,
    bootstraps: i32,
    provisions: i32,
    residual: std::collections::BTreeMap<String, String>,
    age_cycles_unmet: i32,
    unmet_reason: &'static str,
    note: &'a str,
    explanation: String,
}

pub(super) async fn run(context: &Context, cluster: String, unmet: bool) -> Outcome {
    let needs = fleet::needs(&context.shard, &cluster, context.timeout).await?;
    if needs.header.cycle == 0 {
        tracing::info!("the shard has not computed anything yet");
    }
    let views = needs.views.iter().filter(|view| !(unmet && view.satisfied));
    if context.json {
        let rows: Vec<_> = views.map(row).collect();
        return print(&format!("{}\n", serde_json::to_string_pretty(&rows)?));
    }
    if needs.header.cycle == 0 {
        return print("the shard has not computed anything yet\n");
    }
    let rows = views.map(|view| {
        let row = row(view);
        [
            row.cluster.to_owned(),
            row.fingerprint.chars().take(8).collect(),
            or_dash(&row.group),
            row.priority.to_string(),
            status(view).to_owned(),
            row.claimed.to_string(),
            (row.bootstraps + row.provisions).to_string(),
            or_dash(&fleet::vector(&row.residual)),
            row.age_cycles_unmet.to_string(),
            or_dash(&row.explanation),
        ]
    });
    print(&render(context.headers.then_some(HEADERS), rows))
}

fn status(view: &bigfleet_proto::v1alpha1::NeedView) -> &'static str {
    match (view.satisfied, view.note.is_empty()) {
        (true, true) => "satisfied",
        (true, false) => "waiting",
        (false, _) => "unmet",
    }
}

fn row(view: &bigfleet_proto::v1alpha1::NeedView) -> Row<'_> {
    Row {
        cluster: &view.cluster_id,
        fingerprint: &view.profile_fingerprint,
        group: view.need.as_ref().map(|need| need.group.clone()).unwrap_or_default(),
        priority: view.need.as_ref().map_or(0, |need| need.priority),
        requirements: fleet::requirements(view),
        satisfied: view.satisfied,
        claimed: view.claimed_machine_count,
        bootstraps: view.bootstrap_count,
        provisions: view.provision_count,
        residual: view.residual_deficit.clone().map(|r| r.resources).unwrap_or_default(),
        age_cycles_unmet: view.age_cycles_unmet,
        unmet_reason: view.unmet_reason().as_str_name(),
        note: &view.note,
        explanation: fleet::explain(view),
    }
}
