//! What goes wrong with containers and with their engine, with a stub in the sandboxes: the state on the wire stays right,
//! nothing is lost, and nothing is left.
//!
//! A suite whose image or engine is missing fails and says what to do.

mod private_engine;
