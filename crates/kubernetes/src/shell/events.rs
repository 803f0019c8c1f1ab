//! Events for people: at most ten a second, dropped rather than late.

use std::sync::Arc;

use bigfleet_operator::service::Note;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Api, Client};
use tokio::sync::mpsc;

use crate::client::{Bucket, Class};
use crate::crd::{CapacityRequest, GROUP, OPERATOR, VERSION};

const RATE: u32 = 10;
const BURST: u32 = 100;
const WAITING: usize = 256;
/// Bytes that the API server takes of a message.
const MESSAGE: usize = 1024;

/// Where Events are sent.
#[derive(Clone)]
pub(super) struct Events {
    queue: mpsc::Sender<(Note, Option<String>)>,
    bucket: Arc<Bucket>,
}

impl Events {
    /// Publishes on a task of its own, which ends with the last clone. `instance` is the pod that we are.
    pub(super) fn start(client: Client, instance: Option<String>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(publish(client, instance, waiting));
        Self { queue, bucket: Arc::new(Bucket::new(RATE, BURST)) }
    }

    /// Queues an Event about an object whose uid may be known. Beyond the budget it is dropped.
    pub(super) fn send(&self, note: Note, uid: Option<String>) {
        if self.bucket.try_take(Class::Urgent).is_ok() {
            // A full queue means that the API server is slow; nobody waits for an Event.
            let _ = self.queue.try_send((note, uid));
        }
    }
}

async fn publish(
    client: Client,
    instance: Option<String>,
    mut waiting: mpsc::Receiver<(Note, Option<String>)>,
) {
    let reporter = Reporter { controller: OPERATOR.to_owned(), instance };
    let recorder = Recorder::new(client.clone(), reporter);
    while let Some((note, uid)) = waiting.recv().await {
        let reference = reference(&client, &note, uid).await;
        let event = Event {
            type_: if note.warning { EventType::Warning } else { EventType::Normal },
            reason: note.reason.to_owned(),
            note: Some(cut(&note.message)),
            action: note.reason.to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &reference).await {
            tracing::debug!(about = ?note.about, reason = note.reason, %error, "an Event was not recorded");
        }
    }
}

async fn reference(client: &Client, note: &Note, mut uid: Option<String>) -> ObjectReference {
    let (kind, full) = &note.about;
    let (namespace, name) = match full.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name.to_owned()),
        None => (None, full.clone()),
    };
    // `kubectl describe` finds Events by uid.
    if let (None, "CapacityRequest", Some(namespace)) = (&uid, kind.as_str(), &namespace) {
        let api: Api<CapacityRequest> = Api::namespaced(client.clone(), namespace);
        uid = api.get_metadata(&name).await.ok().and_then(|object| object.metadata.uid);
    }
    let api_version = match kind.as_str() {
        "Node" | "Pod" => "v1".to_owned(),
        _ => format!("{GROUP}/{VERSION}"),
    };
    ObjectReference {
        api_version: Some(api_version),
        kind: Some(kind.clone()),
        name: Some(name),
        namespace,
        uid,
        ..ObjectReference::default()
    }
}

fn cut(message: &str) -> String {
    let mut end = message.len().min(MESSAGE);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    message[..end].to_owned()
}
