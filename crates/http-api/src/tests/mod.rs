//! The layers and extractors, with test routes.

mod access_recheck;
mod extracting;
mod fixture;
mod layers;
mod login_redirect;
mod memory;
pub(crate) mod settings;
mod socket;
