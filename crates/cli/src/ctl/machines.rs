//! `bigfleet ctl machines`.

use std::collections::BTreeMap;

use bigfleet_proto::v1alpha1::{CapacityType, Machine};
use serde::Serialize;

use super::table::{or_dash, render};
use super::{Context, fleet};
use crate::command::{Outcome, print};

const HEADERS: [&str; 8] = ["MACHINE", "STATE", "CLUSTER", "TYPE", "ZONE", "CAPACITY", "$/H", "ERROR"];

/// One machine for a machine to read.
#[derive(Serialize)]
struct Row {
    id: String,
    state: String,
    cluster: String,
    instance_type: String,
    zone: String,
    capacity_type: &'static str,
    price_per_hour: f64,
    interruption_probability: f64,
    host: String,
    resources: BTreeMap<String, String>,
    allocatable: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    last_error: String,
}

pub(super) async fn run(context: &Context, cluster: Option<String>, state: Option<String>) -> Outcome {
    let machines = fleet::machines(&context.provider, context.timeout).await?;
    let wanted = |row: &Row| {
        cluster.as_ref().is_none_or(|cluster| row.cluster == *cluster)
            && state.as_ref().is_none_or(|state| row.state.eq_ignore_ascii_case(state))
    };
    let rows = machines.into_iter().map(row).filter(wanted);
    if context.json {
        return print(&format!("{}\n", serde_json::to_string_pretty(&rows.collect::<Vec<_>>())?));
    }
    let cells = rows.map(|row| {
        [
            row.id,
            row.state,
            or_dash(&row.cluster),
            or_dash(&row.instance_type),
            or_dash(&row.zone),
            row.capacity_type.to_owned(),
            row.price_per_hour.to_string(),
            or_dash(&row.last_error),
        ]
    });
    print(&render(context.headers.then_some(HEADERS), cells))
}

fn row(machine: Machine) -> Row {
    let capacity_type = match machine.capacity_type() {
        CapacityType::Unspecified => "unspecified",
        CapacityType::BareMetal => "bare-metal",
        CapacityType::Reserved => "reserved",
        CapacityType::OnDemand => "on-demand",
        CapacityType::Spot => "spot",
    };
    Row {
        state: fleet::state(&machine),
        capacity_type,
        id: machine.id,
        cluster: machine.cluster,
        instance_type: machine.instance_type,
        zone: machine.zone,
        price_per_hour: machine.price_per_hour,
        interruption_probability: machine.interruption_probability,
        host: machine.host.map(|host| host.r#ref).unwrap_or_default(),
        resources: machine.resources.map(|r| r.resources).unwrap_or_default(),
        allocatable: machine.allocatable.map(|r| r.resources).unwrap_or_default(),
        labels: machine.labels,
        last_error: machine.last_error,
    }
}
