//! The agent server's list of model profiles.

use domain::agent::{AgentEndpoint, AgentError, LlmProfile};
use hyper::Method;
use serde_json::json;

use crate::errors::secrets_of_llm;
use crate::launch;
use crate::runtime::HttpAgentRuntime;
use crate::transport::AgentCall;

/// Profiles in the agent server's list that are checked. An agent server keeps 50.
const MAX_LISTED_PROFILES: usize = 200;

impl HttpAgentRuntime {
    /// Makes the agent server's list equal to `profiles`. Sends one request at a time, because the agent server locks its list. A
    /// refused profile does not stop the others.
    pub(crate) async fn sync_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError> {
        let mut outcome = Ok(());
        for profile in profiles {
            match self.save_profile(at, profile).await {
                Err(refusal @ AgentError::Rejected { .. }) => outcome = Err(refusal),
                result => result?,
            }
        }
        let path = ["api", "profiles"];
        let call = AgentCall::new(Method::GET, at, &path, self.config.read);
        let list = self.fetch(&call).await?;
        let listed = list["profiles"].as_array().into_iter().flatten();
        let names = listed.filter_map(|profile| profile["name"].as_str());
        let stale = names
            .take(MAX_LISTED_PROFILES)
            .filter(|name| profiles.iter().all(|profile| profile.name != **name));
        for name in stale {
            let path = ["api", "profiles", name];
            let call = AgentCall::new(Method::DELETE, at, &path, self.config.stop);
            let reply = self
                .exchange_with_crash_points("agent: removing a profile", &call)
                .await?;
            if !reply.is_success() {
                tracing::debug!(
                    sandbox.id = %at.sandbox,
                    status = reply.status,
                    "the agent server did not delete a stale profile"
                );
            }
        }
        outcome
    }

    async fn save_profile(
        &self,
        at: &AgentEndpoint,
        profile: &LlmProfile,
    ) -> Result<(), AgentError> {
        let usage = format!("profile:{}", profile.name);
        let body = json!({"llm": launch::llm(&profile.llm, &usage, false)});
        let path = ["api", "profiles", &profile.name];
        let call = AgentCall::new(Method::POST, at, &path, self.config.read)
            .json(&body)
            .with_secrets(secrets_of_llm(&profile.llm))
            .idempotent();
        call.check(
            &self
                .exchange_with_crash_points("agent: saving a profile", &call)
                .await?,
        )
    }
}
