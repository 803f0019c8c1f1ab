//! How a probe ends, and the comparisons that end it.

use std::fmt;

use bigfleet_net::metrics::code_label;
use tonic::{Code, Status};

use bigfleet_proto::v1alpha1 as pb;

/// Why a probe ends before its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The provider broke the clause; the text says with what.
    Broken(String),
    /// The clause could not be looked at; the text says why.
    Unseen(String),
    /// There is nothing to look at, and that is allowed.
    NotApplicable(String),
}

/// What a probe gives.
pub(crate) type Check<T = ()> = Result<T, Stop>;

/// Ends the probe: the clause is broken.
pub(crate) fn broken<T>(what: impl fmt::Display) -> Check<T> {
    Err(Stop::Broken(what.to_string()))
}

/// Ends the probe unless `holds`.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Check {
    if holds { Ok(()) } else { Err(Stop::Broken(what())) }
}

/// The answer of a call that must succeed.
pub(crate) fn ok<T>(what: &str, answer: Result<T, Status>) -> Check<T> {
    answer.or_else(|status| broken(format!("{what}: must be accepted, got {}", shown(&status))))
}

/// The code of a call, OK included.
pub(crate) fn code<T>(answer: &Result<T, Status>) -> Code {
    answer.as_ref().map_or_else(Status::code, |_| Code::Ok)
}

/// A call must be answered with one of `wanted`.
pub(crate) fn answers<T>(what: &str, answer: &Result<T, Status>, wanted: &[Code]) -> Check {
    let got = code(answer);
    ensure(wanted.contains(&got), || {
        let names: Vec<_> = wanted.iter().map(|code| code_label(*code)).collect();
        let text = answer.as_ref().err().map(shown).unwrap_or_else(|| "OK".into());
        format!("{what}: must be answered {}, got {text}", names.join(" or "))
    })
}

/// A call must be refused by the fence.
pub(crate) fn fenced<T>(what: &str, answer: &Result<T, Status>) -> Check {
    answers(what, answer, &[Code::FailedPrecondition])
}

/// A call must be refused, and not by the code of the fence.
pub(crate) fn refused<T>(what: &str, answer: &Result<T, Status>) -> Check {
    let got = code(answer);
    ensure(got != Code::Ok, || format!("{what}: must be refused, was accepted"))?;
    not_fenced(what, answer)
}

/// A call must not be refused by the code of the fence. Whether it is accepted does not matter.
pub(crate) fn not_fenced<T>(what: &str, answer: &Result<T, Status>) -> Check {
    ensure(code(answer) != Code::FailedPrecondition, || {
        format!("{what}: FAILED_PRECONDITION is for fencing alone, and this call was not fenced out")
    })
}

/// The operation id of an acknowledgement, which must not be empty.
pub(crate) fn operation(what: &str, ack: &pb::TransitionAck) -> Check<String> {
    ensure(!ack.operation_id.is_empty(), || format!("{what}: operation_id is empty"))?;
    Ok(ack.operation_id.clone())
}

/// Two values must be equal.
pub(crate) fn equal<T: PartialEq + fmt::Debug>(what: &str, got: &T, wanted: &T) -> Check {
    ensure(got == wanted, || {
        let cut = |value: &T| crate::record::cut(&format!("{value:?}"), 300);
        format!("{what}: got {}, wanted {}", cut(got), cut(wanted))
    })
}

/// A status in a line.
pub(crate) fn shown(status: &Status) -> String {
    format!("{} {:?}", code_label(status.code()), crate::record::cut(status.message(), 300))
}
