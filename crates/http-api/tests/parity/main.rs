//! Compares this service with recorded facts of the reference: the document (`openapi`), validation errors (`validation`), and
//! properties of every route (`transport`). A rule explains every deliberate difference, and
//! `docs/explanation/compatibility.md` lists the rules.
//!
//! The facts are in `tests/fixtures`; the tests do not need the reference.

#[cfg(test)]
mod differences;
#[cfg(test)]
mod docs;
#[cfg(test)]
mod facts;
#[cfg(test)]
#[expect(dead_code, reason = "the route tests need more of it")]
#[path = "../routes/fixture.rs"]
mod fixture;
#[cfg(test)]
mod openapi;
#[cfg(test)]
#[expect(dead_code, reason = "the route tests need more of it")]
#[path = "../routes/response.rs"]
mod response;
#[cfg(test)]
mod rules;
#[cfg(test)]
#[expect(dead_code, reason = "the route tests need more of it")]
#[path = "../routes/seed.rs"]
mod seed;
#[cfg(test)]
mod transport;
#[cfg(test)]
mod validation;
