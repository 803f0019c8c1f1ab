//! Tests of the vocabulary, by table and by property.

mod cost;
mod profile;
mod quantity;
mod resources;
mod state;
