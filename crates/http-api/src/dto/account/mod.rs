//! Users, their keys, organizations and usage on the wire.

pub mod access;
pub mod administration;
pub mod organization;
pub mod usage;
