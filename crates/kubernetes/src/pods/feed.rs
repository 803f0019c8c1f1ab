//! Watches as events of the [`Table`](super::table::Table), and what they could not read.

use std::fmt::Debug;
use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ObjectMeta};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::watcher::{self, Config};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

use super::core::Current;
use super::facts::Facts;
use super::table::{Event, Held, Kind, Seen, key};
use crate::crd::{CapacityRequest, names};
use crate::shell::follow::{Change, Follower};

/// Objects of one page of a list.
const PAGE: u32 = 500;

/// What a watch brings.
#[derive(Debug)]
pub(super) enum Item {
    /// Something that decides.
    Event(Event),
    /// An object that cannot be read, and why. What it means for the table comes as an event of its own.
    Unreadable { kind: Kind, meta: Box<ObjectMeta>, error: String },
    /// The kind cannot be read for now; what is known stays.
    Denied(Kind),
}

/// All pods.
pub(super) fn pods(client: &Client) -> BoxStream<'static, Item> {
    followed::<Pod>("Pod", client, Config::default())
        .flat_map(|change| {
            let read = |object: DeserializeGuard<Pod>| match object.0 {
                Ok(pod) => Facts::of(&pod).map(|facts| Seen::Readable(Arc::new(facts))).ok_or_else(|| {
                    (Box::new(pod.metadata.clone()), "metadata.name or metadata.uid is missing".to_owned())
                }),
                Err(invalid) => Err((Box::new(invalid.metadata), invalid.error)),
            };
            items(
                Kind::Pod,
                change,
                read,
                |meta| Seen::Unreadable(meta.uid.clone().unwrap_or_default()),
                Event::Pod,
                Event::PodGone,
            )
        })
        .boxed()
}

/// All CapacityRequests.
pub(super) fn requests(client: &Client) -> BoxStream<'static, Item> {
    followed::<CapacityRequest>("CapacityRequest", client, Config::default())
        .flat_map(|change| {
            let read = |object: DeserializeGuard<CapacityRequest>| match object.0 {
                Ok(request) => {
                    Ok(Held { current: Current::of(&request), pod_name: pod_name(&request.metadata) })
                }
                Err(invalid) => Err((Box::new(invalid.metadata), invalid.error)),
            };
            // One of ours that cannot be read is no longer what we wrote: it gets written again.
            let unreadable = |meta: &ObjectMeta| Held {
                current: Current {
                    uid: meta.uid.clone().unwrap_or_default(),
                    pod: meta.labels.as_ref().and_then(|labels| labels.get(names::OWNED_BY_POD)).cloned(),
                    hash: None,
                    acknowledged: false,
                    deleting: meta.deletion_timestamp.is_some(),
                },
                pod_name: pod_name(meta),
            };
            items(Kind::CapacityRequest, change, read, unreadable, Event::Request, Event::RequestGone)
        })
        .boxed()
}

/// The nodes that `selector` selects.
pub(super) fn nodes(client: &Client, selector: &str) -> BoxStream<'static, Item> {
    followed::<PartialObjectMeta<Node>>("Node", client, Config::default().labels(selector))
        .map(|change| {
            let name = |node: &DeserializeGuard<PartialObjectMeta<Node>>| {
                node.meta().name.clone().unwrap_or_default()
            };
            match change {
                Change::Event(watcher::Event::Init) => Item::Event(Event::Listing(Kind::Node)),
                Change::Event(watcher::Event::InitDone) => Item::Event(Event::Listed(Kind::Node)),
                Change::Event(watcher::Event::InitApply(node) | watcher::Event::Apply(node)) => {
                    Item::Event(Event::Node(name(&node)))
                }
                Change::Event(watcher::Event::Delete(node)) => Item::Event(Event::NodeGone(name(&node))),
                Change::Denied => Item::Denied(Kind::Node),
            }
        })
        .boxed()
}

fn pod_name(meta: &ObjectMeta) -> Option<String> {
    let mut owners = meta.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == "Pod" && owner.api_version == "v1").map(|owner| owner.name.clone())
}

fn followed<K>(kind: &'static str, client: &Client, config: Config) -> BoxStream<'static, Change<K>>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    let api: Api<DeserializeGuard<K>> = Api::all(client.clone());
    let follower = Follower::new(kind, api, config.page_size(PAGE));
    let next = |mut follower: Follower<K>| async move {
        let change = follower.next().await;
        Some((change, follower))
    };
    futures::stream::unfold(follower, next).boxed()
}

/// The items of one watch event: an object that cannot be read makes two.
fn items<K: Resource, V>(
    kind: Kind,
    change: Change<K>,
    read: impl Fn(DeserializeGuard<K>) -> Result<V, (Box<ObjectMeta>, String)>,
    unreadable: impl Fn(&ObjectMeta) -> V,
    there: impl Fn(super::table::Key, V) -> Event,
    gone: impl Fn(super::table::Key) -> Event,
) -> futures::stream::Iter<std::vec::IntoIter<Item>> {
    let key_of = |meta: &ObjectMeta| {
        key(meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default())
    };
    let all = match change {
        Change::Event(watcher::Event::Init) => vec![Item::Event(Event::Listing(kind))],
        Change::Event(watcher::Event::InitDone) => vec![Item::Event(Event::Listed(kind))],
        Change::Event(watcher::Event::Delete(object)) => vec![Item::Event(gone(key_of(object.meta())))],
        Change::Event(watcher::Event::InitApply(object) | watcher::Event::Apply(object)) => {
            let at = key_of(object.meta());
            match read(object) {
                Ok(value) => vec![Item::Event(there(at, value))],
                Err((meta, error)) => {
                    let event = Item::Event(there(at, unreadable(&meta)));
                    vec![event, Item::Unreadable { kind, meta, error }]
                }
            }
        }
        Change::Denied => vec![Item::Denied(kind)],
    };
    futures::stream::iter(all)
}
