//! Integration tests of the operator, in one program because linking is slow.

mod fake_shard;
mod memory_cluster;
mod memory_store;
mod session_client;
mod template_bootstrap;
mod template_language;
