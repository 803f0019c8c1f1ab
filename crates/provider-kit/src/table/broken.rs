//! What the table does when a rule is broken on purpose: see [`crate::defects`].

use bigfleet_proto::v1alpha1 as pb;
use bigfleet_types::MachineState;

use super::{Call, Change, Checks, Command, Mark, Plan, Refusal, Table, Token};
use crate::defects::Defect;
use crate::kind::Kind;

impl Table {
    /// As the sound plan, but for one thing.
    pub(super) fn plan_broken(&mut self, defect: Defect, call: &Call, checks: &dyn Checks) -> Plan {
        let id = &call.machine;
        let refused = |refusal| Plan { answer: Err(refusal), change: None, work: None };
        match (defect, &call.command) {
            (Defect::LookupBeforeFence, _) if !self.records.contains_key(id) => {
                return refused(Refusal::Unknown(id.clone()));
            }
            (Defect::MarkPerShard, _) if !call.token.is_unfenced() => {
                return self.plan_with_one_mark(call, checks);
            }
            (Defect::NewEpochNeedsSequence, _)
                if call.token.sequence == 0 && self.marks.has(&call.token.shard_id, id.as_str()) =>
            {
                return refused(fenced(&call.token));
            }
            (Defect::RepeatBeforeFence, Command::Configure(_)) => {
                let unfenced = Call { token: Token::default(), ..call.clone() };
                let plan = self.plan_sound(&unfenced, checks);
                if plan.answer.is_ok() && plan.work.is_none() {
                    return plan;
                }
            }
            (Defect::FailedAccepts, command) => {
                let failed = self.records.get(id).is_some_and(|r| r.state == MachineState::Failed);
                let plan = self.plan_sound(call, checks);
                if failed && matches!(plan.answer, Err(Refusal::Position { .. })) {
                    return self.start(id, command, plan.change.and_then(|change| change.mark));
                }
                return plan;
            }
            (Defect::EmptyValuesDropped, Command::Configure(binding)) => {
                let mut binding = binding.clone();
                binding.metadata.retain(|_, value| !value.is_empty());
                let call = Call { command: Command::Configure(binding), ..call.clone() };
                return self.plan_sound(&call, checks);
            }
            (Defect::MetadataShared, Command::Configure(binding)) => {
                self.latest_metadata.clone_from(&binding.metadata);
            }
            _ => {}
        }
        let mut plan = self.plan_sound(call, checks);
        match (defect, &mut plan.answer) {
            (Defect::RepeatsMintOperations, Ok(ack))
                if plan.work.is_none() && Kind::under_way(self.records[id].state).is_none() =>
            {
                ack.operation_id = self.next_operation(call.command.kind(), id);
            }
            (Defect::MarkMovesOnSuccess, Err(_)) => plan.change = None,
            _ => {}
        }
        plan
    }

    fn plan_with_one_mark(&mut self, call: &Call, checks: &dyn Checks) -> Plan {
        let Token { shard_id, epoch, sequence } = call.token.clone();
        let mark = Mark { shard_id, machine_id: String::new(), epoch, sequence };
        if let Err(refusal) = self.fence(&mark) {
            return Plan { answer: Err(refusal), change: None, work: None };
        }
        let unfenced = Call { token: Token::default(), ..call.clone() };
        let mut plan = self.plan_sound(&unfenced, checks);
        plan.change = Some(Change { mark: Some(mark), ..plan.change.unwrap_or_default() });
        plan
    }

    /// The id that a Create gets when it began before another one that is under way.
    pub(crate) fn mint_another(&mut self, call: &Call, plan: &mut Plan) {
        if let (Ok(ack), None) = (&mut plan.answer, &plan.work) {
            ack.operation_id = self.next_operation(call.command.kind(), &call.machine);
        }
    }

    /// What is read back of a stored change.
    pub(crate) fn read_back(&self, mut change: Change) -> Change {
        match self.switch.on() {
            Some(Defect::MarksLostOverRestart) => change.mark = None,
            Some(Defect::OperationsReusedOverRestart) => change.operations = 0,
            _ => {}
        }
        change
    }

    /// A machine on its way out.
    pub(crate) fn spoil(&self, machine: &mut pb::Machine) {
        match self.switch.on() {
            Some(Defect::MetadataShared) if machine.state() == pb::MachineState::Configured => {
                machine.shard_metadata.clone_from(&self.latest_metadata);
            }
            Some(Defect::SpotNeverInterrupted) if machine.capacity_type() == pb::CapacityType::Spot => {
                machine.interruption_probability = 0.0;
            }
            Some(Defect::SlotsHaveHosts) if machine.state() == pb::MachineState::Speculative => {
                machine.host = Some(pb::HostRef { provider: "broken".into(), r#ref: machine.id.clone() });
            }
            _ => {}
        }
    }
}

fn fenced(token: &Token) -> Refusal {
    Refusal::Fenced {
        shard: token.shard_id.clone(),
        epoch: token.epoch,
        sequence: token.sequence,
        mark_epoch: token.epoch,
        mark_sequence: token.sequence,
    }
}
