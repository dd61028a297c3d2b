//! The `agent-workspace` binary.

mod cli;
mod config;
mod data_dir;
mod logging;

fn main() {}
