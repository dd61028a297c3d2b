//! Shapes of earlier releases.

pub(crate) mod conversation;
pub(crate) mod front_end;
pub(crate) mod settings;
pub(crate) mod user;
