//! Parts of `bench-load`.

pub(crate) mod bare;
pub(crate) mod sample;
mod typed;
