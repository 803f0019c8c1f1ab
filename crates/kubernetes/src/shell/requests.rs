//! CapacityRequests: the one kind of which an empty list means something, so that a list is passed on as such.

use std::sync::Arc;

use bigfleet_operator::io::Input;
use kube::Api;
use kube::runtime::watcher::{Config, Event};
use tokio::sync::mpsc;

use super::Inner;
use super::follow::{Change, Follower};
use crate::crd::{CapacityRequest, convert};

const KIND: &str = "CapacityRequest";

/// Follows the requests until nobody reads any more.
pub(super) async fn follow(inner: Arc<Inner>, sender: mpsc::Sender<Input>) {
    let api = Api::all(inner.client.clone());
    let mut follower: Follower<CapacityRequest> = Follower::new(KIND, api, Config::default());
    loop {
        let input = match follower.next().await {
            Change::Denied => {
                inner.synced.set(KIND, false);
                Some(Input::Unsynced)
            }
            Change::Event(Event::Init) => Some(Input::Listing),
            Change::Event(Event::InitDone) => {
                inner.synced.set(KIND, true);
                Some(Input::Synced)
            }
            Change::Event(Event::Apply(object) | Event::InitApply(object)) => read(&inner, object.0),
            Change::Event(Event::Delete(object)) => {
                let meta = kube::Resource::meta(&object);
                inner.unreadable.forget(KIND, meta);
                meta.uid.as_deref().map(|uid| Input::RequestGone(uid.into()))
            }
        };
        if let Some(input) = input
            && sender.send(input).await.is_err()
        {
            return;
        }
    }
}

/// `None` for what cannot be read. If it could be once, what it said then stays in force until it is deleted.
fn read(
    inner: &Inner,
    object: Result<CapacityRequest, kube::core::error_boundary::InvalidObject>,
) -> Option<Input> {
    let object = match object {
        Ok(object) => object,
        Err(invalid) => {
            inner.unreadable.report(KIND, &invalid.metadata, &invalid.error);
            return invalid.metadata.uid.as_deref().map(|uid| Input::RequestUnreadable(uid.into()));
        }
    };
    match convert::capacity_request(&object) {
        Ok(request) => {
            inner.unreadable.forget(KIND, &object.metadata);
            Some(Input::Request(Arc::new(request)))
        }
        Err(error) => {
            inner.unreadable.report(KIND, &object.metadata, &error.to_string());
            None
        }
    }
}
