//! Requests of the service itself to the automations service (`openhands-automation` 1.25 and 1.26), which runs in a sandbox.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::agent::{AgentEndpoint, AgentError};
use domain::id::SandboxId;
use endpoint_guard::EndpointGuard;
use hyper::Method;
use secrecy::SecretString;
use serde_json::Value;
use url::Url;

use crate::config::Config;
use crate::errors::malformed;
use crate::transport::{AgentAddress, AgentCall, Transport};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Items of a page, the maximum of the automations service.
const PAGE: usize = 100;
/// Runs of an automation are never deleted.
const MAX_PAGES: usize = 1_000;
const AUTOMATIONS: [&str; 3] = ["api", "automation", "v1"];

/// Reads from the automations service. Cheap to clone.
#[derive(Clone)]
pub struct AutomationsClient {
    transport: Transport,
    sandbox: SandboxId,
}

impl AutomationsClient {
    /// A client of the automations service in this sandbox.
    pub fn new(guard: Arc<dyn EndpointGuard>, sandbox: SandboxId) -> Self {
        let transport = Transport::new(&Config::default(), guard);
        Self { transport, sandbox }
    }

    /// Whether it answers that its database is usable.
    pub async fn is_ready(&self, url: &Url) -> bool {
        let at = AgentAddress {
            sandbox: &self.sandbox,
            url,
        };
        let call = AgentCall::without_key(Method::GET, at, &["ready"], TIMEOUT);
        let answer = self.transport.exchange(&call).await;
        answer.is_ok_and(|answer| answer.is_success())
    }

    /// The sandboxes that a user's automations still need: those of unfinished runs, and those that are kept after a run
    /// (`keep_alive`). `key`: the user's.
    ///
    /// # Errors
    /// See [`AgentError`].
    pub async fn needed_sandboxes(
        &self,
        url: &Url,
        key: SecretString,
    ) -> Result<HashSet<String>, AgentError> {
        let at = AgentEndpoint {
            sandbox: self.sandbox.clone(),
            url: url.clone(),
            key,
        };
        let mut automations = Vec::new();
        let own = Some(("created_by", "me"));
        let read = |automation: &Value| {
            let id = automation["id"].as_str().unwrap_or_default();
            automations.push((id.to_owned(), automation["keep_alive"] == true));
        };
        self.each(&at, &AUTOMATIONS, own, "automations", read)
            .await?;
        let mut needed = HashSet::new();
        for (id, keeps) in automations {
            let runs = [&AUTOMATIONS[..], &[id.as_str(), "runs"]].concat();
            let read = |run: &Value| {
                let is_unfinished = matches!(run["status"].as_str(), Some("PENDING" | "RUNNING"));
                let sandbox = run["sandbox_id"].as_str();
                needed.extend(
                    sandbox
                        .filter(|_| keeps || is_unfinished)
                        .map(str::to_owned),
                );
            };
            self.each(&at, &runs, None, "runs", read).await?;
        }
        Ok(needed)
    }

    /// Passes each item of a list on, page by page.
    async fn each(
        &self,
        at: &AgentEndpoint,
        segments: &[&str],
        filter: Option<(&'static str, &str)>,
        items: &str,
        mut read: impl FnMut(&Value),
    ) -> Result<(), AgentError> {
        for page in 0..MAX_PAGES {
            let mut call = AgentCall::new(Method::GET, at, segments, TIMEOUT)
                .query("limit", &PAGE.to_string())
                .query("offset", &(page * PAGE).to_string());
            if let Some((name, value)) = filter {
                call = call.query(name, value);
            }
            let answer = self.transport.exchange(&call).await?;
            let document = call.document(&answer)?;
            let Some(found) = document[items].as_array() else {
                return Err(malformed("the automations service sends no list"));
            };
            found.iter().for_each(&mut read);
            if found.len() < PAGE {
                return Ok(());
            }
        }
        Err(malformed("the automations service sends too long a list"))
    }
}
