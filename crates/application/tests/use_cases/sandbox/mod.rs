//! Sandboxes and their upkeep.

mod egress_lists;
mod ended_runs;
mod housekeeping;
mod inspection;
mod logs;
mod placeholders;
mod reconcile;
mod sandbox_grouping;
mod sandboxes;
mod session_keys;
mod warm;
