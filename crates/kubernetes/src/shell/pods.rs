//! The pods of a node that is being emptied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bigfleet_operator::io::Input;
use k8s_openapi::api::core::v1;
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Resource};
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::follow::{Change, Follower, Listing};
use super::unreadable::full_name;
use super::{Inner, convert, lock};

/// How often the pods are listed anew: a drain must not wait for what a watch has missed.
const RELIST: Duration = Duration::from_secs(10);

/// Names of pods by uid, whose uids are known to Events for as long as this lives.
struct Known<'a> {
    inner: &'a Inner,
    /// Tells this watch from one of the same node before it, which may end after this one has begun.
    watch: u64,
    names: BTreeMap<String, String>,
}

impl Known<'_> {
    fn insert(&mut self, uid: &str, name: String) {
        lock(&self.inner.uids).pods.insert(name.clone(), (uid.to_owned(), self.watch));
        self.names.insert(uid.to_owned(), name);
    }

    /// Another pod, or another watch, may have taken the name over.
    fn forget(&self, uid: &str, name: &str) {
        let mut uids = lock(&self.inner.uids);
        if uids.pods.get(name).is_some_and(|(known, watch)| known == uid && *watch == self.watch) {
            uids.pods.remove(name);
        }
    }

    fn remove(&mut self, uid: &str) -> bool {
        let Some(name) = self.names.remove(uid) else {
            return false;
        };
        self.forget(uid, &name);
        true
    }
}

impl Drop for Known<'_> {
    fn drop(&mut self) {
        for (uid, name) in &self.names {
            self.forget(uid, name);
        }
    }
}

/// Follows the pods of one node until nobody reads any more.
pub(super) async fn follow(inner: Arc<Inner>, node: String, sender: mpsc::Sender<Input>) {
    let api: Api<DeserializeGuard<v1::Pod>> = Api::all_with(inner.client.clone(), &());
    let config = Config::default().fields(&format!("spec.nodeName={node}"));
    let mut follower = Follower::new("Pod", api, config);
    let watch = inner.watches.fetch_add(1, Ordering::Relaxed);
    let mut known = Known { inner: &inner, watch, names: BTreeMap::new() };
    let mut listing = Listing::default();
    // None while a list is under way, which may take longer.
    let mut relist = None;
    loop {
        let mut inputs = Vec::new();
        let change = match relist {
            None => follower.next().await,
            Some(at) => match timeout_at(at, follower.next()).await {
                Ok(change) => change,
                Err(_) => {
                    follower.restart();
                    relist = None;
                    continue;
                }
            },
        };
        match change {
            // The drain goes on with what it knows; without a list it cannot end early.
            Change::Denied => {}
            Change::Event(Event::Init) => listing.begin(),
            Change::Event(Event::Apply(object) | Event::InitApply(object)) => {
                if let Some(uid) = object.meta().uid.clone() {
                    listing.names(&uid);
                    known.insert(&uid, full_name(object.meta()));
                    inputs.push(Input::Pod(Arc::new(read(&inner, &node, object))));
                }
            }
            Change::Event(Event::Delete(object)) => {
                inner.unreadable.forget("Pod", object.meta());
                if let Some(uid) = object.meta().uid.as_deref() {
                    known.remove(uid);
                    inputs.push(Input::PodGone(uid.into()));
                }
            }
            Change::Event(Event::InitDone) => {
                relist = Some(Instant::now() + RELIST);
                let named = listing.end();
                let gone: Vec<String> =
                    known.names.keys().filter(|uid| !named.contains(*uid)).cloned().collect();
                for uid in gone {
                    known.remove(&uid);
                    inputs.push(Input::PodGone(uid.as_str().into()));
                }
                inputs.push(Input::PodsListed(node.clone()));
            }
        }
        for input in inputs {
            if sender.send(input).await.is_err() {
                return;
            }
        }
    }
}

/// A pod that cannot be read still stands on the node: its metadata tell enough to evict it.
fn read(inner: &Inner, node: &str, object: DeserializeGuard<v1::Pod>) -> bigfleet_operator::io::Pod {
    let own = inner.options.own_pod.as_ref();
    match object.0 {
        Ok(pod) => {
            inner.unreadable.forget("Pod", &pod.metadata);
            convert::pod(&pod, node, own)
        }
        Err(invalid) => {
            inner.unreadable.report("Pod", &invalid.metadata, &invalid.error);
            let pod = v1::Pod { metadata: invalid.metadata, ..v1::Pod::default() };
            convert::pod(&pod, node, own)
        }
    }
}
