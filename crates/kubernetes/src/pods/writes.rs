//! Carrying out what was decided.

use std::time::Duration;

use kube::api::{Api, DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Error};

use super::core::{Action, Current};
use super::table::Ended;
use crate::crd::{CapacityRequest, POD_CONTROLLER};

/// Why a write did not do what it should, beside how it ended.
#[derive(Debug)]
pub(super) struct Failure {
    /// What it means for the pod.
    pub(super) ended: Ended,
    /// What the API server said; `None` when there is nothing to tell.
    pub(super) message: Option<String>,
}

/// Carries out an action on CapacityRequests of a namespace.
pub(super) async fn carry_out(client: &Client, namespace: &str, action: &Action) -> Result<Ended, Failure> {
    let api: Api<CapacityRequest> = Api::namespaced(client.clone(), namespace);
    match action {
        Action::Nothing => Ok(Ended::Done(None)),
        Action::Apply(object) => {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let params = PatchParams::apply(POD_CONTROLLER).force();
            let answer = api.patch(name, &params, &Patch::Apply(object)).await.map_err(failure)?;
            Ok(Ended::Done(Some(Current::of(&answer))))
        }
        Action::Delete { name, uid } => delete(&api, name, uid).await,
    }
}

/// Deletes a CapacityRequest if it is still this very one.
pub(super) async fn delete(api: &Api<CapacityRequest>, name: &str, uid: &str) -> Result<Ended, Failure> {
    let preconditions = Preconditions { uid: Some(uid.to_owned()), resource_version: None };
    match api.delete(name, &DeleteParams::default().preconditions(preconditions)).await {
        Ok(_) => Ok(Ended::Done(None)),
        Err(Error::Api(status)) if status.code == 404 => Ok(Ended::Done(None)),
        Err(error) => Err(failure(error)),
    }
}

fn failure(error: Error) -> Failure {
    let retry = |after, message| Failure { ended: Ended::Retry(after), message: Some(message) };
    let status = match error {
        Error::Api(status) => status,
        other => return retry(None, other.to_string()),
    };
    let causes = status.details.as_ref().map(|details| details.causes.as_slice()).unwrap_or_default();
    let after = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
    let terminating = causes.iter().any(|cause| cause.reason == "NamespaceTerminating");
    match status.code {
        // The namespace takes the pod along.
        403 if terminating => Failure { ended: Ended::Moot, message: None },
        400 | 422 => Failure { ended: Ended::Refused, message: Some(status.message.clone()) },
        _ => retry((after > 0).then(|| Duration::from_secs(u64::from(after))), status.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(status: serde_json::Value) -> Failure {
        failure(Error::Api(Box::new(serde_json::from_value(status).unwrap())))
    }

    #[test]
    fn answers_mean_retry_refusal_or_nothing() {
        let terminating = of(json!({
            "code": 403, "message": "being terminated", "details": { "causes": [{ "reason": "NamespaceTerminating" }] },
        }));
        assert_eq!((terminating.ended, terminating.message), (Ended::Moot, None));
        let busy = of(json!({ "code": 429, "message": "slow down", "details": { "retryAfterSeconds": 7 } }));
        assert_eq!(busy.ended, Ended::Retry(Some(Duration::from_secs(7))));
        for code in [401, 403, 404, 409, 500, 503] {
            assert_eq!(of(json!({ "code": code, "message": "no" })).ended, Ended::Retry(None), "{code}");
        }
        for code in [400, 422] {
            let refused = of(json!({ "code": code, "message": "too many values" }));
            assert_eq!(refused.ended, Ended::Refused);
            assert_eq!(refused.message.as_deref(), Some("too many values"));
        }
    }
}
