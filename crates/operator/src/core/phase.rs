//! From a machine's state to the phase of its UpcomingNode. States in between may have been dropped on the way, so
//! only what is stored and what is new count.

use bigfleet_types::MachineState;

use crate::io::Phase;

/// What a frame asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The object is to say this.
    Put(Phase),
    /// The machine is not, or no longer, this cluster's: there is to be no object.
    Release,
    /// Nothing: the machine does not concern this cluster yet.
    Ignore,
}

/// Whom a frame says the machine belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belongs {
    /// This cluster, by name.
    Us,
    /// It does not say; then it is taken to be ours.
    Unsaid,
    /// Another cluster.
    Another,
}

/// What is to become of the object with phase `stored` (`None`: there is no object) when its machine is in `state`.
#[must_use]
pub fn verdict(stored: Option<Phase>, state: MachineState, belongs: Belongs) -> Verdict {
    use MachineState as S;
    let bound = !matches!(stored, None | Some(Phase::Provisioning | Phase::Launched));
    if belongs == Belongs::Another {
        return Verdict::Release;
    }
    match state {
        S::Speculative | S::Idle if bound => Verdict::Release,
        S::Speculative | S::Creating if stored.is_some() || belongs == Belongs::Us => {
            Verdict::Put(Phase::Provisioning)
        }
        S::Speculative | S::Creating => Verdict::Ignore,
        S::Idle => Verdict::Put(Phase::Launched),
        S::Configuring => Verdict::Put(Phase::Registered),
        S::Configured => Verdict::Put(Phase::Ready),
        S::Draining => Verdict::Put(Phase::Draining),
        S::Deleting => Verdict::Release,
        S::Failed => Verdict::Put(Phase::Failed),
    }
}
