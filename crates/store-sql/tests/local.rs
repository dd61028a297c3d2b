//! Stores that need no server. One binary, because each would link everything again.

mod inspect;
mod open;
mod sqlite;
#[path = "upgrade.rs"]
mod versions;
