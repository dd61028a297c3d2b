//! Shapes of earlier releases.

pub mod conversation;
pub mod front_end;
pub mod settings;
pub mod user;
