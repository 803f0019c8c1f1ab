//! How long to wait before dialling again, by how the last session ended.

use std::fmt;
use std::time::Duration;

use bigfleet_net::backoff::Backoff;
use tonic::{Code, Status};

/// A session that lived this long and heard the shard's hello was a good one.
pub const GOOD: Duration = Duration::from_secs(30);
const REPLACED: Duration = Duration::from_secs(60);
const TOO_LARGE: Duration = Duration::from_secs(20);

/// How a session, or the attempt to have one, ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// We were told to stop.
    Stopped,
    /// The connection or the shard went away.
    Lost(String),
    /// The shard does not accept who we are or how we speak.
    Refused(String),
    /// The shard has no room for what we sent.
    TooLarge(String),
    /// A newer session of this cluster took the place of ours.
    Replaced(String),
}

impl End {
    /// What [`End::reason`] can say of a session that was lost.
    pub const REASONS: [&str; 4] = ["lost", "refused", "too_large", "replaced"];

    /// One word for metrics.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Lost(_) => "lost",
            Self::Refused(_) => "refused",
            Self::TooLarge(_) => "too_large",
            Self::Replaced(_) => "replaced",
        }
    }

    /// The end that a status stands for.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        let text = format!("{:?}: {}", status.code(), status.message());
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated | Code::InvalidArgument => Self::Refused(text),
            Code::ResourceExhausted => Self::TooLarge(text),
            Code::Aborted => Self::Replaced(text),
            _ => Self::Lost(text),
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => f.write_str("told to stop"),
            Self::Lost(text) | Self::Refused(text) | Self::TooLarge(text) | Self::Replaced(text) => {
                f.write_str(text)
            }
        }
    }
}

/// The delays of one operator. Steps double from the first to the cap; each delay is drawn from a step's upper half.
#[derive(Debug, Clone)]
pub struct Delays {
    backoff: Backoff,
    initial: Duration,
    cap: Duration,
}

impl Delays {
    /// Delays from `initial` to `cap`.
    #[must_use]
    pub fn new(initial: Duration, cap: Duration) -> Self {
        Self { backoff: Backoff::new(initial, cap), initial, cap }
    }

    /// The delay after a session that ended as `end`, `lived` so long and was `greeted` or not. `chance` is any 64
    /// random bits.
    ///
    /// A good session starts the steps again. A refusal goes to the cap at once; a full shard gets at least 10 s; a
    /// replaced session waits 30 to 60 s whatever the cap, so that two operators of one cluster do not take turns.
    pub fn after(&mut self, end: &End, lived: Duration, greeted: bool, chance: u64) -> Duration {
        if lived >= GOOD && greeted {
            self.backoff = Backoff::new(self.initial, self.cap);
        }
        match end {
            End::Stopped => Duration::ZERO,
            End::Lost(_) => self.backoff.next_delay(chance),
            End::Refused(_) => Backoff::new(self.cap, self.cap).next_delay(chance),
            End::TooLarge(_) => {
                Backoff::new(TOO_LARGE, TOO_LARGE).next_delay(chance).max(self.backoff.next_delay(chance))
            }
            End::Replaced(_) => Backoff::new(REPLACED, REPLACED).next_delay(chance),
        }
    }
}
