//! Confinement of sandboxes.

pub(crate) mod walls;
