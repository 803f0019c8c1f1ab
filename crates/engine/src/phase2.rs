//! Phase 2: what Phase 1 left unmet preempts what matters less.
//!
//! First a Need counts on machines that drain already, then it picks victims. A plain Need takes what it gets, a gang
//! all or nothing.

mod again;
mod drains;
mod gang;
mod hunt;
mod score;
mod victims;

use crate::demand::Row;
use crate::intern::Set;
use crate::lanes::Lanes;
use crate::members::Slot;
use crate::pass::Pass;
use crate::phase1::Outcome;
use crate::policy::Policy;

pub(crate) use self::again::{Again, may_count_on, score_of};
pub(crate) use self::score::grace;
use self::victims::Victims;
pub(crate) use self::victims::effective_priority;

/// What the phase took out of the others' hands.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Machines that are preempted, with their effective priority.
    pub(crate) victims: crate::intern::Map<Slot, i32>,
    /// Machines kept for gangs that move.
    pub(crate) reserved: Set<Slot>,
}

impl Taken {
    pub(crate) fn is_empty(&self) -> bool {
        self.victims.is_empty() && self.reserved.is_empty()
    }

    pub(crate) fn has(&self, slot: Slot) -> bool {
        self.victims.contains_key(&slot) || self.reserved.contains(&slot)
    }
}

/// A group of victims in the order picked, and what of the deficit they leave.
struct Pick {
    slots: Vec<Slot>,
    left: Lanes,
}

/// Runs the phase. `unmet`: the positions of rows that lack something. `heard` is by cluster: it has spoken.
pub(crate) fn run(
    pass: &mut Pass<'_>,
    outcomes: &mut [Outcome],
    unmet: &[usize],
    heard: &[bool],
    policy: &Policy,
) -> Taken {
    let mut taken = Taken::default();
    let Some(highest) = unmet.iter().map(|at| pass.rows[*at].need.profile.priority()).max() else {
        return taken;
    };
    let mut victims = Victims::below(pass, highest, heard);
    pass.serve_nobody();
    for position in unmet {
        let (row, outcome) = (pass.rows[*position], &mut outcomes[*position]);
        pass.matching.look(row.profile, &pass.fleet.classes);
        let mut deficit = outcome.residual.clone();
        let drains = drains::count_on(pass, row, outcome, &mut deficit);
        if !drains.is_empty() {
            outcome.relief_mut().drains = drains;
        }
        if deficit.is_zero() {
            continue;
        }
        if outcome.choice.is_some() {
            gang::preempt(pass, row, outcome, deficit, &mut victims, &mut taken, policy);
        } else {
            let pick = victims.pick_plain(pass, row, outcome, deficit, &taken, policy);
            victims.take(pass, &pick.slots, &mut taken);
            let relief = outcome.relief_mut();
            relief.victims = pick.slots;
            relief.unresolved = (!pick.left.is_zero()).then_some(pick.left);
        }
    }
    pass.looked(victims.looked);
    taken
}

/// Whether a machine of the class matches and is as large as the largest pod.
fn suits(pass: &Pass<'_>, row: &Row, class: crate::class::ClassIx) -> bool {
    pass.matching.matches(row.profile, class) && pass.fleet.classes.capacity(class).covers(&row.min_unit)
}
