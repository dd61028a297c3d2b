//! The layers and extractors, over routes that exist only here.

mod access_recheck;
mod extracting;
mod fixture;
mod layers;
mod memory;
pub(crate) mod settings;
mod socket;
