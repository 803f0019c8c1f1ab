//! The cluster side: aggregation, session, bootstrap template, drains; and the in-memory cluster.
