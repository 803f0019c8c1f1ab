//! Kinds of which there are few: nodes and our read-backs. They are read once before the operator begins and followed
//! from then on; what a list does not name any more is told to be gone.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use bigfleet_operator::io::Input;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::follow::{Change, Follower, Listing};
use super::{Inner, convert, lock, write};
use crate::crd::{AvailableCapacity, OPERATOR, UpcomingNode, convert as crds, names};

/// The small kinds.
pub(super) struct Small {
    nodes: Tracked<v1::Node>,
    upcoming: Tracked<UpcomingNode>,
    available: Tracked<AvailableCapacity>,
}

/// Reads an object: the input that it makes, and the one that its end will make.
type Read<K> = fn(&Inner, &K) -> Result<(Input, Input), String>;

struct Tracked<K> {
    kind: &'static str,
    follower: Follower<K>,
    read: Read<K>,
    forget: fn(&Inner, &str),
    /// What the operator has been told of, by the object's name: what says that it is gone.
    known: BTreeMap<String, Input>,
    listing: Listing,
}

impl Small {
    pub(super) fn new(inner: &Inner) -> Self {
        let ours = || Config::default().labels(&format!("{}={OPERATOR}", names::MANAGED_BY));
        Self {
            nodes: Tracked::new(inner, "Node", Config::default(), node, |inner, name| {
                lock(&inner.uids).nodes.remove(name);
            }),
            upcoming: Tracked::new(inner, "UpcomingNode", ours(), upcoming_node, |inner, name| {
                lock(&inner.upcoming).remove(name);
            }),
            available: Tracked::new(inner, "AvailableCapacity", ours(), available_capacity, |_, _| {}),
        }
    }

    /// Reads each kind once.
    pub(super) async fn prime(&mut self, inner: &Inner) -> Vec<Input> {
        let (mut inputs, upcoming, available) =
            futures::join!(self.nodes.prime(inner), self.upcoming.prime(inner), self.available.prime(inner));
        inputs.extend(upcoming);
        inputs.extend(available);
        inputs
    }

    /// Follows each kind until nobody reads any more.
    pub(super) fn follow(
        self,
        inner: &Arc<Inner>,
        sender: &mpsc::Sender<Input>,
    ) -> Vec<BoxFuture<'static, ()>> {
        vec![
            self.nodes.follow(Arc::clone(inner), sender.clone()).boxed(),
            self.upcoming.follow(Arc::clone(inner), sender.clone()).boxed(),
            self.available.follow(Arc::clone(inner), sender.clone()).boxed(),
        ]
    }
}

impl<K> Tracked<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default,
{
    fn new(
        inner: &Inner,
        kind: &'static str,
        config: Config,
        read: Read<K>,
        forget: fn(&Inner, &str),
    ) -> Self {
        let api: Api<DeserializeGuard<K>> = Api::all_with(inner.client.clone(), &K::DynamicType::default());
        let follower = Follower::new(kind, api, config);
        Self { kind, follower, read, forget, known: BTreeMap::new(), listing: Listing::default() }
    }

    async fn prime(&mut self, inner: &Inner) -> Vec<Input> {
        let mut inputs = Vec::new();
        while !self.step(inner, &mut inputs).await {}
        inputs
    }

    async fn follow(mut self, inner: Arc<Inner>, sender: mpsc::Sender<Input>) {
        let mut inputs = Vec::new();
        loop {
            self.step(&inner, &mut inputs).await;
            for input in inputs.drain(..) {
                if sender.send(input).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Takes one change; whether it completes a list.
    async fn step(&mut self, inner: &Inner, inputs: &mut Vec<Input>) -> bool {
        match self.follower.next().await {
            Change::Denied => inner.synced.set(self.kind, false),
            Change::Event(Event::Init) => self.listing.begin(),
            Change::Event(Event::Apply(object) | Event::InitApply(object)) => {
                inputs.extend(self.apply(inner, &object));
            }
            Change::Event(Event::Delete(object)) => {
                inner.unreadable.forget(self.kind, object.meta());
                let name = object.meta().name.clone().unwrap_or_default();
                inputs.extend(self.gone(inner, &name));
            }
            Change::Event(Event::InitDone) => {
                let named = self.listing.end();
                let gone: Vec<String> =
                    self.known.keys().filter(|name| !named.contains(*name)).cloned().collect();
                for name in gone {
                    inputs.extend(self.gone(inner, &name));
                }
                inner.synced.set(self.kind, true);
                return true;
            }
        }
        false
    }

    fn apply(&mut self, inner: &Inner, object: &DeserializeGuard<K>) -> Option<Input> {
        let name = object.meta().name.clone().unwrap_or_default();
        self.listing.names(&name);
        let error = match &object.0 {
            Ok(readable) => match (self.read)(inner, readable) {
                Ok((input, gone)) => {
                    inner.unreadable.forget(self.kind, readable.meta());
                    self.known.insert(name, gone);
                    return Some(input);
                }
                Err(error) => error,
            },
            Err(invalid) => invalid.error.clone(),
        };
        // What was known of it stays known.
        inner.unreadable.report(self.kind, object.meta(), &error);
        None
    }

    fn gone(&mut self, inner: &Inner, name: &str) -> Option<Input> {
        (self.forget)(inner, name);
        self.known.remove(name)
    }
}

fn node(inner: &Inner, object: &v1::Node) -> Result<(Input, Input), String> {
    let node = convert::node(object);
    lock(&inner.uids).nodes.insert(node.name.clone(), node.uid.to_string());
    let gone = Input::NodeGone(node.name.clone());
    Ok((Input::Node(Arc::new(node)), gone))
}

fn upcoming_node(inner: &Inner, object: &UpcomingNode) -> Result<(Input, Input), String> {
    let node = crds::read_upcoming_node(object).map_err(|error| error.to_string())?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let machine = node.machine.clone().ok_or("it names no machine")?;
    let expected = names::upcoming_node(&machine);
    if name != expected {
        return Err(format!(
            "spec.machineID {machine} belongs to the name {expected}; the object is left alone"
        ));
    }
    lock(&inner.upcoming).insert(name, write::Stored::of(object));
    Ok((Input::UpcomingNode(Box::new(node)), Input::UpcomingNodeGone(machine)))
}

fn available_capacity(_: &Inner, object: &AvailableCapacity) -> Result<(Input, Input), String> {
    let hint = crds::read_available_capacity(object).map_err(|error| error.to_string())?;
    let gone = Input::AvailableCapacityGone(hint.key.clone());
    Ok((Input::AvailableCapacity(Box::new(hint)), gone))
}
