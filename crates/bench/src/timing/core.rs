//! A shard's control core, fed as its shell feeds it: bytes are decoded and taken through the gate, frames for
//! operators are encoded. Only the network is missing.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use bigfleet_engine::{Event, Policy};
use bigfleet_proto::frames::{self, OperatorFrame};
use bigfleet_proto::v1alpha1::operator_message::Payload;
use bigfleet_proto::v1alpha1::{ClusterCapacityNeeds, Machine, MachineList, OperatorMessage};
use bigfleet_shard::control::{Config, Control};
use bigfleet_shard::io::{CallId, Change, Ingest, Input, Known, Listing, Output, Published, SessionId};
use bigfleet_shard::metrics::Metrics;
use bigfleet_types::chance::Seeded;
use bigfleet_types::{ClusterId, Need};
use prometheus_client::registry::Registry;
use prost::Message as _;
use prost::bytes::Bytes;

use crate::sizing::Tally;
use crate::workload::{START, Workload};

/// A fleet and its demand, as they come from the network.
pub(super) struct Wire {
    /// The answer to a List.
    pub(super) list: Vec<u8>,
    /// One frame a cluster.
    pub(super) rollups: Vec<(ClusterId, Vec<u8>)>,
    pub(super) made: Tally,
}

impl Wire {
    /// What a workload begins with.
    pub(super) fn of(workload: &dyn Workload) -> Result<Self> {
        let (mut list, mut rollups) = (Vec::new(), Vec::new());
        let mut failed = None;
        let made = workload.fill(&mut |event| match event {
            Event::Machine { machine, .. } => {
                // The bytes of messages in a row are those of one message with all of their elements.
                let one = MachineList { machines: vec![Machine::from(&*machine)], ..MachineList::default() };
                if let Err(error) = one.encode(&mut list) {
                    failed = Some(error);
                }
            }
            Event::Demand { cluster, rows, .. } => {
                let frame = rollup(&cluster, &rows);
                rollups.push((cluster, frame));
            }
            Event::Heard(_) | Event::Removed(_) | Event::DemandChanged { .. } => {}
        })?;
        failed.map_or(Ok(Self { list, rollups, made }), |error| Err(error).context("cannot encode a machine"))
    }

    /// All bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.list.len() + self.rollups.iter().map(|(_, frame)| frame.len()).sum::<usize>()) as u64
    }
}

/// A cluster's roll-up as a frame.
pub(super) fn rollup(cluster: &ClusterId, rows: &[Need]) -> Vec<u8> {
    let needs = ClusterCapacityNeeds {
        cluster_id: cluster.to_string(),
        timestamp_unix_nanos: START.0,
        needs: rows.iter().map(Into::into).collect(),
    };
    OperatorMessage { payload: Some(Payload::Rollup(needs)) }.encode_to_vec()
}

/// The bytes of the roll-up in a frame.
pub(super) fn rollup_in(frame: &[u8]) -> Result<Bytes> {
    match OperatorFrame::decode(frame).context("a frame of the benchmark is none")?.payload {
        Some(frames::Payload::Rollup(rollup)) => Ok(rollup),
        other => anyhow::bail!("the benchmark wrote {other:?} instead of a roll-up"),
    }
}

/// A List past the gate.
pub(super) struct Answer {
    call: CallId,
    known: Box<Known>,
    pub(super) listing: Listing,
}

/// The core of one shard.
pub(super) struct Core {
    control: Control,
    /// What the task of each session remembers.
    ingests: BTreeMap<u64, Ingest>,
    /// A List that the core waits for.
    list: Option<(CallId, Box<Known>)>,
    published: Option<Arc<Published>>,
    /// Frames that went to operators.
    pub(super) frames: u64,
}

impl Core {
    /// One that has just started and asks for its first List.
    pub(super) fn new(policy: Policy) -> Self {
        let config = Config { policy, ..Config::default() };
        let metrics = Metrics::register(&mut Registry::default());
        let control = Control::new(config, Box::new(Seeded::new(1)), metrics);
        let mut core = Self { control, ingests: BTreeMap::new(), list: None, published: None, frames: 0 };
        core.control.poll(START);
        core.carry_out();
        core
    }

    /// Reads the List that the core waits for.
    pub(super) fn read_list(&mut self, bytes: &[u8]) -> Result<Answer> {
        let (call, mut known) = self.list.take().context("the core asked for no List")?;
        let listing = Listing::read(&mut known, bytes)?;
        ensure!(
            listing.changed.iter().all(|record| record.record.is_ok()),
            "the gate refuses records of the benchmark"
        );
        Ok(Answer { call, known, listing })
    }

    /// Takes a List over.
    pub(super) fn list(&mut self, answer: Answer) {
        let Answer { call, known, listing } = answer;
        self.control.handle(START, Input::Listed { call, known, result: Ok(listing) });
        self.carry_out();
    }

    /// Lets time pass until the core asks for its next List; a cycle may run.
    pub(super) fn wait_for_list(&mut self) -> Result<()> {
        let late = START.after(self.control.config().cycle_interval);
        self.control.poll(late);
        self.carry_out();
        ensure!(self.list.is_some(), "the core does not ask for a List after an interval");
        Ok(())
    }

    /// A cluster's operator says Hello.
    pub(super) fn hello(&mut self, session: u64, cluster: &ClusterId) {
        let session = SessionId(session);
        self.control.handle(START, Input::SessionOpened { session, cluster: cluster.clone() });
        self.carry_out();
    }

    /// Takes a cluster's demand through the gate, as the task of its session does.
    pub(super) fn accept(&mut self, session: u64, cluster: &ClusterId, message: &[u8]) -> Result<Change> {
        let ingest = self.ingests.entry(session).or_default();
        ingest.accept(cluster, message).context("the gate refuses the benchmark's roll-up")
    }

    /// What of a cluster's demand is not as it was.
    pub(super) fn rollup(&mut self, session: u64, rows: Change) {
        let rows = Ok(rows);
        let session = SessionId(session);
        self.control.handle(START, Input::Rollup { session, timestamp_unix_nanos: START.0, rows });
        self.carry_out();
    }

    /// Runs the cycle that is due.
    pub(super) fn cycle(&mut self) -> Result<Arc<Published>> {
        self.published = None;
        self.control.poll(START);
        self.carry_out();
        self.published.take().context("no cycle was due")
    }

    /// How many machines and rows the core holds.
    pub(super) fn holds(&self) -> (u64, u64) {
        (self.control.machines().count() as u64, self.control.metrics().demand_rows.get().unsigned_abs())
    }

    /// What the shell does with the core's outputs, but for the network.
    fn carry_out(&mut self) {
        for output in self.control.drain_outputs() {
            match output {
                Output::List { call, known } => self.list = Some((call, known)),
                Output::Send { message, .. } => {
                    black_box(message.encode_to_vec());
                    self.frames += 1;
                }
                Output::Publish(published) => self.published = Some(published),
                _ => {}
            }
        }
    }
}
