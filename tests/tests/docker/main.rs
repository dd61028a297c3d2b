//! Faults of containers and of their engine, with a stub in the sandboxes: the reported state stays right, no data is lost, and
//! nothing is left behind. Faults of any kind of sandbox are in the suite `faults`.
//!
//! Without an image or engine the suite fails and says what to install.

mod auto_backend;
mod containers;
mod egress;
mod engine;
mod expiry;
mod private_engine;
mod secrets;
mod shared_engine;
mod support;
