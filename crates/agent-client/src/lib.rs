//! The agent server's HTTP protocol.
