//! The engine itself: events in, decisions out.

use std::sync::Arc;
use std::time::Duration;

use bigfleet_types::{ClusterId, MachineId, MachineState, UnixNanos};

use crate::ahead;
use crate::decision::{Action, ActionKind, Decisions, Shared, Shortfall};
use crate::demand::{Demand, Row};
use crate::event::Event;
use crate::explain::{Explainer, Explanation, Question};
use crate::fleet::Fleet;
use crate::fold::Forms;
use crate::intern::{Set, Symbols};
use crate::ledger::{Ledger, Stirred};
use crate::matching::Matching;
use crate::members::Slot;
use crate::observe::{Effort, Phase};
use crate::pass::Pass;
use crate::phase1::{self, Found, Outcome};
use crate::phase2::{self, Taken};
use crate::phase3;
use crate::policy::Policy;
use crate::verdict::{self, Judge};

/// Owns the fleet and the demand of a shard.
#[derive(Debug)]
pub struct Engine {
    pub(crate) policy: Policy,
    pub(crate) symbols: Symbols,
    pub(crate) fleet: Fleet,
    pub(crate) demand: Demand,
    forms: Forms,
    matching: Matching,
    pub(crate) heard: Set<ClusterId>,
    /// The same by number, as of the last decision; empty when it has to be found again.
    heard_by: Vec<bool>,
    pub(crate) ledger: Ledger,
    last: Last,
    /// Machines were classed anew since the last decision.
    classed_early: bool,
    /// How many texts and places there were in the first decision after the last fresh start.
    live_symbols: Option<usize>,
    effort: Effort,
}

/// The last answer, but for the verdicts.
#[derive(Debug, Default)]
struct Last {
    actions: Shared<Action>,
    /// How many of the first are of Phases 1 and 2. The others are of Phase 3, as of the time that follows.
    served: usize,
    shortfalls: Shared<Shortfall>,
    at: Option<UnixNanos>,
    next_deadline: Option<UnixNanos>,
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
            heard_by: Vec::new(),
            ledger: Ledger::default(),
            last: Last::default(),
            classed_early: false,
            live_symbols: None,
            effort: Effort::default(),
        }
    }

    /// Takes one change. Every event is total: what it names need not be known before.
    pub fn apply(&mut self, event: Event) {
        self.ledger.discard();
        match event {
            Event::Machine { machine, facts } => self.fleet.upsert(&machine, &facts, &mut self.symbols),
            Event::Removed(id) => self.fleet.remove(&id),
            Event::Demand { cluster, rows, at } => {
                let tables = (&mut self.forms, &mut self.symbols, &mut self.matching);
                let changed = self.demand.replace(&cluster, rows, at, tables);
                self.demand_applied(&cluster, changed);
            }
            Event::DemandChanged { cluster, changed, removed, at } => {
                let tables = (&mut self.forms, &mut self.symbols, &mut self.matching);
                let changed = self.demand.change(&cluster, changed, &removed, at, tables);
                self.demand_applied(&cluster, changed);
            }
            Event::Heard(cluster) => {
                let known = self.symbols.known_cluster(&cluster);
                if self.heard.insert(cluster)
                    && let Some(known) = known
                {
                    self.heard_by.clear();
                    self.fleet.changes.cluster(known);
                }
            }
        }
    }

    fn demand_applied(&mut self, cluster: &ClusterId, changed: bool) {
        if changed && let Some(cluster) = self.symbols.known_cluster(cluster) {
            self.fleet.changes.demand(cluster);
        }
        // Classing half a million machines anew is better done before somebody waits for a decision, but not once for
        // every cluster that mentions a key of its own.
        if self.symbols.classes_stale && !std::mem::replace(&mut self.classed_early, true) {
            self.start_afresh(false);
            self.fleet.settle();
            self.matching.look_for_all(&self.fleet.classes);
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

    /// [`Self::decide`] without regard to what was found before: the definition of all decisions. It leaves behind what
    /// any other does.
    pub fn decide_afresh(&mut self, now: UnixNanos) -> Decisions {
        self.forget();
        self.decide(now)
    }

    /// Forgets what was found before, so that the next decision looks at everything, as [`Self::decide_afresh`] does.
    pub fn forget(&mut self) {
        self.fleet.changes.all();
    }

    fn run(
        &mut self,
        now: UnixNanos,
        ended: &mut impl FnMut(Phase),
        mut explainer: Option<Explainer<'_>>,
    ) -> (Decisions, Explanation) {
        if explainer.is_some() {
            self.fleet.changes.all();
        }
        if self.symbols.classes_stale || self.is_littered() || self.fleet.classes.mostly_empty() {
            self.start_afresh(false);
        }
        self.classed_early = false;
        if !self.fleet.changes.any {
            self.effort = Effort::default();
            let decisions = self.repeat(now, ended);
            return (decisions, Explanation::default());
        }
        let stirred = self.settle(ended);
        self.live_symbols.get_or_insert(self.symbols.size() + self.fleet.places());
        self.hear();
        let Self { fleet, demand, symbols, matching, ledger, policy, heard_by, .. } = self;
        let (turns, rest) = ledger.turns(&stirred, fleet, demand, symbols, matching);
        ended(Phase::Fold);
        let claims = std::mem::take(&mut ledger.claims);
        let lookout = std::mem::take(&mut ledger.lookout);
        let mut pass = Pass::new(fleet, demand, rest, symbols, matching, claims, lookout);
        let Found { turns, mut outcomes, acquirers, unmet } = phase1::run(&mut pass, turns);
        ledger.rested(std::mem::take(&mut pass.rest), &turns);
        for at in &acquirers {
            ledger.acquired(fleet, &turns[*at].acquired, &outcomes[*at].acquired);
        }
        let mut listeners = ledger.listeners(fleet, demand, pass.matching);
        if !listeners.is_empty() {
            let acquisition = |at: &usize| (turns[*at].ix, turns[*at].row, outcomes[*at].acquired.clone());
            let acquiring = acquirers.iter().filter(|at| !outcomes[**at].acquired.is_empty());
            let acquisitions: Vec<_> = acquiring.map(acquisition).collect();
            phase1::retell(&mut pass, &acquisitions, &mut listeners);
        }
        let told = ledger.told(listeners);
        ended(Phase::Phase1);
        if let Some(explainer) = &mut explainer {
            explainer.after_phase1(&pass, turns.iter().map(|turn| turn.ix).collect());
        }
        let taken = phase2::run(&mut pass, &mut outcomes, &unmet, heard_by, policy);
        ended(Phase::Phase2);
        let mut actions = Vec::new();
        for at in &acquirers {
            acquisitions(&pass, turns[*at].row, &outcomes[*at], &mut actions);
        }
        for at in &unmet {
            preemptions(&pass, turns[*at].row, &outcomes[*at], &taken, &mut actions);
        }
        if let Some(explainer) = &mut explainer {
            explainer.after_phase2(&mut pass, &outcomes, &actions, heard_by, policy);
        }
        let shortfalls =
            verdict::shortfalls(symbols, unmet.iter().map(|at| (turns[*at].row, &outcomes[*at])));
        self.effort = Effort { needs: turns.len() as u64, machines: pass.looked_at() };
        let had = turns.into_iter().zip(outcomes).map(|(turn, outcome)| (turn.seat, turn.row, outcome));
        let mut judge = Judge::default();
        let found = (ahead::NEAR..).zip(had.chain(told)).map(|(next, (seat, row, outcome))| {
            if let Some(next) = pass.rows.get(next) {
                ahead::fetch_count(&next.need);
            }
            let verdict = judge.of(&mut pass, row, &outcome);
            (seat, row, outcome, verdict)
        });
        ledger.record(found, symbols);
        ledger.refresh(demand);
        (ledger.claims, ledger.lookout) = pass.into_parts();
        ledger.lookout.tidy();
        ledger.taken = taken;
        ended(Phase::Verdicts);

        self.effort.machines += ledger.find_excess(&stirred, fleet, heard_by, now);
        let served = actions.len();
        let (actions, shortfalls) = (actions.into(), shortfalls.into());
        self.last = Last { actions, served, shortfalls, ..Last::default() };
        let decisions = self.repeat(now, ended);
        let explanation = explainer
            .map(|explainer| explainer.after_phase3(&self.fleet, &decisions.actions, served, &self.policy));
        (decisions, explanation.unwrap_or_default())
    }

    /// Phase 3, and the answer of the phases before as it was found last.
    fn repeat(&mut self, now: UnixNanos, ended: &mut impl FnMut(Phase)) -> Decisions {
        let last = &mut self.last;
        let is_same = last.at.is_some_and(|at| at <= now) && last.next_deadline.is_none_or(|due| now < due);
        if !is_same {
            let ledger = &self.ledger;
            let releases = phase3::run(
                &mut self.fleet,
                &self.symbols,
                &ledger.claims,
                &ledger.taken,
                ledger.excess(),
                &ledger.holds,
                &self.policy,
                now,
            );
            self.effort.machines += releases.looked_at;
            last.at = Some(now);
            last.next_deadline = releases.next_deadline;
            let all = Arc::make_mut(&mut last.actions.0);
            all.truncate(last.served);
            all.extend(releases.actions);
        }
        ended(Phase::Phase3);
        let (actions, shortfalls) = (last.actions.clone(), last.shortfalls.clone());
        Decisions { actions, verdicts: self.ledger.verdicts.clone(), shortfalls }
    }

    /// How much the last decision looked at.
    #[must_use]
    pub fn effort(&self) -> Effort {
        self.effort
    }

    /// The machines that some Need claimed in the last decision, sorted by id. To be asked for before anything else
    /// is applied.
    pub fn claimed(&self) -> impl Iterator<Item = MachineId> {
        let slots = self.fleet.ids.in_order().iter().filter(|slot| self.ledger.claims.has(**slot));
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
        self.last.next_deadline.map(|deadline| deadline.max(now))
    }

    /// Brings every index up to date and folds the demand that changed.
    fn settle(&mut self, ended: &mut impl FnMut(Phase)) -> Stirred {
        loop {
            self.fleet.settle();
            self.symbols.settle();
            ended(Phase::Settle);
            let Self { fleet, demand, forms, symbols, matching, ledger, policy, .. } = self;
            let mut stirred = ledger.open(fleet, demand, symbols, matching, policy);
            if ledger.fold(&mut stirred, fleet, demand, forms, symbols, matching) {
                ended(Phase::Fold);
                return stirred;
            }
            self.start_afresh(true);
        }
    }

    /// Whether most texts and places may be dead: there are far more than before, and as much has come and gone.
    fn is_littered(&self) -> bool {
        let Some(live) = self.live_symbols else { return false };
        let more = (self.symbols.size() + self.fleet.places()).saturating_sub(live);
        // One machine or row that goes leaves a fingerprint, a group, a stamp and a place at most.
        let gone = 4 * (self.fleet.moves + self.demand.withdrawn);
        more > live + 4096 && gone > more / 2
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
        self.live_symbols = None;
        self.symbols = symbols;
        self.heard_by.clear();
        self.fleet.changes.all();
    }

    /// Brings up to date which cluster has spoken.
    fn hear(&mut self) {
        if self.heard_by.len() != self.symbols.cluster_count() {
            self.heard_by.clear();
            self.heard_by.resize(self.symbols.cluster_count(), false);
            for cluster in self.heard.iter().filter_map(|id| self.symbols.known_cluster(id)) {
                self.heard_by[cluster.at()] = true;
            }
        }
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
    actions.extend(outcome.victims().iter().filter_map(action));
}
