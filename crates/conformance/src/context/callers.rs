//! Who calls. On plaintext everybody is one caller; under TLS a shard id needs a certificate of its own, and a call
//! without a token is made as a shard that nobody else speaks as at the time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bigfleet_net::{channel, limits};
use bigfleet_proto::v1alpha1::capacity_provider_client::CapacityProviderClient;
use tonic::Status;
use tonic::transport::Channel;

use super::{Context, Token, held};
use crate::authority::Authority;
use crate::check::{Check, Stop};

pub(super) type Client = CapacityProviderClient<Channel>;

/// The shard id with which the suite reads.
const READER: &str = "conformance-reader";

/// A shard id for calls without a token, one call at a time.
#[derive(Debug)]
pub(super) struct Lane {
    shard: String,
    next: i64,
}

/// Clients under TLS, by address and shard id, and the lanes that are free.
#[derive(Debug, Default)]
pub(super) struct Callers {
    clients: Mutex<BTreeMap<(String, String), Client>>,
    lanes: Mutex<Vec<Lane>>,
}

/// Who makes one call, and with which token.
pub(super) struct Caller {
    pub(super) grpc: Client,
    pub(super) token: Token,
    lane: Option<Lane>,
}

/// A channel to `addr`; under TLS as `shard`.
pub(super) fn open(addr: &str, shard: &str, authority: Option<&Authority>) -> Check<Channel> {
    let unseen = |error: &dyn std::fmt::Display| Stop::Unseen(error.to_string());
    let tls = authority.map(|authority| authority.shard(shard)).transpose().map_err(|e| unseen(&e))?;
    let options = channel::Options { tls, ..channel::Options::default() };
    channel::connect_lazy(addr, &options).map_err(|e| unseen(&e))
}

pub(super) fn client(channel: Channel) -> Client {
    CapacityProviderClient::new(channel)
        .max_decoding_message_size(limits::LIST_BYTES)
        .max_encoding_message_size(limits::LIST_BYTES)
}

/// The client with which everything is read, and on plaintext everything done.
pub(super) fn reader(addr: &str, authority: Option<&Authority>) -> Check<Client> {
    open(addr, READER, authority).map(client)
}

impl Context {
    /// Whether callers have certificates.
    pub(crate) fn secured(&self) -> bool {
        self.authority.is_some()
    }

    /// A bare connection to the same provider, for services beside its own.
    pub(crate) fn channel(&self) -> Check<Channel> {
        open(&self.addr, READER, self.authority.as_deref())
    }

    /// The client of a shard.
    pub(super) fn client_of(&self, shard: &str) -> Result<Client, Status> {
        let Some(authority) = &self.authority else { return Ok(self.grpc.clone()) };
        let key = (self.addr.clone(), shard.to_owned());
        if let Some(known) = held(&self.run.callers.clients).get(&key) {
            return Ok(known.clone());
        }
        let made = open(&self.addr, shard, Some(authority)).map(client).map_err(|stop| match stop {
            Stop::Unseen(why) | Stop::Broken(why) | Stop::NotApplicable(why) => Status::internal(why),
        })?;
        held(&self.run.callers.clients).insert(key, made.clone());
        Ok(made)
    }

    /// Who makes a call with `token`. A call that is given up keeps its lane: what becomes of it nobody knows.
    pub(super) fn caller(&self, token: &Token) -> Result<Caller, Status> {
        if !self.secured() {
            return Ok(Caller { grpc: self.grpc.clone(), token: token.clone(), lane: None });
        }
        if *token != Token::default() {
            return Ok(Caller { grpc: self.client_of(&token.shard)?, token: token.clone(), lane: None });
        }
        let free = held(&self.run.callers.lanes).pop();
        let mut lane = free.unwrap_or_else(|| Lane { shard: self.unique("lane"), next: 0 });
        lane.next += 1;
        let token = Token { shard: lane.shard.clone(), epoch: 1, sequence: lane.next };
        Ok(Caller { grpc: self.client_of(&lane.shard)?, token, lane: Some(lane) })
    }

    /// A call has been answered.
    pub(super) fn answered(&self, caller: Caller) {
        if let Some(lane) = caller.lane {
            held(&self.run.callers.lanes).push(lane);
        }
    }
}

/// The authority of a run, if it runs under TLS.
pub(super) type Trust = Option<Arc<Authority>>;
