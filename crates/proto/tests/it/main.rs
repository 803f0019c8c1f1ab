//! The wire as others see it: golden vectors, and the schema against the public one and the committed one.

mod golden;
mod schema;
