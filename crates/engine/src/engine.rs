//! The engine itself: events in, decisions out.

use std::time::Duration;

use bigfleet_types::{ClusterId, MachineId, MachineState, UnixNanos};

use crate::decision::{Action, ActionKind, Decisions};
use crate::demand::{Demand, Row};
use crate::event::Event;
use crate::explain::{Explainer, Explanation, Question};
use crate::fleet::Fleet;
use crate::fold::{Forms, Plan};
use crate::intern::{Set, Symbols};
use crate::matching::Matching;
use crate::members::Slot;
use crate::observe::{Effort, Phase};
use crate::pass::{Claims, Pass};
use crate::phase1::{self, Outcome};
use crate::phase2::{self, Taken};
use crate::phase3;
use crate::policy::Policy;
use crate::verdict::{self, Verdicts};

/// Owns the fleet and the demand of a shard.
#[derive(Debug)]
pub struct Engine {
    policy: Policy,
    symbols: Symbols,
    fleet: Fleet,
    demand: Demand,
    forms: Forms,
    matching: Matching,
    heard: Set<ClusterId>,
    next_deadline: Option<UnixNanos>,
    /// Of the last decision.
    claims: Claims,
    /// Machines were classed anew since the last decision.
    classed_early: bool,
    /// How many texts were alive after the last fresh start.
    live_symbols: usize,
    effort: Effort,
}

impl Engine {
    /// An engine without machines, demand or clusters that spoke.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            policy,
            symbols: Symbols::default(),
            fleet: Fleet::default(),
            demand: Demand::default(),
            forms: Forms::default(),
            matching: Matching::default(),
            heard: Set::default(),
            next_deadline: None,
            claims: Claims::default(),
            classed_early: false,
            live_symbols: 0,
            effort: Effort::default(),
        }
    }

    /// Takes one change. Every event is total: what it names need not be known before.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Machine { machine, facts } => self.fleet.upsert(&machine, &facts, &mut self.symbols),
            Event::Removed(id) => self.fleet.remove(&id),
            Event::Demand { cluster, rows, at } => {
                let (forms, symbols) = (&mut self.forms, &mut self.symbols);
                self.demand.replace(&cluster, rows, at, forms, symbols, &mut self.matching);
                // Classing half a million machines anew is better done before somebody waits for a decision, but
                // not once for every cluster that mentions a key of its own.
                if self.symbols.classes_stale && !std::mem::replace(&mut self.classed_early, true) {
                    self.start_afresh(false);
                    self.fleet.settle();
                }
            }
            Event::Heard(cluster) => {
                self.heard.insert(cluster);
            }
        }
    }

    /// Decides on all that was applied. The same content and the same `now` give the same answer, whatever the
    /// order of events; the only thing that a call leaves behind is since when each machine is excess.
    pub fn decide(&mut self, now: UnixNanos) -> Decisions {
        self.decide_observed(now, &mut |_| ())
    }

    /// [`Self::decide`], which calls `ended` whenever work of a phase ends: all that was done since the call before
    /// belongs to the phase named. A phase may end several times. For callers who measure; the answer is the same.
    pub fn decide_observed(&mut self, now: UnixNanos, ended: &mut impl FnMut(Phase)) -> Decisions {
        self.run(now, ended, None).0
    }

    /// [`Self::decide`] with the reasons behind all that is asked about. The decisions are the same. For people who
    /// ask: it takes time in proportion to the fleet for each Need and action in question.
    pub fn decide_explained(&mut self, now: UnixNanos, question: &Question) -> (Decisions, Explanation) {
        self.run(now, &mut |_| (), Some(Explainer::new(question)))
    }

    fn run(
        &mut self,
        now: UnixNanos,
        ended: &mut impl FnMut(Phase),
        mut explainer: Option<Explainer<'_>>,
    ) -> (Decisions, Explanation) {
        let plan = self.settle(ended);
        let heard = self.heard_clusters();
        ended(Phase::Other);
        let rows = plan.rows(&self.demand, &self.symbols);
        ended(Phase::Fold);
        let mut decisions = Decisions::default();
        let mut pass = Pass::new(&self.fleet, &rows, &self.symbols, &mut self.matching);
        let mut outcomes = phase1::run(&mut pass);
        ended(Phase::Phase1);
        if let Some(explainer) = &mut explainer {
            explainer.after_phase1(&pass);
        }
        let taken = phase2::run(&mut pass, &mut outcomes, &heard, &self.policy);
        ended(Phase::Phase2);
        let mut verdicts = Verdicts::default();
        for (row, outcome) in rows.iter().zip(&outcomes) {
            acquisitions(&pass, row, outcome, &mut decisions.actions);
            decisions.verdicts.push(verdicts.of(&mut pass, row, outcome));
        }
        for (row, outcome) in rows.iter().zip(&outcomes) {
            preemptions(&pass, row, outcome, &taken, &mut decisions.actions);
        }
        if let Some(explainer) = &mut explainer {
            let actions = &decisions.actions;
            explainer.after_phase2(&mut pass, &outcomes, actions, &heard, &self.policy);
        }
        decisions.shortfalls = verdict::shortfalls(&self.symbols, &rows, &outcomes);
        self.effort = Effort { needs: rows.len() as u64, machines: pass.looked_at() };
        self.claims = pass.into_claims();
        ended(Phase::Verdicts);

        let releases =
            phase3::run(&mut self.fleet, &self.symbols, &self.claims, &taken, &heard, &self.policy, now);
        self.effort.machines += releases.looked_at;
        let served = decisions.actions.len();
        decisions.actions.extend(releases.actions);
        self.next_deadline = releases.next_deadline;
        ended(Phase::Phase3);
        drop((rows, outcomes, taken));
        plan.end(&mut self.matching);
        ended(Phase::Other);
        let explanation = explainer
            .map(|explainer| explainer.after_phase3(&self.fleet, &decisions.actions, served, &self.policy));
        (decisions, explanation.unwrap_or_default())
    }

    /// How much the last decision looked at.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// The machines that some Need claimed in the last decision, sorted by id. To be asked for before anything else
    /// is applied.
    pub fn claimed(&self) -> impl Iterator<Item = MachineId> {
        let slots = self.fleet.ids.in_order().iter().filter(|slot| self.claims.has(**slot));
        slots.map(|slot| self.fleet.ids.id(*slot))
    }

    /// How many rows of demand there are, over all clusters.
    #[must_use]
    pub fn demand_rows(&self) -> usize {
        self.demand.len()
    }

    /// How many machines there are, withheld ones included.
    #[must_use]
    pub fn machines(&self) -> usize {
        self.fleet.len()
    }

    /// Whether the cluster has spoken, so that its excess machines may be reclaimed.
    #[must_use]
    pub fn heard(&self, cluster: &ClusterId) -> bool {
        self.heard.contains(cluster)
    }

    /// When [`Self::decide`] should run again even if nothing is applied: the earliest time at which a hold or the
    /// delay of a Reclaim ends, as the last decision saw it; never before `now`. `None`: nothing is waiting.
    #[must_use]
    pub fn next_deadline(&self, now: UnixNanos) -> Option<UnixNanos> {
        self.next_deadline.map(|deadline| deadline.max(now))
    }

    /// Brings every index up to date and folds the demand.
    fn settle(&mut self, ended: &mut impl FnMut(Phase)) -> Plan {
        if self.symbols.classes_stale || self.is_littered() || self.fleet.classes.mostly_empty() {
            self.start_afresh(false);
        }
        self.classed_early = false;
        let plan = self.plan(ended);
        if !plan.needs_hosts {
            return plan;
        }
        plan.end(&mut self.matching);
        self.start_afresh(true);
        self.plan(ended)
    }

    /// Whether most texts and places may be dead: there are far more than before, and as much has come and gone.
    fn is_littered(&self) -> bool {
        let more = (self.symbols.size() + self.fleet.places()).saturating_sub(self.live_symbols);
        // One machine or row that goes leaves a fingerprint, a group, a stamp and a place at most.
        let gone = 4 * (self.fleet.moves + self.demand.withdrawn);
        more > self.live_symbols + 4096 && gone > more / 2
    }

    fn plan(&mut self, ended: &mut impl FnMut(Phase)) -> Plan {
        self.fleet.settle();
        ended(Phase::Settle);
        let (forms, symbols) = (&mut self.forms, &mut self.symbols);
        let plan = Plan::of(&self.fleet, &self.demand, forms, symbols, &mut self.matching);
        ended(Phase::Fold);
        plan
    }

    /// Numbers all texts anew and classes all machines by the keys that requirements mention now; by host, too, if
    /// some gang wants one.
    fn start_afresh(&mut self, by_host: bool) {
        let mut symbols = Symbols::default();
        symbols.distinct_hosts = by_host;
        self.matching = Matching::default();
        self.forms = Forms::default();
        self.demand.recompile(&mut self.forms, &mut symbols, &mut self.matching);
        self.fleet.refile(&self.symbols, &mut symbols);
        symbols.classes_stale = false;
        self.live_symbols = symbols.size() + self.fleet.places();
        self.symbols = symbols;
    }

    /// By cluster: whether it has spoken.
    fn heard_clusters(&self) -> Vec<bool> {
        let mut heard = vec![false; self.symbols.cluster_count()];
        for cluster in self.heard.iter().filter_map(|id| self.symbols.known_cluster(id)) {
            heard[cluster.at()] = true;
        }
        heard
    }
}

/// The actions that carry out what a row acquired.
fn acquisitions(pass: &Pass<'_>, row: &Row, outcome: &Outcome, actions: &mut Vec<Action>) {
    let action = |slot: &Slot| {
        let kind = match pass.fleet.state(*slot) {
            MachineState::Idle => ActionKind::Bootstrap,
            _ => ActionKind::Provision,
        };
        Action {
            kind,
            machine: pass.fleet.ids.id(*slot),
            cluster: Some(pass.symbols.name(row.cluster).clone()),
            need: Some(row.need.clone()),
            need_key: Some(row.key(pass.symbols)),
            grace: Duration::ZERO,
            preemptor_priority: 0,
        }
    };
    actions.extend(outcome.acquired.iter().map(action));
}

/// The preemptions that a row ordered.
fn preemptions(pass: &Pass<'_>, row: &Row, outcome: &Outcome, taken: &Taken, actions: &mut Vec<Action>) {
    let preemptor = row.need.profile.priority();
    let action = |slot: &Slot| {
        Some(Action {
            kind: ActionKind::Preempt,
            machine: pass.fleet.ids.id(*slot),
            cluster: pass.fleet.cluster(*slot).map(|cluster| pass.symbols.name(cluster).clone()),
            need: Some(row.need.clone()),
            need_key: Some(row.key(pass.symbols)),
            grace: phase2::grace(preemptor, *taken.victims.get(slot)?),
            preemptor_priority: preemptor,
        })
    };
    actions.extend(outcome.victims.iter().filter_map(action));
}
