//! What holds on Postgres: the laws of every repository port, TLS, a server that goes away, upgrades.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "tests panic")]

mod away;
mod changes;
mod cluster;
mod laws;
mod tls;
mod upgrades;

#[path = "../common/upgrade.rs"]
mod upgrade;
