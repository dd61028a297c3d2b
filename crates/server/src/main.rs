//! The `agent-workspace` binary.
fn main() {}
