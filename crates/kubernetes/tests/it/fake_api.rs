//! An API server in this process, as a router that a client calls without sockets: objects, lists, watches, the verbs
//! that the operator uses, and answers on demand.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::State;
use axum::http::{Method, Request, StatusCode};
use axum::response::{IntoResponse, Response};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// One call that was made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// `list`, `watch`, or the HTTP method.
    pub(crate) verb: String,
    /// Path without the API's prefix, such as `namespaces/a/pods/p/eviction`.
    pub(crate) path: String,
    pub(crate) body: Value,
}

#[derive(Default)]
struct Inner {
    /// By resource, then by path below the API's prefix.
    objects: BTreeMap<String, BTreeMap<String, Value>>,
    watches: BTreeMap<String, Vec<UnboundedSender<String>>>,
    version: u64,
    /// Verb, part of the path, the answer, and for how many calls.
    answers: VecDeque<(String, String, (u16, Value), usize)>,
    calls: Vec<Call>,
}

/// The server. Copies are one.
#[derive(Clone, Default)]
pub(crate) struct Fake(Arc<Mutex<Inner>>);

impl Fake {
    pub(crate) fn client(&self) -> Client {
        let router = Router::new().fallback(serve).with_state(self.clone());
        Client::new(router, "default")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap()
    }

    /// Puts an object there, telling watches if `tell`.
    pub(crate) fn put(&self, path: &str, object: Value, tell: bool) -> Value {
        self.lock().put(path, object, tell)
    }

    /// Takes an object away, telling watches if `tell`.
    pub(crate) fn remove(&self, path: &str, tell: bool) {
        self.lock().remove(path, tell);
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.lock().objects.get(&resource(path).0)?.get(path).cloned()
    }

    /// Sends something to every watch of a resource.
    pub(crate) fn emit(&self, resource: &str, event: Value) {
        self.lock().emit(resource, &event);
    }

    /// Says that the version is too old, after which watches begin with a list.
    pub(crate) fn expire(&self, resource: &str) {
        let status = status(410, "Expired", "too old resource version");
        self.emit(resource, json!({ "type": "ERROR", "object": status }));
    }

    /// Ends every watch of a resource, as a server does now and then.
    pub(crate) fn end_watches(&self, resource: &str) {
        self.lock().watches.remove(resource);
    }

    /// Answers the next `times` calls of `verb` whose path contains `part` with this status.
    pub(crate) fn answer(&self, verb: &str, part: &str, code: u16, body: Value, times: usize) {
        self.lock().answers.push_back((verb.to_owned(), part.to_owned(), (code, body), times));
    }

    pub(crate) fn forget_answers(&self) {
        self.lock().answers.clear();
    }

    /// The calls so far of `verb` whose path contains `part`.
    pub(crate) fn calls(&self, verb: &str, part: &str) -> Vec<Call> {
        let fits = |call: &&Call| call.verb == verb && call.path.contains(part);
        self.lock().calls.iter().filter(fits).cloned().collect()
    }
}

impl Inner {
    fn put(&mut self, path: &str, mut object: Value, tell: bool) -> Value {
        self.version += 1;
        let resource = resource(path).0;
        let known = self.objects.get(&resource).and_then(|all| all.get(path));
        let uid =
            known.map_or_else(|| json!(format!("uid-{}", self.version)), |k| k["metadata"]["uid"].clone());
        let meta = &mut object["metadata"];
        if meta["uid"].is_null() {
            meta["uid"] = uid;
        }
        meta["name"] = json!(path.rsplit('/').next());
        meta["resourceVersion"] = json!(self.version.to_string());
        let kind = if known.is_some() { "MODIFIED" } else { "ADDED" };
        self.objects.entry(resource.clone()).or_default().insert(path.to_owned(), object.clone());
        if tell {
            self.emit(&resource, &json!({ "type": kind, "object": object }));
        }
        object
    }

    fn remove(&mut self, path: &str, tell: bool) {
        let resource = resource(path).0;
        if let Some(mut object) = self.objects.entry(resource.clone()).or_default().remove(path) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            if tell {
                self.emit(&resource, &json!({ "type": "DELETED", "object": object }));
            }
        }
    }

    fn emit(&mut self, resource: &str, event: &Value) {
        let line = format!("{event}\n");
        let watches = self.watches.entry(resource.to_owned()).or_default();
        watches.retain(|watch| watch.send(line.clone()).is_ok());
    }
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message })
}

fn refuse(code: u16, reason: &str) -> Response {
    reply(code, &status(code, reason, reason))
}

fn reply(code: u16, body: &Value) -> Response {
    (StatusCode::from_u16(code).unwrap(), body.to_string()).into_response()
}

/// Resource, and whether the path names one object; without a subresource.
fn resource(path: &str) -> (String, bool) {
    let parts: Vec<&str> = path.split('/').collect();
    let parts = if parts.len() > 2 && parts[0] == "namespaces" { &parts[2..] } else { &parts[..] };
    (parts[0].to_owned(), parts.len() > 1)
}

async fn serve(State(fake): State<Fake>, request: Request<Body>) -> Response {
    let (head, body) = request.into_parts();
    let bytes = to_bytes(body, usize::MAX).await.unwrap();
    let body: Value = if bytes.is_empty() { Value::Null } else { serde_json::from_slice(&bytes).unwrap() };
    let full = head.uri.path().trim_start_matches('/').to_owned();
    let query = head.uri.query().unwrap_or_default().to_owned();
    let path = match full.split('/').collect::<Vec<_>>().as_slice() {
        ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest.join("/"),
        _ => full.clone(),
    };
    let (resource, named) = resource(&path);
    let verb = match head.method {
        Method::GET if query.contains("watch=true") => "watch",
        Method::GET if !named && full != "version" => "list",
        ref other => other.as_str(),
    };
    let mut inner = fake.lock();
    inner.calls.push(Call { verb: verb.to_owned(), path: path.clone(), body: body.clone() });
    let scripted =
        inner.answers.iter_mut().find(|(v, part, _, n)| v == verb && path.contains(part.as_str()) && *n > 0);
    if let Some((_, _, (code, answer), times)) = scripted {
        *times -= 1;
        return reply(*code, answer);
    }
    let selects = |object: &Value| {
        let node = object["spec"]["nodeName"].as_str().unwrap_or_default();
        !query.contains("fieldSelector")
            || query.ends_with(&format!("nodeName%3D{node}"))
            || query.contains(&format!("nodeName%3D{node}&"))
    };
    match verb {
        "GET" if full == "version" => reply(
            200,
            &json!({
                "major": "1", "minor": "33", "gitVersion": "v1.33.1", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            }),
        ),
        "watch" => {
            let (sender, receiver) = unbounded_channel();
            inner.watches.entry(resource).or_default().push(sender);
            let lines = futures::stream::unfold(receiver, |mut receiver| async move {
                let line = receiver.recv().await?;
                Some((Ok::<_, Infallible>(line), receiver))
            });
            Body::from_stream(lines).into_response()
        }
        "list" => {
            let items: Vec<Value> = inner
                .objects
                .get(&resource)
                .into_iter()
                .flatten()
                .map(|(_, o)| o.clone())
                .filter(selects)
                .collect();
            reply(
                200,
                &json!({ "kind": "List", "apiVersion": "v1", "items": items,
                "metadata": { "resourceVersion": inner.version.to_string() } }),
            )
        }
        _ => inner.write(
            verb,
            &path,
            &resource,
            body,
            head.headers.get("content-type").and_then(|v| v.to_str().ok()),
        ),
    }
}

impl Inner {
    fn write(
        &mut self,
        verb: &str,
        path: &str,
        resource: &str,
        body: Value,
        content: Option<&str>,
    ) -> Response {
        let (base, subresource) =
            match path.strip_suffix("/status").or_else(|| path.strip_suffix("/eviction")) {
                Some(base) => (base, true),
                None => (path, false),
            };
        let known = self.objects.get(resource).and_then(|all| all.get(base)).cloned();
        let precondition = &body["deleteOptions"]["preconditions"]["uid"];
        let precondition = if precondition.is_null() { &body["preconditions"]["uid"] } else { precondition };
        let another = |object: &Value| !precondition.is_null() && *precondition != object["metadata"]["uid"];
        match (verb, known) {
            ("GET", Some(object)) => reply(200, &object),
            ("POST", Some(object)) if subresource && another(&object) => refuse(409, "Conflict"),
            ("POST", Some(_)) if subresource => {
                self.remove(base, true);
                reply(201, &json!({ "kind": "Status", "apiVersion": "v1", "status": "Success" }))
            }
            ("POST", None) if !subresource => {
                let name = body["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let path = format!("{path}/{name}");
                if self.objects.get(resource).is_some_and(|all| all.contains_key(&path)) {
                    return refuse(409, "AlreadyExists");
                }
                reply(201, &self.put(&path, body, true))
            }
            ("PUT", Some(object)) => {
                if body["metadata"]["resourceVersion"] != object["metadata"]["resourceVersion"] {
                    return refuse(409, "Conflict");
                }
                reply(200, &self.put(base, body, true))
            }
            ("PATCH", known) if content == Some("application/apply-patch+yaml") => {
                let mut object = body;
                if let Some(known) = known {
                    object["status"] = known["status"].clone();
                }
                if object["status"].is_null() {
                    object.as_object_mut().unwrap().remove("status");
                }
                reply(200, &self.put(base, object, true))
            }
            ("PATCH", Some(object))
                if body["metadata"].get("uid").is_some_and(|uid| *uid != object["metadata"]["uid"]) =>
            {
                let message = "Node \"n\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable";
                reply(422, &status(422, "Invalid", message))
            }
            ("PATCH", Some(mut object)) => {
                merge(&mut object, body);
                reply(200, &self.put(base, object, true))
            }
            ("DELETE", Some(object)) if another(&object) => refuse(409, "Conflict"),
            ("DELETE", Some(object)) => {
                self.remove(base, true);
                reply(200, &object)
            }
            _ => refuse(404, "NotFound"),
        }
    }
}

/// JSON merge patch.
fn merge(into: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *into = patch;
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            into.as_object_mut().unwrap().remove(&key);
        } else {
            merge(&mut into[key], value);
        }
    }
}
