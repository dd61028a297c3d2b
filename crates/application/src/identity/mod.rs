//! Callers: users with roles and keys, how keys are verified, and the audit log of what callers do.

pub mod administration;
pub mod audit;
pub mod authenticate;
pub mod automation_keys;
mod changes;
pub mod device_login;
pub(crate) mod key_cache;
mod login_attempts;
pub(crate) mod mail;
mod new_keys;
pub mod organizations;
mod password_work;
pub mod sign_in;
pub mod single_sign_on;
pub mod single_user;
pub mod users;
