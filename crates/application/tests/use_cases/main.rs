//! Use-cases over stores and fakes in memory, with tokio's time paused.

mod conversation;
mod fixture;
mod quotas;
mod replicas;
mod rotation;
mod sandbox;
mod single_user;
mod users;
