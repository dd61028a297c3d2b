//! The conformance tests, by subject.

pub mod conversations;
pub mod events;
pub mod sandboxes;
pub mod secrets;
pub mod start_tasks;
pub mod store;
pub mod users;
