//! Dormant agent servers, booted with `OH_DEFERRED_INIT=1`. They respond to requests and wait for `POST /api/init`.
//!
//! ```text
//!   GET /api/init   404: booted awake (1.34 and later); 401: an older release, which is always awake
//!                   200 {"state": dormant | initializing | ready}
//!   POST /api/init  200: initialized; 400 "already in state …"; 401: wrong key; 500: failed, dormant again
//! ```

use std::time::Duration;

use domain::agent::{AgentError, InitRequest, WEBHOOK_BATCH, WEBHOOK_FLUSH_SECONDS};
use domain::error::chain;
use hyper::Method;
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use crate::runtime::HttpAgentRuntime;
use crate::transport::{AgentAddress, AgentCall};

const INIT_PATH: [&str; 2] = ["api", "init"];
/// The first path makes the agent server load all tools (2 s with 1.34). The second matches no route: the agent server compiles
/// each route on its first comparison, so this request compiles all of them (0.2 s).
const PREWARM_PATHS: [&[&str]; 2] = [&["server_info"], &["agent-workspace", "no-such-path"]];
/// Pause between two checks of an agent server that another request initializes.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Responses contain only a state or an error.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// State of a dormant agent server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DormancyStage {
    Dormant,
    Waking,
    /// Initialized, or booted without deferred initialization.
    Awake,
}

impl HttpAgentRuntime {
    /// Whether it is not initialized yet.
    pub(crate) async fn waits_for_init(&self, at: AgentAddress<'_>) -> Result<bool, AgentError> {
        Ok(self.dormancy_stage(at).await? != DormancyStage::Awake)
    }

    async fn dormancy_stage(&self, at: AgentAddress<'_>) -> Result<DormancyStage, AgentError> {
        let call = AgentCall::without_key(Method::GET, at, &INIT_PATH, self.config.read)
            .max_response_bytes(MAX_RESPONSE_BYTES);
        let reply = self.transport.exchange(&call).await?;
        if reply.status >= 500 {
            return Err(call.rejection(&reply));
        }
        // An image without this route may respond with anything, also with HTML.
        Ok(match reply.lenient_document()["state"].as_str() {
            Some("dormant") if reply.is_success() => DormancyStage::Dormant,
            Some("initializing") if reply.is_success() => DormancyStage::Waking,
            _ => DormancyStage::Awake,
        })
    }

    /// Sends requests whose first response is slow (docs/explanation/agent-server.md, "Dormant").
    pub(crate) async fn send_prewarm_requests(&self, at: AgentAddress<'_>) {
        for path in PREWARM_PATHS {
            let call = AgentCall::without_key(Method::GET, at, path, self.config.wake)
                .max_response_bytes(MAX_RESPONSE_BYTES);
            if let Err(error) = self.transport.exchange(&call).await {
                let error = AgentError::from(error);
                tracing::debug!(
                    sandbox.id = %at.sandbox,
                    error = %chain(&error),
                    "a prewarm request failed; the first conversation of this sandbox starts more slowly"
                );
            }
        }
    }

    /// Initializes the agent server and waits until it is ready or fails.
    pub(crate) async fn initialize(
        &self,
        at: AgentAddress<'_>,
        request: &InitRequest,
    ) -> Result<(), AgentError> {
        // Safe to repeat: a second request gets 400.
        let call = AgentCall::to_dormant(at, &request.secret_key, &INIT_PATH, self.config.wake)
            .json(&body(request))
            .with_secrets([request.session_key.expose_secret()])
            .max_response_bytes(MAX_RESPONSE_BYTES)
            .idempotent();
        loop {
            let reply = self
                .exchange_with_crash_points("agent: waking", &call)
                .await?;
            if reply.is_success() {
                return Ok(());
            }
            match self.dormancy_stage(at).await? {
                DormancyStage::Awake => return Ok(()),
                DormancyStage::Dormant if reply.status != 400 => {
                    return Err(call.rejection(&reply));
                }
                // Another request initializes it or has just failed to.
                DormancyStage::Dormant | DormancyStage::Waking => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            }
        }
    }
}

/// The settings that a cold start passes in the environment. Paths, limits, switches and keys are in the environment of both at
/// boot. The member `env` is absent: the agent server does not read webhooks from variables that come later, and each variable
/// costs a process when an agent gets its terminal.
fn body(request: &InitRequest) -> Value {
    let webhooks = request.webhook_url.as_str().trim_end_matches('/');
    json!({
        "session_api_keys": [request.session_key.expose_secret()],
        "secret_key": request.secret_key.expose_secret(),
        "webhooks": [{
            "base_url": webhooks,
            "flush_delay": WEBHOOK_FLUSH_SECONDS,
            "event_buffer_size": WEBHOOK_BATCH,
        }],
        "allow_cors_origins": request.cors_origins,
    })
}
