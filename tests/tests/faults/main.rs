//! What goes wrong around the service, with a stub agent server that fails on demand.

mod capacity;
mod chaos;
mod crashes;
mod listing;
mod runs;
mod secrets;
mod starts;
mod support;
mod users;
