//! The laws, by port.

pub mod sandbox_backend;
