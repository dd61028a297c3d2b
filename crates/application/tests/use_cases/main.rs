//! Use-cases over stores and fakes in memory, with tokio's time paused.

mod clones;
mod following;
mod grouping;
mod housekeeping;
mod inside;
mod keeping;
mod logs;
mod pending;
mod quotas;
mod replicas;
mod repositories;
mod rotation;
mod sandboxes;
mod single_user;
mod skills;
mod starts;
mod users;
mod warm;
mod webhooks;
mod world;
