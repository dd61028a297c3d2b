//! Parts of `bench-postgres`.

pub(crate) mod bare;
pub(crate) mod load;
pub(crate) mod seed;
pub(crate) mod throughput;
pub(crate) mod typed;
