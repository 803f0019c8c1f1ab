//! Any program as a back end: one JSON request on its standard input, one JSON answer on its standard output.
//!
//! The program is started anew for each piece of work, up to [`CONCURRENT`] at one time, and killed with its whole
//! process group when the work is given up. What it prints on standard error is for people: its last line becomes the
//! reason when it ends with a status other than 0. [`protocol`] has every field; [`schema`] is the same as JSON Schema.

pub mod protocol;

use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bigfleet_proto::v1alpha1 as pb;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::backend::{Backend, Created, Error, Operation};
use crate::blob::Blob;
use crate::instance::Instance;
use crate::kind::Kind;
use crate::program::{Program, Run, environment};
use crate::table::{Outcome, Work};
use protocol::{Answer, Described, Machine, Request, Task};

/// Programs that run at one time at most; further work waits, within its time-out.
pub const CONCURRENT: usize = 32;
/// Longest answer, in bytes.
const ANSWER: usize = 64 * 1024 * 1024;
/// The provider's name in hosts, where the program does not give one.
pub const PROVIDER: &str = "exec";
const WHAT: &str = "back end";

/// The JSON Schema of requests and answers.
#[must_use]
pub fn schema() -> serde_json::Value {
    schemars::schema_for!(protocol::Protocol).to_value()
}

/// What the program's latest description said beside its machines.
#[derive(Debug, Clone, Copy, Default)]
struct Abilities {
    can_delete: bool,
    confirms_ready: bool,
    resumes: bool,
}

/// The back end.
#[derive(Debug)]
pub struct Exec {
    program: Program,
    label: Option<String>,
    seed_count: u64,
    fake: bool,
    abilities: Mutex<Abilities>,
    slots: Semaphore,
}

impl Exec {
    /// A back end behind `program`. `label` is what hosts call their provider, if the program is not to say; `seed_count`
    /// and `fake` are passed on for programs that can pretend.
    #[must_use]
    pub fn new(program: Program, label: Option<String>, seed_count: u64, fake: bool) -> Self {
        Self {
            program,
            label,
            seed_count,
            fake,
            abilities: Mutex::default(),
            slots: Semaphore::new(CONCURRENT),
        }
    }

    fn abilities(&self) -> Abilities {
        *self.abilities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(PROVIDER)
    }

    async fn ask<T: serde::de::DeserializeOwned>(
        &self,
        request: &Request,
        mut environment: Vec<(&'static str, String)>,
    ) -> Result<T, Error> {
        let name = request.operation.name();
        environment.push(("BIGFLEET_SEED_COUNT", self.seed_count.to_string()));
        let mut input = Zeroizing::new(Vec::new());
        serde_json::to_writer(&mut *input, request)
            .map_err(|error| Error::new(format!("cannot write the request: {error}")))?;
        input.push(b'\n');
        // Closed by nobody: an error here cannot happen, and would fail the work visibly.
        let _slot = self.slots.acquire().await.map_err(|error| Error::new(error.to_string()))?;
        let run = Run { what: WHAT, environment, input: Some(&input), output: ANSWER };
        let ended = self.program.run(run).await?;
        // An answer that says why counts more than a status that does not.
        if let Ok(Answer { error: Some(reason), untouched, .. }) = serde_json::from_slice(&ended.output) {
            return Err(if untouched { Error::untouched(reason) } else { Error::new(reason) });
        }
        ended.check(WHAT, name)?;
        serde_json::from_slice(&ended.output).map_err(|error| {
            let text = String::from_utf8_lossy(&ended.output);
            let head: String = text.chars().take(200).collect();
            Error::new(format!("{WHAT} answered its {name} with no answer ({error}): {head:?}"))
        })
    }

    fn request(&self, operation: &Operation<'_>, task: Task, resumed: bool) -> Request {
        Request {
            version: protocol::VERSION,
            operation: task,
            operation_id: operation.operation_id.to_owned(),
            resumed,
            machine: Some(Machine::of(operation.machine)),
            ..self.empty()
        }
    }

    fn empty(&self) -> Request {
        Request {
            version: protocol::VERSION,
            operation: Task::Describe,
            operation_id: String::new(),
            resumed: false,
            machine: None,
            grace_seconds: None,
            blob_base64: None,
            seed_count: self.seed_count,
            fake: self.fake,
        }
    }

    async fn make(&self, operation: Operation<'_>, resumed: bool) -> Result<Created, Error> {
        let request = self.request(&operation, Task::Create, resumed);
        let answer: Answer = self.ask(&request, environment("create", &operation)).await?;
        let host = answer.host.ok_or_else(|| Error::new("the back end's answer to create has no host"))?;
        let (resources, allocatable) = (answer.resources, answer.allocatable);
        Ok(Created { host: host.named(self.label()), resources, allocatable })
    }

    async fn leave(&self, operation: Operation<'_>, resumed: bool) -> Result<(), Error> {
        let mut request = self.request(&operation, Task::Drain, resumed);
        request.grace_seconds = Some(operation.grace_seconds);
        let mut environment = environment("drain", &operation);
        environment.push(("BIGFLEET_GRACE_SECONDS", operation.grace_seconds.to_string()));
        self.ask::<Answer>(&request, environment).await.map(|_| ())
    }

    async fn give_back(&self, operation: Operation<'_>, resumed: bool) -> Result<(), Error> {
        let request = self.request(&operation, Task::Delete, resumed);
        self.ask::<Answer>(&request, environment("delete", &operation)).await.map(|_| ())
    }
}

#[async_trait]
impl Backend for Exec {
    async fn describe(&self) -> Result<Vec<Instance>, Error> {
        let environment = vec![("BIGFLEET_OPERATION", Task::Describe.name().to_owned())];
        let described: Described = self.ask(&self.empty(), environment).await?;
        let Described { machines, can_delete, confirms_ready, resumes } = described;
        *self.abilities.lock().unwrap_or_else(PoisonError::into_inner) =
            Abilities { can_delete, confirms_ready, resumes };
        Ok(machines.into_iter().map(|machine| machine.instance(self.label())).collect())
    }

    async fn create(&self, operation: Operation<'_>) -> Result<Created, Error> {
        self.make(operation, false).await
    }

    async fn configure(&self, operation: Operation<'_>, blob: &Blob) -> Result<(), Error> {
        let mut request = self.request(&operation, Task::Configure, false);
        request.blob_base64 = Some(Zeroizing::new(STANDARD.encode(blob.expose())));
        self.ask::<Answer>(&request, environment("configure", &operation)).await.map(|_| ())
    }

    async fn confirm_node_ready(&self, operation: Operation<'_>) -> Result<(), Error> {
        if !self.abilities().confirms_ready {
            return Ok(());
        }
        let request = self.request(&operation, Task::ConfirmReady, false);
        self.ask::<Answer>(&request, environment("confirm_ready", &operation)).await.map(|_| ())
    }

    async fn drain(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.leave(operation, false).await
    }

    fn can_delete(&self, _machine: &pb::Machine) -> bool {
        self.abilities().can_delete
    }

    async fn delete(&self, operation: Operation<'_>) -> Result<(), Error> {
        self.give_back(operation, false).await
    }

    async fn resume(&self, work: &Work) -> Result<Outcome, Error> {
        if !self.abilities().resumes {
            return Err(Error::new(format!("{} was interrupted by a restart of the provider", work.kind)));
        }
        let operation = work.operation();
        match work.kind {
            Kind::Create => Ok(self.make(operation, true).await?.into()),
            Kind::Drain => self.leave(operation, true).await.map(|()| Outcome::Drained),
            Kind::Delete => self.give_back(operation, true).await.map(|()| Outcome::Deleted),
            Kind::Configure => Err(Error::new("a Configure cannot be resumed")),
        }
    }
}
