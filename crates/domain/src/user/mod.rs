//! Users: who they are, what they may do, and what is stored of them.

pub mod administration;
pub mod device_login;
pub mod egress;
pub mod email;
pub mod identity;
pub mod mail;
pub mod organization;
pub mod permission;
pub mod scope;
pub mod secret;
pub mod settings;
pub mod sign_in;
pub mod single_sign_on;
pub mod usage;
