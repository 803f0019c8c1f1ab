//! gRPC statuses, sorted by what to do about them.

use std::error::Error;

use bigfleet_net::metrics::code_label;
use tonic::{Code, Status};

use crate::io::CallError;

/// How much of a provider's message is kept.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Sorts the status of a call whose own deadline has not passed.
pub(super) fn sort(status: &Status) -> CallError {
    let message = message(status);
    // A status with a source was made on this side, from a broken connection: the request may have arrived.
    if status.source().is_some() {
        return CallError::Ambiguous { deadline: false, message };
    }
    match status.code() {
        Code::FailedPrecondition => CallError::Fenced(message),
        Code::NotFound => CallError::NotFound,
        Code::Unimplemented => CallError::Unimplemented,
        Code::ResourceExhausted => CallError::Exhausted(message),
        Code::Unauthenticated | Code::PermissionDenied => CallError::Denied(message),
        Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled => {
            CallError::Ambiguous { deadline: false, message }
        }
        _ => CallError::Rejected(message),
    }
}

/// The code and what was said, with the cause that the transport hides behind "transport error", cut to a bounded
/// length.
pub(super) fn message(status: &Status) -> String {
    let mut text = format!("{}: {}", code_label(status.code()), status.message());
    let mut cause = status.source();
    while let Some(error) = cause {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        cause = error.source();
    }
    if text.len() > MAX_MESSAGE_BYTES {
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push_str("...");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_sorted() {
        let said = |code| sort(&Status::new(code, "why"));
        let ambiguous =
            |text: &str| CallError::Ambiguous { deadline: false, message: format!("{text}: why") };
        for (code, want) in [
            (Code::FailedPrecondition, CallError::Fenced("FAILED_PRECONDITION: why".into())),
            (Code::NotFound, CallError::NotFound),
            (Code::Unimplemented, CallError::Unimplemented),
            (Code::ResourceExhausted, CallError::Exhausted("RESOURCE_EXHAUSTED: why".into())),
            (Code::Unauthenticated, CallError::Denied("UNAUTHENTICATED: why".into())),
            (Code::PermissionDenied, CallError::Denied("PERMISSION_DENIED: why".into())),
            (Code::Unavailable, ambiguous("UNAVAILABLE")),
            (Code::DeadlineExceeded, ambiguous("DEADLINE_EXCEEDED")),
            (Code::Cancelled, ambiguous("CANCELLED")),
            (Code::InvalidArgument, CallError::Rejected("INVALID_ARGUMENT: why".into())),
            (Code::Internal, CallError::Rejected("INTERNAL: why".into())),
            (Code::Aborted, CallError::Rejected("ABORTED: why".into())),
            (Code::Unknown, CallError::Rejected("UNKNOWN: why".into())),
            (Code::AlreadyExists, CallError::Rejected("ALREADY_EXISTS: why".into())),
            (Code::OutOfRange, CallError::Rejected("OUT_OF_RANGE: why".into())),
            (Code::DataLoss, CallError::Rejected("DATA_LOSS: why".into())),
        ] {
            assert_eq!(said(code), want, "{code:?}");
        }
    }

    #[test]
    fn a_broken_connection_is_ambiguous_whatever_its_code() {
        let broken = Status::from_error(Box::new(std::io::Error::other("reset by peer")));
        let CallError::Ambiguous { deadline: false, message } = sort(&broken) else { panic!("{broken:?}") };
        assert!(message.contains("reset by peer"), "{message}");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        let text = message(&Status::internal("\u{e4}".repeat(5000)));
        assert!(text.len() <= MAX_MESSAGE_BYTES + 3 && text.ends_with("..."), "{}", text.len());
    }
}
