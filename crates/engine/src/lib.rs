//! The decision engine: which machine serves which cluster.
//!
//! [`Engine`] owns the fleet and the demand. [`Engine::apply`] takes every change of either, [`Engine::decide`]
//! answers with actions, claims, one verdict per Need and the deficits that remain. Both are pure: no I/O, no clock,
//! no randomness; what a caller applies and the time it hands in are all that a decision depends on, and neither the
//! order of arrival nor the number of restarts changes it.

mod ahead;
mod bits;
mod changes;
mod claims;
mod class;
mod content;
mod cost;
mod decision;
mod demand;
mod engine;
mod event;
mod explain;
mod fleet;
mod fold;
mod ids;
mod intern;
mod lanes;
mod ledger;
mod lines;
mod matching;
mod members;
mod observe;
mod pass;
mod phase1;
mod phase2;
mod phase3;
mod place;
mod policy;
mod shape;
mod verdict;

pub use content::{Content, Mark, Marks};
pub use decision::{
    Action, ActionKind, Candidate, Decisions, GangVerdict, Gangs, MatchingSupply, Preemption, SameVerdict,
    Shared, Shortfall, UnmetReason, Verdict,
};
pub use engine::Engine;
pub use event::{CreatedFor, Eligibility, Event, Facts, PreemptedFor, Purpose};
pub use explain::{
    ActionExplanation, Alternative, ClassExplanation, Explanation, Fate, NeedExplanation, Question, Rival,
    Rule, Shape, Victim, Why,
};
pub use fold::fold_key;
pub use matching::matches;
pub use observe::{Effort, Phase};
pub use policy::{Policy, VictimPolicy};
