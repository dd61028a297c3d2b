//! Parts of `bench-load`.

pub(crate) mod bare;
mod typed;
