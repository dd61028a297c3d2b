//! Users, their keys, their deletion, and what is counted and logged about them.

pub mod administration;
pub mod api_keys;
pub mod audit_log;
pub mod device_logins;
pub mod egress_requests;
pub mod identities;
pub mod organization_access;
pub mod organizations;
pub mod purge;
pub mod purge_races;
pub mod repository;
pub mod sign_in;
pub mod spending;
pub mod usage;
