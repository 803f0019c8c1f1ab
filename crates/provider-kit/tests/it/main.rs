//! The provider kit over real gRPC on loopback, with real files.

mod boot;
mod dispatch;
mod durable;
mod fixture;
mod knobs;
mod list;
mod model;
mod serving;
