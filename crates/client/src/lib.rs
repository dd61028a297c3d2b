//! A typed client of the service's HTTP interface.
//!
//! Knows: the wire, as `config/openapi.json` says it. Must never know: any other crate of ours.
