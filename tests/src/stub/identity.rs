//! Who the stub is: told by its environment, or, when it was booted dormant, by the request that wakes it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Value, json};

use super::reports::Target;
use crate::agent_server::variable_of;

/// The key that it asks for, where it reports to, and whether it waits to be told both.
pub(super) struct Identity {
    it: Mutex<State>,
    /// By what it knows who may wake it.
    boot_key: Option<String>,
    /// Whether it was booted dormant.
    deferred: bool,
}

#[derive(Default)]
struct State {
    key: Option<String>,
    target: Option<Target>,
    is_awake: bool,
}

impl Identity {
    pub(super) fn of_environment() -> Self {
        let deferred = variable_of("OH_DEFERRED_INIT").is_some_and(|value| value == "1");
        let mut state = State::default();
        if !deferred {
            let key = variable_of("OH_SESSION_API_KEYS_0");
            state.target = variable_of("OH_WEBHOOKS_0_BASE_URL").map(|base| Target {
                base,
                key: key.clone().unwrap_or_default(),
            });
            state.key = key;
            state.is_awake = true;
        }
        Self {
            it: Mutex::new(state),
            boot_key: variable_of("OH_SECRET_KEY"),
            deferred,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.it.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn target(&self) -> Option<Target> {
        self.lock().target.clone()
    }

    /// Why a request under `/api` is not answered.
    pub(super) fn refusal(&self, sent: Option<&str>) -> Option<HttpResponse> {
        let state = self.lock();
        if !state.is_awake {
            let refused = json!({"detail": "dormant"});
            return Some(HttpResponse::ServiceUnavailable().json(refused));
        }
        let is_known = state.key.is_none() || sent == state.key.as_deref();
        (!is_known).then(|| HttpResponse::Unauthorized().json(json!({"detail": "Unauthorized"})))
    }

    /// `/api/init`, which only those have that were booted dormant.
    pub(super) fn init(&self, request: &HttpRequest, body: &Value) -> Option<HttpResponse> {
        if !self.deferred {
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
        state.target = text(&body["webhooks"][0]["base_url"]).map(|base| Target {
            base,
            key: state.key.clone().unwrap_or_default(),
        });
        state.is_awake = true;
        Some(HttpResponse::Ok().json(json!({"state": "ready"})))
    }
}
