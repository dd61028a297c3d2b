//! Parts of the benchmark on a cluster.

pub(crate) mod agents;
pub(crate) mod fleet;
pub(crate) mod usage;
