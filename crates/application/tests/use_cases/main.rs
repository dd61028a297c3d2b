//! Use-cases over stores and fakes in memory, with tokio's time paused.

mod sandboxes;
mod starts;
mod webhooks;
mod world;
