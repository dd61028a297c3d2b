//! Alice's objects.

use serde_json::{Value, json};

use super::CANARY;
use crate::client::{Client, Conversation, text};
use crate::service::Service;
use crate::wait::wait_for;
use crate::world::RECONCILE_TIMEOUT;

pub(super) const ALICE: &str = "alice-the-owner";

/// The id or name of one object of each kind.
#[derive(Debug, Clone)]
pub(super) struct OwnedObjects {
    pub(super) user: String,
    pub(super) organization: String,
    pub(super) conversation: String,
    pub(super) event: String,
    pub(super) task: String,
    pub(super) sandbox: String,
    pub(super) key: String,
    pub(super) secret: String,
    pub(super) profile: String,
    pub(super) agent_profile: String,
    pub(super) connection: String,
    /// The URL of agent servers, as her conversations have it; every user's is the same.
    pub(super) host: String,
}

/// Starts a conversation in a new sandbox. Returns the key of the sandbox.
pub(super) async fn sandbox_key(user: &Client) -> String {
    user.use_model("openai/stub", "http://127.0.0.1:9/v1", "sk-stub")
        .await;
    let conversation = user.converse("hello").await;
    let conversation = user
        .wait_for_execution_status(&conversation.id, "finished")
        .await;
    conversation
        .session_api_key
        .expect("a running sandbox has a key")
}

/// Creates a key and revokes it.
pub(super) async fn revoked_key(user: &Client) -> String {
    let made = user
        .post("/api/v1/keys", &json!({"name": "revoked"}))
        .await
        .ok();
    let key = made["key"].as_str().expect("a key has a text").to_owned();
    let id = made["record"]["id"].as_str().expect("it has an id");
    let former = user.with_key(&key);
    let _ = former.get("/api/v1/settings").await.ok();
    let _ = user.delete(&format!("/api/v1/keys/{id}")).await.ok();
    until_refused(&former, "/api/v1/settings").await;
    key
}

/// The key of a deleted sandbox.
pub(super) async fn deleted_sandbox_key(user: &Client) -> String {
    let conversation = user.converse("hello").await;
    let key = conversation.session_api_key;
    let key = key.expect("a running sandbox has a key");
    let sandbox = format!("/api/v1/sandboxes/{}", conversation.sandbox_id);
    let _ = user.delete(&sandbox).await.ok();
    let former = user.with_key(&key);
    until_refused(&former, &format!("{sandbox}/settings/secrets")).await;
    key
}

/// Waits until the key is refused, because the service caches keys for a second.
async fn until_refused(former: &Client, path: &str) {
    wait_for("a key is refused", RECONCILE_TIMEOUT, || async {
        (former.get(path).await.status == 401).then_some(())
    })
    .await;
}

/// A model, a secret, a token of a Git host and profiles, with the canary in all texts.
async fn make_configuration(alice: &Client, secret: &str, profile: &str) {
    alice
        .use_model(
            "openai/stub",
            &format!("http://127.0.0.1:9/{CANARY}"),
            CANARY,
        )
        .await;
    let tokens =
        json!({"provider_tokens": {"gitlab": {"token": CANARY, "host": "http://127.0.0.1:9"}}});
    let described = json!({"name": secret, "value": CANARY, "description": CANARY});
    let llm = json!({"llm": {"model": "openai/stub", "api_key": CANARY, "base_url": format!("http://127.0.0.1:9/{CANARY}")}});
    let agent = json!({"llm_profile_ref": profile, "system_message_suffix": CANARY});
    for (path, body) in [
        ("/api/v1/secrets/git-providers", &tokens),
        ("/api/v1/secrets", &described),
        (&format!("/api/v1/settings/profiles/{profile}"), &llm),
        (&format!("/api/agent-profiles/{profile}"), &agent),
    ] {
        let _ = alice.post(path, body).await.ok();
    }
}

impl OwnedObjects {
    /// Creates one object of each kind, with the canary in all texts. Returns also the key of the sandbox.
    pub(super) async fn make(service: &Service, alice: &Client) -> (Self, String) {
        let (secret, profile) = ("SECRET_OF_ALICE", "profile-of-alice");
        make_configuration(alice, secret, profile).await;
        let key = alice
            .post("/api/v1/keys", &json!({"name": "key-of-alice"}))
            .await
            .ok();
        let message = json!({"role": "user", "run": true, "content": text(CANARY)});
        let request =
            json!({"title": CANARY, "initial_message": message, "secrets": {"MINE": CANARY}});
        let task = alice.start(&request).await;
        let conversation = alice.wait_until_ready(&task).await;
        let conversation = alice
            .wait_for_execution_status(&conversation.id, "finished")
            .await;
        let sandbox_key = conversation.session_api_key.clone();
        let sandbox_key = sandbox_key.expect("a running sandbox has a key");
        // Newer objects, so that lists have two pages.
        let newer = json!({"title": CANARY, "sandbox_id": conversation.sandbox_id});
        let _ = alice.wait_until_ready(&alice.start(&newer).await).await;
        let newer = json!({"name": "NEWER_SECRET", "value": CANARY, "description": CANARY});
        let _ = alice.post("/api/v1/secrets", &newer).await.ok();
        let events = alice.events(&conversation.id).await;
        let organizations = alice.get("/api/organizations").await.ok();
        let named = |value: &Value| value.as_str().expect("it has an id").to_owned();
        let organization = named(&organizations["items"][0]["id"]);
        let connections = format!("/api/organizations/{organization}/provider-connections");
        let connection = json!({"display_name": CANARY, "api_key": CANARY});
        let connection = alice.post(&connections, &connection).await.ok();
        let agents = alice.get("/api/agent-profiles").await.ok();
        let objects = Self {
            user: ALICE.to_owned(),
            organization,
            agent_profile: named(&agents["profiles"][0]["id"]),
            connection: named(&connection["id"]),
            event: named(&events[0]["id"]),
            conversation: conversation.id.clone(),
            task: task.id,
            sandbox: conversation.sandbox_id.clone(),
            key: named(&key["record"]["id"]),
            secret: secret.to_owned(),
            profile: profile.to_owned(),
            host: agent_server_base(&conversation),
        };
        let file = service.workspace_file(&objects.sandbox, "stub.txt");
        assert!(file.is_some(), "the run has written a file");
        (objects, sandbox_key)
    }

    /// Ids of the same form that name no object.
    pub(super) fn unknown(&self) -> Self {
        Self {
            user: unknown_like(&self.user),
            organization: unknown_like(&self.organization),
            conversation: unknown_like(&self.conversation),
            event: unknown_like(&self.event),
            task: unknown_like(&self.task),
            sandbox: unknown_like(&self.sandbox),
            key: unknown_like(&self.key),
            secret: unknown_like(&self.secret),
            profile: unknown_like(&self.profile),
            agent_profile: unknown_like(&self.agent_profile),
            connection: unknown_like(&self.connection),
            host: self.host.clone(),
        }
    }

    /// Ids that are unique in the installation, which no response to others may contain. Names of secrets and profiles are not
    /// unique.
    pub(super) fn ids(&self) -> Vec<String> {
        let ids = [
            &self.user,
            &self.conversation,
            &self.event,
            &self.task,
            &self.sandbox,
            &self.key,
            &self.agent_profile,
            &self.connection,
        ];
        ids.into_iter().flat_map(|id| spellings(id)).collect()
    }

    /// Replaces the ids of `unknown` in a response by those of these objects.
    pub(super) fn rename(&self, unknown: &Self, text: &str) -> String {
        let pairs = [
            (&self.user, &unknown.user),
            (&self.organization, &unknown.organization),
            (&self.conversation, &unknown.conversation),
            (&self.event, &unknown.event),
            (&self.task, &unknown.task),
            (&self.sandbox, &unknown.sandbox),
            (&self.key, &unknown.key),
            (&self.secret, &unknown.secret),
            (&self.profile, &unknown.profile),
            (&self.agent_profile, &unknown.agent_profile),
            (&self.connection, &unknown.connection),
        ];
        pairs
            .into_iter()
            .fold(text.to_owned(), |text, (owned, unknown)| {
                let pairs = spellings(unknown).into_iter().zip(spellings(owned));
                pairs.fold(text, |text, (unknown, owned)| {
                    text.replace(&unknown, &owned)
                })
            })
    }

    #[cfg(test)]
    pub(super) fn sample() -> Self {
        let id = || "0123456789abcdef0123456789abcdef".to_owned();
        Self {
            user: ALICE.to_owned(),
            organization: id(),
            conversation: id(),
            event: id(),
            task: id(),
            sandbox: id(),
            key: id(),
            secret: "SECRET".to_owned(),
            profile: "profile".to_owned(),
            agent_profile: id(),
            connection: id(),
            host: "http://127.0.0.1:3000".to_owned(),
        }
    }
}

/// The part of the URL at the agent server that names no conversation.
fn agent_server_base(conversation: &Conversation) -> String {
    let url = conversation.conversation_url.as_deref();
    let (base, _) = url
        .and_then(|url| url.split_once("/api/conversations"))
        .expect("a running sandbox has a URL");
    base.to_owned()
}

/// A text of the same form with other letters and digits.
fn unknown_like(text: &str) -> String {
    let is_hex = text
        .chars()
        .all(|char| char.is_ascii_hexdigit() || char == '-');
    let turned = |char: char| match char {
        '0'..='9' | 'a'..='f' if is_hex => {
            let value = char.to_digit(16).unwrap_or_default();
            char::from_digit(15 - value, 16).unwrap_or(char)
        }
        'a'..='y' | 'A'..='Y' => char::from_u32(u32::from(char) + 1).unwrap_or(char),
        'z' => 'a',
        'Z' => 'A',
        other => other,
    };
    text.chars().map(turned).collect()
}

/// The spellings of an id: 32 digits are also written with dashes.
fn spellings(id: &str) -> Vec<String> {
    let digits = id.replace('-', "");
    let is_uuid = digits.len() == 32 && digits.chars().all(|char| char.is_ascii_hexdigit());
    if !is_uuid {
        return vec![id.to_owned()];
    }
    let parts = [0..8, 8..12, 12..16, 16..20, 20..32].map(|range| digits[range].to_owned());
    vec![digits, parts.join("-")]
}

/// Removes the present time and the times of last use.
pub(super) fn mask(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, _| name != "last_used_at" && name != "current_datetime");
            map.values_mut().for_each(mask);
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        _ => {}
    }
}
