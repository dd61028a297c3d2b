//! The HTTP surface.
