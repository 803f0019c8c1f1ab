//! Asking a shard for its Needs and a provider for its machines.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use bigfleet_net::{channel, limits};
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use bigfleet_proto::v1alpha1::inspect_needs_response::Frame;
use bigfleet_proto::v1alpha1::shard_read_client::ShardReadClient;
use bigfleet_proto::v1alpha1::{
    InspectNeedsHeader, InspectNeedsRequest, ListFilter, Machine, NeedView,
    node_selector_requirement::Operator,
};
use bigfleet_types::MachineState;

/// What a shard last decided.
pub(crate) struct Needs {
    /// When and for how many.
    pub(crate) header: InspectNeedsHeader,
    /// One view a Need, in the shard's order.
    pub(crate) views: Vec<NeedView>,
}

/// Asks a shard what became of the Needs of one cluster, or of all for the empty id.
pub(crate) async fn needs(shard: &str, cluster: &str, timeout: Duration) -> anyhow::Result<Needs> {
    let ask = async {
        let channel = channel::connect_lazy(shard, &channel::Options::default())?;
        let mut client = ShardReadClient::new(channel).max_decoding_message_size(limits::CALL_BYTES);
        let request = InspectNeedsRequest { cluster_id: cluster.to_owned(), limit: 0 };
        let mut frames = client.inspect_needs(request).await?.into_inner();
        let Some(Frame::Header(header)) = frames.message().await?.and_then(|first| first.frame) else {
            bail!("the answer does not begin with a header");
        };
        let mut views = Vec::new();
        while let Some(frame) = frames.message().await? {
            match frame.frame {
                Some(Frame::Need(view)) => views.push(view),
                Some(Frame::Header(_)) | None => bail!("the answer holds a frame that is no Need"),
            }
        }
        Ok(Needs { header, views })
    };
    within(timeout, ask).await.with_context(|| format!("asking shard {shard} (--shard) for its Needs"))
}

/// Asks a provider for all its machines, sorted by id.
pub(crate) async fn machines(provider: &str, timeout: Duration) -> anyhow::Result<Vec<Machine>> {
    let ask = async {
        let channel = channel::connect_lazy(provider, &channel::Options::default())?;
        let mut client = CapacityProviderClient::new(channel).max_decoding_message_size(limits::LIST_BYTES);
        let mut machines = client.list(ListFilter::default()).await?.into_inner().machines;
        machines.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(machines)
    };
    within(timeout, ask)
        .await
        .with_context(|| format!("asking provider {provider} (--provider) for its machines"))
}

async fn within<T>(timeout: Duration, ask: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::time::timeout(timeout, ask)
        .await
        .map_err(|_| anyhow!("no answer within {} s (--timeout)", timeout.as_secs()))?
}

/// The name of a machine's state; the number where it is unknown.
pub(crate) fn state(machine: &Machine) -> String {
    MachineState::from_number(machine.state)
        .map_or_else(|| machine.state.to_string(), |s| s.name().to_owned())
}

/// Dollars an hour for machines that exist: everything but quota slots.
pub(crate) fn dollars_per_hour(machines: &[Machine]) -> f64 {
    machines.iter().filter(|m| state(m) != "Speculative").map(|m| m.price_per_hour).sum()
}

/// How many machines are in each state.
pub(crate) fn by_state(machines: &[Machine]) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for machine in machines {
        *counts.entry(state(machine)).or_default() += 1;
    }
    counts
}

/// A vector on one line: `cpu 2500m, memory 16Gi`.
pub(crate) fn vector(resources: &BTreeMap<String, String>) -> String {
    resources.iter().map(|(name, amount)| format!("{name} {amount}")).collect::<Vec<_>>().join(", ")
}

/// What a Need asks of its machines, on one line.
pub(crate) fn requirements(view: &NeedView) -> String {
    let need = view.need.clone().unwrap_or_default();
    let terms = need.requirements.iter().map(|r| {
        let values = r.values.join(",");
        match r.operator() {
            Operator::In => format!("{} in [{values}]", r.key),
            Operator::NotIn => format!("{} not in [{values}]", r.key),
            Operator::Exists => format!("{} present", r.key),
            Operator::DoesNotExist => format!("{} absent", r.key),
            Operator::Same => format!("same {}", r.key),
            Operator::Unspecified => format!("{}?", r.key),
        }
    });
    let spread =
        need.spread.iter().map(|term| format!("spread over {} (skew {})", term.topology_key, term.max_skew));
    terms.chain(spread).collect::<Vec<_>>().join("; ")
}

/// Why a Need has no machine, or why the machines chosen for it are not coming, for people; empty when all is well.
pub(crate) fn explain(view: &NeedView) -> String {
    use bigfleet_proto::v1alpha1::UnmetReason;
    if view.satisfied && view.note.is_empty() {
        return String::new();
    }
    if view.satisfied {
        return format!("its machines are chosen but not coming: {}", view.note);
    }
    if view.unmet_reason() == UnmetReason::Unspecified && !view.note.is_empty() {
        return view.note.clone();
    }
    let also = if view.note.is_empty() { String::new() } else { format!("; {}", view.note) };
    format!("{}{also}", unmet(view))
}

fn unmet(view: &NeedView) -> String {
    use bigfleet_proto::v1alpha1::UnmetReason;
    let supply = view.matching_supply.unwrap_or_default();
    let more = if supply.capped { " (or more)" } else { "" };
    let counts = format!(
        "the fleet has {} Idle, {} Configured and {} Speculative machines that fit{more}",
        supply.idle, supply.configured, supply.speculative
    );
    match view.unmet_reason() {
        UnmetReason::NoMatchingSupply => "no machine of this shard could serve it".to_owned(),
        UnmetReason::PriorityStarved => format!("others go first: {counts}"),
        UnmetReason::TopologyUnsatisfiable => format!("no single domain can hold it: {counts}"),
        UnmetReason::PreemptionExhausted => {
            format!("preempting all that may be preempted is not enough: {counts}")
        }
        UnmetReason::Unspecified => "the shard gives no reason".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bigfleet_proto::v1alpha1::UnmetReason;

    fn view(satisfied: bool, reason: UnmetReason, note: &str) -> NeedView {
        NeedView { satisfied, unmet_reason: reason.into(), note: note.into(), ..NeedView::default() }
    }

    #[test]
    fn machines_that_are_decided_and_not_coming_are_explained() {
        let none = UnmetReason::Unspecified;
        assert_eq!(explain(&view(true, none, "")), "");
        assert_eq!(explain(&view(true, none, "paused")), "its machines are chosen but not coming: paused");
        assert_eq!(explain(&view(false, none, "the operator refuses")), "the operator refuses");
        let both = explain(&view(false, UnmetReason::NoMatchingSupply, "paused"));
        assert_eq!(both, "no machine of this shard could serve it; paused");
    }
}
