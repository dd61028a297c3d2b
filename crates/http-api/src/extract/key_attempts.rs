//! Limits attempts with wrong keys; attaches the owner's rate limit for valid keys.

use std::net::IpAddr;

use actix_web::http::StatusCode;
use actix_web::{HttpMessage as _, HttpRequest};
use domain::clock::Timestamp;
use secrecy::SecretString;

use super::client::ClientAddress;
use super::keys::{bearer_of, bearer_text, key_of, key_text};
use crate::audit::AuditContext;
use crate::problem::Problem;
use crate::rate_limit::{KeyPurpose, RateLimitStatus};
use crate::state::{HttpState, Listener, state_of};

/// When the request was received: one reading of the clock serves its limits and the age of its key.
pub(crate) fn received_at(req: &HttpRequest, state: &HttpState) -> Timestamp {
    AuditContext::received_at(req).unwrap_or_else(|| state.ports.clock.now())
}

/// Refuses a request with keys if its address has tried too many wrong ones.
pub(super) fn refuse_excess_attempts(
    req: &HttpRequest,
    purpose: KeyPurpose,
) -> Result<(), Problem> {
    match (key_text(req), bearer_text(req)) {
        (None, None) => Ok(()),
        (key, bearer) => check_key_attempts(req, key.into_iter().chain(bearer), purpose),
    }
}

/// Like [`refuse_excess_attempts`], with these keys, of which there is at least one.
pub(crate) fn check_key_attempts<'a>(
    req: &HttpRequest,
    keys: impl Iterator<Item = &'a str>,
    purpose: KeyPurpose,
) -> Result<(), Problem> {
    let state = state_of(req)?;
    let source = (address_of(req, purpose), purpose);
    state
        .rate
        .check_key_attempts(keys, source, received_at(req, state))
}

/// Counts a failure, if a key caused it.
pub(super) fn count_failure(req: &HttpRequest, purpose: KeyPurpose, problem: &Problem) {
    if problem.status() == StatusCode::UNAUTHORIZED
        && let Some(key) = key_of(req)
    {
        count_wrong_keys(req, [&key].into_iter().chain(&bearer_of(req)), purpose);
    }
}

/// Counts wrong keys. A request counts once, however many keys it has and however often they are looked up.
pub(crate) fn count_wrong_keys<'a>(
    req: &HttpRequest,
    keys: impl Iterator<Item = &'a SecretString>,
    purpose: KeyPurpose,
) {
    let Ok(state) = state_of(req) else { return };
    keys.for_each(|key| state.rate.forget_key(key));
    if req.extensions_mut().insert(WrongKeyCounted).is_none() {
        let now = state.ports.clock.now();
        let address = address_of(req, purpose);
        state.rate.count_wrong_key(address, purpose, now);
    }
}

/// Marks a request whose wrong keys were counted.
struct WrongKeyCounted;

pub(crate) fn is_known_key(req: &HttpRequest, key: &SecretString) -> bool {
    state_of(req).is_ok_and(|state| state.rate.is_known_key(key))
}

/// Remembers a valid key, and attaches its owner's rate limit to the request.
pub(crate) fn accept_key(
    req: &HttpRequest,
    key: Option<&str>,
    limit_status: Option<RateLimitStatus>,
) -> Result<(), Problem> {
    if let Some(key) = key {
        state_of(req)?.rate.remember_key(key);
    }
    let Some(limit_status) = limit_status else {
        return Ok(());
    };
    limit_status.attach_to(req);
    limit_status.admit()
}

/// The address by which wrong keys are counted; `None`: they are not counted.
fn address_of(req: &HttpRequest, purpose: KeyPurpose) -> Option<IpAddr> {
    // The automations service asks with the keys of its callers, which are counted on their way to it.
    if state_of(req).is_ok_and(|state| state.listener == Listener::Automations) {
        return None;
    }
    let extensions = req.extensions();
    let client = extensions.get::<ClientAddress>()?;
    // Sandboxes that are processes on this machine share its address: one with a wrong key must not block the first report of
    // another.
    let is_local_process = client.address.is_some_and(|address| address.is_loopback())
        && !client.has_untrusted_headers;
    client
        .address
        .filter(|_| !(is_local_process && purpose == KeyPurpose::Report))
}
