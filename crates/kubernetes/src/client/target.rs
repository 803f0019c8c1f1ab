//! What a call is about, read from its method and path.

use http::{Method, Request};

/// How important a call is. Those below [`Class::Urgent`] leave a part of the budget to those above them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Leases, cordons, evictions, and lists, without which nothing is known.
    Urgent,
    /// UpcomingNodes.
    UpcomingNode,
    /// CapacityRequests: their acknowledgement, and the pod controller's writes.
    Acknowledgement,
    /// AvailableCapacities.
    Hint,
    /// Events.
    Event,
}

impl Class {
    /// The part of the bucket that this class leaves to others.
    #[must_use]
    pub fn reserve(self) -> f64 {
        match self {
            Self::Urgent => 0.0,
            Self::UpcomingNode => 0.2,
            Self::Acknowledgement => 0.25,
            Self::Hint => 0.3,
            Self::Event => 0.4,
        }
    }
}

/// What a call is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The Kubernetes verb.
    pub verb: &'static str,
    /// The resource in the plural, with its subresource after a slash; `other` for what is no resource.
    pub resource: String,
    /// What it costs; `None` is free.
    pub class: Option<Class>,
}

impl Target {
    /// Reads it off a request.
    #[must_use]
    pub fn of<B>(request: &Request<B>) -> Self {
        let parts: Vec<&str> = request.uri().path().split('/').filter(|part| !part.is_empty()).collect();
        let rest = match parts.as_slice() {
            ["api", _, rest @ ..] | ["apis", _, _, rest @ ..] => rest,
            _ => &[],
        };
        // `/namespaces/NAME` alone is a namespace itself, which no program of ours touches.
        let rest = match rest {
            ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
            rest => rest,
        };
        let (resource, named) = match rest {
            [] => ("other".to_owned(), true),
            [resource] => ((*resource).to_owned(), false),
            [resource, _] => ((*resource).to_owned(), true),
            [resource, _, subresource, ..] => (format!("{resource}/{subresource}"), true),
        };
        let watches = request.uri().query().is_some_and(|query| {
            query.split('&').any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"))
        });
        let verb = match *request.method() {
            Method::GET if watches => "watch",
            Method::GET if named => "get",
            Method::GET => "list",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE => "delete",
            _ => "other",
        };
        let class = match (verb, resource.split('/').next().unwrap_or_default()) {
            ("watch" | "get", resource) if resource != "leases" => None,
            ("list", _) => Some(Class::Urgent),
            (_, "upcomingnodes") => Some(Class::UpcomingNode),
            (_, "capacityrequests") => Some(Class::Acknowledgement),
            (_, "availablecapacities") => Some(Class::Hint),
            (_, "events") => Some(Class::Event),
            _ => Some(Class::Urgent),
        };
        Self { verb, resource, class }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(method: Method, path: &str) -> (&'static str, String, Option<Class>) {
        let target = Target::of(&Request::builder().method(method).uri(path).body(()).unwrap());
        (target.verb, target.resource, target.class)
    }

    #[test]
    fn calls_are_told_apart() {
        let crs = "/apis/bigfleet.lucy.sh/v1alpha1/capacityrequests";
        let one = "/apis/bigfleet.lucy.sh/v1alpha1/namespaces/a/capacityrequests/x/status";
        let lease = "/apis/coordination.k8s.io/v1/namespaces/a/leases/bigfleet-operator";
        let own = |resource: &str| resource.to_owned();
        for (method, path, expected) in [
            (
                Method::GET,
                &format!("{crs}?limit=500"),
                ("list", own("capacityrequests"), Some(Class::Urgent)),
            ),
            (
                Method::GET,
                &format!("{crs}?&watch=true&timeoutSeconds=290"),
                ("watch", own("capacityrequests"), None),
            ),
            (
                Method::PATCH,
                &own(one),
                ("patch", own("capacityrequests/status"), Some(Class::Acknowledgement)),
            ),
            (Method::GET, &own(lease), ("get", own("leases"), Some(Class::Urgent))),
            (Method::PUT, &own(lease), ("update", own("leases"), Some(Class::Urgent))),
            (Method::PATCH, &own("/api/v1/nodes/n"), ("patch", own("nodes"), Some(Class::Urgent))),
            (
                Method::POST,
                &own("/api/v1/namespaces/a/pods/p/eviction"),
                ("create", own("pods/eviction"), Some(Class::Urgent)),
            ),
            (
                Method::POST,
                &own("/apis/events.k8s.io/v1/namespaces/default/events"),
                ("create", own("events"), Some(Class::Event)),
            ),
            (Method::GET, &own("/version"), ("get", own("other"), None)),
        ] {
            assert_eq!(of(method, path), expected, "{path}");
        }
    }
}
