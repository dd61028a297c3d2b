//! Repository ports through diesel.
