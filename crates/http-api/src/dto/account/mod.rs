//! Users, their keys, organizations and usage on the wire.

pub(crate) mod access;
pub(crate) mod administration;
pub(crate) mod identity;
pub(crate) mod link;
pub(crate) mod organization;
pub(crate) mod session;
pub(crate) mod spending;
pub(crate) mod usage;
