//! Tests on Postgres: conformance of every repository port, change notifications, TLS, outages, upgrades.
#![cfg(feature = "postgres")]
#![expect(clippy::unwrap_used, reason = "tests panic")]

mod changes;
mod cluster;
mod conformance;
mod outage;
mod tls;
mod upgrades;

#[path = "../common/upgrade.rs"]
mod upgrade;
