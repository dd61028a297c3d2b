//! Users, their keys, and what the audit log says of them.

pub(super) mod administration;
pub(super) mod audit;
pub(super) mod identities;
pub(super) mod keys;
pub(super) mod links;
pub(super) mod members;
pub(super) mod organizations;
pub(super) mod sessions;
pub(super) mod spending;
pub(super) mod usage;
pub(super) mod users;
