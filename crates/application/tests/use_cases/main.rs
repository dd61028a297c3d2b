//! Use-cases over stores and fakes in memory, with tokio's time paused.

mod clones;
mod event_streams;
mod fixture;
mod housekeeping;
mod inspection;
mod logs;
mod pending;
mod quotas;
mod reconcile;
mod replicas;
mod repositories;
mod rotation;
mod sandbox_grouping;
mod sandboxes;
mod session_keys;
mod single_user;
mod skills;
mod starts;
mod users;
mod warm;
mod webhooks;
