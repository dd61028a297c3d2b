//! What goes wrong with containers and with their engine, with a stub in the sandboxes: the state on the wire stays right,
//! nothing is lost, and nothing is left. (What goes wrong with any kind of sandbox is in the suite `faults`.)
//!
//! A suite whose image or engine is missing fails and says what to do.

mod choice;
mod containers;
mod engine;
mod neighbours;
mod private_engine;
mod retiring;
mod secrets;
mod support;
