//! Parts of `bench-load`.

pub(crate) mod bare;
pub(crate) mod taken;
mod typed;
