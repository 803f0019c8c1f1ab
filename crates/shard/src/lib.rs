//! The shard: sessions, fenced provider client, reconcile, cycle loop, rails, execution.
