//! Every repository port in memory, and the fakes.
