//! Sandboxes as local processes.
