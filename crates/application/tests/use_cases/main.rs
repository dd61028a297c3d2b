//! Use-cases over stores and fakes in memory, with tokio's time paused.

mod keeping;
mod replicas;
mod sandboxes;
mod starts;
mod webhooks;
mod world;
