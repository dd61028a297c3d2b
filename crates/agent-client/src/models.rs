//! Other models for conversations, and the agent server's own list of them.

use std::fmt::Write as _;

use domain::agent::{AgentEndpoint, AgentError, LlmProfile};
use domain::id::ConversationId;
use hyper::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::errors::{Scrubber, refused};
use crate::launch;
use crate::runtime::{HttpAgentRuntime, document, of_conversation};
use crate::transport::{AgentCall, AgentReply};

/// Profiles of an agent server that are checked. An agent server keeps 50.
const MAX_LISTED_PROFILES: usize = 200;
/// Hexadecimal digits of the digest in a profile's name.
const PROFILE_DIGEST_CHARS: usize = 12;

impl HttpAgentRuntime {
    pub(crate) async fn use_llm(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        profile: &LlmProfile,
    ) -> Result<(), AgentError> {
        let streams = self.server_info(at).await?.keeps_fragments();
        let body = json!({"llm": switched(profile, &at.key, streams)});
        let call = of_conversation(Method::POST, at, id, &["switch_llm"], self.config.switch)?;
        // Twice the same is one entry there, and in use.
        let call = call.json(&body).idempotent();
        let reply = self.change("agent: switching the model", &call).await?;
        done(&reply, &Scrubber::of_llm(&at.key, &profile.llm))
    }

    pub(crate) async fn use_acp_model(
        &self,
        at: &AgentEndpoint,
        id: ConversationId,
        model: &str,
    ) -> Result<(), AgentError> {
        let rest = ["switch_acp_model"];
        let call = of_conversation(Method::POST, at, id, &rest, self.config.switch)?;
        let call = call.json(&json!({"model": model})).idempotent();
        let reply = self.change("agent: switching the model", &call).await?;
        done(&reply, &Scrubber::of_key(&at.key))
    }

    /// One after the other: the agent server has a lock around its list. One that it refuses does not keep back the others.
    pub(crate) async fn keep_profiles(
        &self,
        at: &AgentEndpoint,
        profiles: &[LlmProfile],
    ) -> Result<(), AgentError> {
        let mut outcome = Ok(());
        for profile in profiles {
            match self.keep_profile(at, profile).await {
                Err(refusal @ AgentError::Rejected { .. }) => outcome = Err(refusal),
                done => done?,
            }
        }
        let call = AgentCall::new(Method::GET, at, &["api", "profiles"], self.config.read)?;
        let list = document(
            &self.transport.exchange(&call).await?,
            &Scrubber::of_key(&at.key),
        )?;
        let listed = list["profiles"].as_array().into_iter().flatten();
        let names = listed.filter_map(|it| it["name"].as_str());
        let stale = names
            .take(MAX_LISTED_PROFILES)
            .filter(|name| profiles.iter().all(|profile| profile.name != **name));
        for name in stale {
            let segments = ["api", "profiles", name];
            let call = AgentCall::new(Method::DELETE, at, &segments, self.config.stop)?;
            let reply = self.change("agent: removing a profile", &call).await?;
            if !reply.is_success() {
                tracing::debug!(status = reply.status, "a stale profile stays in a sandbox");
            }
        }
        outcome
    }

    async fn keep_profile(
        &self,
        at: &AgentEndpoint,
        profile: &LlmProfile,
    ) -> Result<(), AgentError> {
        let usage = format!("profile:{}", profile.name);
        let body = json!({"llm": launch::llm(&profile.llm, &usage, false)});
        let segments = ["api", "profiles", &profile.name];
        let call = AgentCall::new(Method::POST, at, &segments, self.config.read)?;
        let call = call.json(&body).idempotent();
        let reply = self.change("agent: keeping a profile", &call).await?;
        done(&reply, &Scrubber::of_llm(&at.key, &profile.llm))
    }
}

/// The model's document under a name of its own: an agent server keeps the first configuration that it gets under a name
/// (1.34) and what was spent with it, so a changed one needs another name. The name shows up in reports, so what marks the
/// configuration reveals no key to a reader without the sandbox's key.
fn switched(profile: &LlmProfile, key: &SecretString, streams: bool) -> Value {
    let usage = format!("profile:{}", profile.name);
    let mut llm = launch::llm(&profile.llm, &usage, streams);
    let mut hash = Sha256::new();
    hash.update(key.expose_secret());
    hash.update([0]);
    hash.update(llm.to_string());
    let mut mark = String::new();
    for byte in hash.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(mark, "{byte:02x}");
    }
    llm["usage_id"] = format!("{usage}:{}", &mark[..PROFILE_DIGEST_CHARS]).into();
    llm
}

/// Checks the status; the body carries no information.
fn done(reply: &AgentReply, scrub: &Scrubber<'_>) -> Result<(), AgentError> {
    if reply.is_success() {
        return Ok(());
    }
    Err(refused(reply.status, &reply.body, scrub))
}
