//! Laws that every adapter of a port must keep.
