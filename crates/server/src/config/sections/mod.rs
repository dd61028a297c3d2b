//! The sections of the configuration: one struct each, with what it reads.

pub(super) mod auth;
mod auth_mode;
pub(super) mod automations;
pub(super) mod broker;
pub(super) mod egress;
pub(super) mod git;
pub(super) mod http;
pub(super) mod identity_providers;
pub(super) mod log;
pub(super) mod mail;
pub(super) mod metrics;
pub(super) mod quota;
pub(super) mod retention;
pub(super) mod sandbox;
pub(super) mod storage;
pub(super) mod telemetry;
pub(super) mod web;
pub(super) mod web_client;
