//! Keys that are tried: the limit on wrong ones, and what good ones leave behind.

use std::net::IpAddr;

use actix_web::http::StatusCode;
use actix_web::{HttpMessage as _, HttpRequest};
use secrecy::SecretString;

use super::client::ClientAddress;
use super::state_of;
use super::who::{bearer_of, key_of};
use crate::problem::Problem;
use crate::rate::{Attempt, Quota};

/// Refuses a request whose keys would be looked up, if its address has tried too many wrong ones.
pub(super) fn begin(req: &HttpRequest, attempt: Attempt) -> Result<(), Problem> {
    match (key_of(req), bearer_of(req)) {
        (None, None) => Ok(()),
        (key, beside) => may_try(req, key.iter().chain(&beside), attempt),
    }
}

/// The same with these keys, of which there is at least one.
pub(crate) fn may_try<'a>(
    req: &HttpRequest,
    keys: impl Iterator<Item = &'a SecretString>,
    attempt: Attempt,
) -> Result<(), Problem> {
    let state = state_of(req)?;
    let from = (address_of(req), attempt);
    state.rate().may_try(keys, from, state.ports().clock.now())
}

/// Counts a refusal, if it was one of a key.
pub(super) fn end(req: &HttpRequest, attempt: Attempt, problem: &Problem) {
    if problem.status() == StatusCode::UNAUTHORIZED && key_of(req).is_some() {
        was_wrong(req, attempt);
    }
}

/// Counts a key that was none.
pub(crate) fn was_wrong(req: &HttpRequest, attempt: Attempt) {
    if let Ok(state) = state_of(req) {
        let now = state.ports().clock.now();
        state.rate().was_wrong(address_of(req), attempt, now);
    }
}

/// A key was good: it may be tried again, and its owner is told what is left to it.
pub(crate) fn good(
    req: &HttpRequest,
    key: Option<&SecretString>,
    quota: Option<Quota>,
) -> Result<(), Problem> {
    if let Some(key) = key {
        state_of(req)?.rate().know(key);
    }
    let Some(quota) = quota else { return Ok(()) };
    quota.note(req);
    quota.admit()
}

fn address_of(req: &HttpRequest) -> Option<IpAddr> {
    let extensions = req.extensions();
    extensions.get::<ClientAddress>()?.address
}
