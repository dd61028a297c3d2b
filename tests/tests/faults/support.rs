//! What all modules use.

pub(crate) use acceptance::world::{LATE, World, configure_model, finishes, said_by_user};
