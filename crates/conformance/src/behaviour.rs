//! What a behaviour is: an id that never changes its meaning, the clause of the contract that it watches, and the
//! probe that watches it.

use std::fmt;
use std::str::FromStr;

use futures::future::BoxFuture;
use serde::Serialize;

use crate::check::Check;
use crate::context::Context;

/// What an author claims for a provider. Each profile requires behaviours of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// Every provider.
    Core,
    /// Machines can be given back: Delete works.
    Cloud,
    /// Some machines are SPOT.
    Spot,
    /// Machines are owned: Delete is unimplemented.
    BareMetal,
    /// The provider breaks on demand, so that its handling of failures can be seen.
    Fault,
    /// What was acknowledged survives SIGKILL.
    Durable,
    /// It holds up with thousands of machines.
    Scale,
}

impl Profile {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Core, Self::Cloud, Self::Spot, Self::BareMetal, Self::Fault, Self::Durable, Self::Scale];

    /// Its name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Core => "core",
            Self::Cloud => "cloud",
            Self::Spot => "spot",
            Self::BareMetal => "bare-metal",
            Self::Fault => "fault",
            Self::Durable => "durable",
            Self::Scale => "scale",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A word that is no profile.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no profile; there are core, cloud, spot, bare-metal, fault, durable and scale")]
pub struct UnknownProfile(String);

impl FromStr for Profile {
    type Err = UnknownProfile;

    fn from_str(text: &str) -> Result<Self, UnknownProfile> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| UnknownProfile(text.to_owned()))
    }
}

/// Where a behaviour's id comes from, and whether it counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Series {
    /// The contract's first tests, by name.
    Baseline,
    /// The 93 that extend them, B101 to B1205.
    Extension,
    /// Ours beyond both, N-ids. They inform; they decide no verdict.
    Ours,
}

/// Which process a behaviour runs against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Lane {
    /// A plain provider.
    Core,
    /// One that breaks on demand, with a transition time-out of 2 s.
    Fault,
    /// One that is killed and started again on the same state.
    Durable,
    /// One with thousands of machines.
    Scale,
}

/// An optional feature, found by a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Feature {
    /// Delete is implemented.
    Delete,
    /// List gives a revision that moves, and answers what changed since.
    Revision,
}

impl Feature {
    /// In a sentence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Delete => "Delete",
            Self::Revision => "since_revision",
        }
    }
}

/// The probe of a behaviour.
pub(crate) type Probe = for<'a> fn(&'a Context) -> BoxFuture<'a, Check>;

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Behaviour {
    /// Its id or name. Never reused, never given another meaning.
    pub id: &'static str,
    /// Where the id comes from.
    pub series: Series,
    /// The process it runs against.
    pub lane: Lane,
    /// The profiles that require it; one claimed profile is enough.
    pub profiles: &'static [Profile],
    /// A feature without which there is nothing to see: when a probe finds it absent, the behaviour does not apply.
    pub needs: Option<Feature>,
    /// What must hold, in a sentence.
    pub clause: &'static str,
    /// What authors usually did when it does not hold, and what mends it.
    pub mend: &'static str,
    pub(crate) probe: Probe,
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Behaviour").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Rows of a table: every behaviour on lines of its own, with the function that watches it.
macro_rules! behaviours {
    ($series:ident, $lane:ident: $($id:literal [$($profile:ident)+] $(needs $feature:ident)? => $probe:path;
        $clause:literal $mend:literal)+) => {
        &[$($crate::behaviour::Behaviour {
            id: $id,
            series: $crate::behaviour::Series::$series,
            lane: $crate::behaviour::Lane::$lane,
            profiles: &[$($crate::behaviour::Profile::$profile),+],
            needs: behaviours!(@feature $($feature)?),
            clause: $clause,
            mend: $mend,
            probe: |context| Box::pin($probe(context)),
        }),+]
    };
    (@feature) => { None };
    (@feature $feature:ident) => { Some($crate::behaviour::Feature::$feature) };
}
pub(crate) use behaviours;

/// Ids chosen by `--only`: words separated by commas, each an id in which `*` stands for anything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Only(Vec<String>);

impl Only {
    /// Reads the words. Empty words are left out.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect())
    }

    /// Whether an id is chosen.
    #[must_use]
    pub fn takes(&self, id: &str) -> bool {
        self.0.iter().any(|pattern| matches(pattern, id))
    }
}

impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(head) else { return false };
    (0..=text.len())
        .filter(|at| text.is_char_boundary(*at))
        .any(|at| text.get(at..).is_some_and(|tail| matches(rest, tail)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_takes_words_with_stars() {
        let only = Only::new("B3*, FullLifecycle,B1*5");
        for (id, taken) in [
            ("B301", true),
            ("B312", true),
            ("B1205", true),
            ("B105", true),
            ("B1201", false),
            ("FullLifecycle", true),
            ("Full", false),
        ] {
            assert_eq!(only.takes(id), taken, "{id}");
        }
        assert!(!Only::new("").takes("B101"));
    }
}
