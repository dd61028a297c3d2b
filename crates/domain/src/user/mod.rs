//! Users: who they are, what they may do, and what is stored of them.

pub mod identity;
pub mod scope;
pub mod secret;
pub mod settings;
pub mod sign_in;
pub mod usage;
