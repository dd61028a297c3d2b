//! Keys and report target of the stub: from its environment, or, after a dormant boot, from the request that initialises it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::reports::ReportTarget;
use crate::agent_server::variable_of;

/// The expected key, the report target, and whether the stub is dormant.
pub(super) struct Identity {
    state: Mutex<IdentityState>,
    /// The key of the request that may initialise it.
    boot_key: Option<String>,
    /// Whether it booted dormant.
    is_deferred: bool,
}

#[derive(Default)]
struct IdentityState {
    key: Option<String>,
    target: Option<ReportTarget>,
    is_awake: bool,
}

impl Identity {
    pub(super) fn from_environment() -> Self {
        let is_deferred = variable_of("OH_DEFERRED_INIT").is_some_and(|value| value == "1");
        let mut state = IdentityState::default();
        if !is_deferred {
            let key = variable_of("OH_SESSION_API_KEYS_0");
            state.target = variable_of("OH_WEBHOOKS_0_BASE_URL").map(|base| ReportTarget {
                base,
                key: key.clone().unwrap_or_default(),
            });
            state.key = key;
            state.is_awake = true;
        }
        Self {
            state: Mutex::new(state),
            boot_key: variable_of("OH_SECRET_KEY"),
            is_deferred,
        }
    }

    fn lock(&self) -> MutexGuard<'_, IdentityState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self) -> Option<ReportTarget> {
        self.lock().target.clone()
    }

    /// The refusal of a request under `/api`.
    pub(super) fn refusal(&self, sent: Option<&str>) -> Option<HttpResponse> {
        let state = self.lock();
        if !state.is_awake {
            let refused = json!({"detail": "dormant"});
            return Some(HttpResponse::ServiceUnavailable().json(refused));
        }
        let is_known = state.key.is_none() || sent == state.key.as_deref();
        (!is_known).then(|| HttpResponse::Unauthorized().json(json!({"detail": "Unauthorized"})))
    }

    /// Handles `/api/init`, which exists only after a dormant boot.
    pub(super) fn init(&self, request: &HttpRequest, body: &Value) -> Option<HttpResponse> {
        if !self.is_deferred {
            return None;
        }
        let mut state = self.lock();
        if request.method() == "GET" {
            let word = if state.is_awake { "ready" } else { "dormant" };
            return Some(HttpResponse::Ok().json(json!({"state": word})));
        }
        let sent = request.headers().get("X-Init-API-Key");
        if sent.and_then(|key| key.to_str().ok()) != self.boot_key.as_deref() {
            let refused = json!({"detail": "Unauthorized"});
            return Some(HttpResponse::Unauthorized().json(refused));
        }
        if state.is_awake {
            let refused = json!({"detail": "already in state ready"});
            return Some(HttpResponse::BadRequest().json(refused));
        }
        let text = |value: &Value| value.as_str().map(str::to_owned);
        state.key = text(&body["session_api_keys"][0]);
        state.target = text(&body["webhooks"][0]["base_url"]).map(|base| ReportTarget {
            base,
            key: state.key.clone().unwrap_or_default(),
        });
        state.is_awake = true;
        Some(HttpResponse::Ok().json(json!({"state": "ready"})))
    }
}
