//! The backend on a fake cluster, with `Sandbox` resources and with plain pods.
#![expect(clippy::unwrap_used, reason = "a failed test panics")]

mod budget;
mod causes;
mod conformance;
mod faults;
mod proxy;
mod replacement;
mod secrets;
mod soak;
mod support;
