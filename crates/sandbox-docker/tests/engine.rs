//! Sandboxes on a real engine. One binary, because each would compile and link the helpers again.

mod adoption;
mod conformance;
mod disk;
mod engine_faults;
#[path = "images/main.rs"]
mod images;
mod isolation;
mod lifecycle;
mod network;
#[path = "support/private.rs"]
mod private;
mod secrets;
mod support;
