//! The files of a sandbox: paths, lock, state and logs.

pub(crate) mod confine;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod log_file;
mod log_stream;
pub(crate) mod state;
