//! Sandboxes on a real engine. One binary, because each would compile and link the helpers again.

mod adoption;
mod conformance;
mod disk;
mod engine_faults;
#[path = "images/main.rs"]
mod images;
mod isolation;
#[expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]
mod lifecycle;
mod network;
#[path = "support/private.rs"]
#[expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]
mod private;
#[expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]
mod proxy;
mod secrets;
#[expect(
    clippy::unwrap_used,
    reason = "a helper that fails is a test that fails"
)]
mod support;
