//! What the reference does, recorded from it, against what we do: its document (`openapi`), what it says of bad requests
//! (`validation`), and what holds of every route (`transport`). Where we differ on purpose, a rule says why, and
//! `docs/explanation/compatibility.md` shows the rules.
//!
//! The facts are in `tests/fixtures`; nothing of the reference is needed to run this.

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
mod rules;
#[cfg(test)]
mod transport;
#[cfg(test)]
mod validation;
