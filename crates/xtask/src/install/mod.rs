//! Programs, images and services that the suites need, installed where they are missing.

pub(crate) mod agent_servers;
pub(crate) mod debian;
pub(crate) mod engine;
pub(crate) mod identity_provider;
pub(crate) mod images;
pub(crate) mod schemathesis;
pub(crate) mod web_app;
