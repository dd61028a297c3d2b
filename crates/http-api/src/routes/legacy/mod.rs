//! Routes of earlier releases: the same operations under other paths or in other shapes.

pub(super) mod aliases;
pub(super) mod conversations;
pub(super) mod front_end;
pub(super) mod options;
pub(super) mod secrets;
pub(super) mod settings;
pub(super) mod user;
