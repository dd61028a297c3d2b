//! Users, their keys, and what the audit log says of them.

pub(super) mod administration;
pub(super) mod audit;
pub(super) mod keys;
pub(super) mod organizations;
pub(super) mod sessions;
pub(super) mod usage;
pub(super) mod users;
