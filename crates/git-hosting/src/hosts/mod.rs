//! Which hosts may be called.

pub(crate) mod guard;
pub(crate) mod private_hosts;
