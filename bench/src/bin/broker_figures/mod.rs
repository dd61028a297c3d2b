//! Parts of the benchmark of model calls.

pub(crate) mod bare;
pub(crate) mod model;
