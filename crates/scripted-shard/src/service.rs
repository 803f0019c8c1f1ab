//! The service: what a real shard would do by itself, and what the script says beside it.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use bigfleet_proto::v1alpha1::operator_message::Payload as Said;
use bigfleet_proto::v1alpha1::shard_message::Payload;
use bigfleet_proto::v1alpha1::shard_server::Shard;
use bigfleet_proto::v1alpha1::{
    Acknowledgement, NodeStateUpdate, OperatorMessage, ReclaimInstruction, Resources, ShardMessage,
};
use futures::Stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::{Line, Machine};

type Answer = Result<ShardMessage, Status>;

/// The machines of the script, and the session that is on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Script(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    machines: BTreeMap<String, Machine>,
    session: Option<mpsc::Sender<Answer>>,
}

impl Script {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does one line.
    pub(crate) async fn act(&self, line: Line) -> Result<()> {
        let payload = match line {
            Line::Machine(machine) => {
                let update = update(&machine)?;
                self.with(|state| state.machines.insert(machine.id.clone(), machine));
                update
            }
            Line::Forget(id) => {
                self.with(|state| state.machines.remove(&id));
                return Ok(());
            }
            Line::Reclaim(reclaim) => Payload::ReclaimInstruction(ReclaimInstruction {
                instruction_id: reclaim.id,
                nodes: reclaim.machines.clone(),
                grace_period_seconds: reclaim.grace_seconds,
                preemptor_priority: 0,
                machine_ids: reclaim.machines,
            }),
        };
        let session = self.with(|state| state.session.clone());
        match session {
            // One that has gone gets everything in its next replay.
            Some(session) => drop(session.send(answer(payload)).await),
            None => print(&json!({"unheard": true})),
        }
        Ok(())
    }

    async fn serve(
        self,
        mut frames: Streaming<OperatorMessage>,
        answers: mpsc::Sender<Answer>,
    ) -> Result<()> {
        while let Some(frame) = frames.message().await? {
            match frame.payload.context("a frame without payload")? {
                Said::Hello(hello) => {
                    print(&json!({"hello": hello.cluster_id}));
                    answers.send(answer(ack("hello", 0))).await?;
                    let machines: Vec<Machine> =
                        self.with(|state| state.machines.values().cloned().collect());
                    for machine in &machines {
                        answers.send(answer(update(machine)?)).await?;
                    }
                    answers.send(answer(ack("resync", 0))).await?;
                    self.with(|state| state.session = Some(answers.clone()));
                }
                Said::Rollup(rollup) => {
                    let sums: Vec<_> = rollup.needs.iter().map(|need| &need.aggregate_resources).collect();
                    print(&json!({"rollup": {"needs": rollup.needs.len(), "sums": sums}}));
                    answers.send(answer(ack("rollup", rollup.timestamp_unix_nanos))).await?;
                }
                Said::ReclaimAck(ack) => {
                    print(&json!({"ack": {"id": ack.instruction_id, "nodes": ack.nodes_started}}));
                }
                Said::BootstrapResponse(response) => print(&json!({"bootstrap": {"error": response.error}})),
                Said::NodeObservation(seen) => {
                    print(&json!({"node": {"machine": seen.machine_id, "ready": seen.ready}}));
                }
            }
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl Shard for Script {
    type SessionStream = Pin<Box<dyn Stream<Item = Answer> + Send>>;

    async fn session(
        &self,
        request: Request<Streaming<OperatorMessage>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (answers, stream) = mpsc::channel(256);
        let (script, frames) = (self.clone(), request.into_inner());
        tokio::spawn(async move {
            let end = script.serve(frames, answers).await;
            print(&json!({"closed": end.err().map(|error| error.to_string())}));
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}

fn answer(payload: Payload) -> Answer {
    Ok(ShardMessage { payload: Some(payload) })
}

fn ack(echo: &str, rollup: i64) -> Payload {
    Payload::Ack(Acknowledgement {
        echo: echo.to_owned(),
        shard_epoch: 1,
        rollup_timestamp_unix_nanos: rollup,
        ..Acknowledgement::default()
    })
}

fn update(machine: &Machine) -> Result<Payload> {
    Ok(Payload::NodeStateUpdate(NodeStateUpdate {
        supersedes_key: format!("node:{}", machine.id),
        machine_id: machine.id.clone(),
        cluster_id: machine.cluster.clone(),
        state: machine.number()?,
        provider_id: machine.provider_id.clone(),
        resources: Some(Resources { resources: [("cpu".to_owned(), "8".to_owned())].into() }),
        ..NodeStateUpdate::default()
    }))
}

fn print(line: &Value) {
    println!("{line}");
}
