//! Generates API keys.

use std::time::Duration;

use domain::audit::AuditActor;
use domain::clock::Timestamp;
use domain::id::{ApiKeyId, IdGenerator, OrganizationId, UserId};
use domain::user::identity::{ApiKey, KeyHash};
use secrecy::{ExposeSecret as _, SecretString};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeyOptions {
    /// Name, for the owner.
    pub name: Option<String>,
    /// Lifetime; without one the key never expires. A rotation without one takes the lifetime of the old key.
    pub expires_in: Option<Duration>,
    /// The only organization in which the key acts. A rotation keeps that of the old key.
    pub organization: Option<OrganizationId>,
    /// Whether the key is for the automations service.
    pub is_automation: bool,
}

/// A new key and its text. The service stores only the hash and cannot show the text again.
#[derive(Debug)]
pub struct IssuedKey {
    pub key: ApiKey,
    pub text: SecretString,
}

/// Generates a key; the caller stores it.
pub fn new_key(
    ids: &dyn IdGenerator,
    now: Timestamp,
    user: &UserId,
    options: &KeyOptions,
    made_by: &AuditActor,
) -> IssuedKey {
    let text = ids.api_key();
    let key = ApiKey {
        id: ApiKeyId::new(ids.uuid()),
        user: user.clone(),
        hash: KeyHash::of(text.text.expose_secret()),
        prefix: text.prefix,
        created_at: now,
        expires_at: options.expires_in.map(|time| now.plus(time)),
        last_used_at: None,
        name: options.name.clone(),
        organization: options.organization,
        made_by: Some(made_by.to_string()),
        is_automation: options.is_automation,
    };
    IssuedKey {
        key,
        text: text.text,
    }
}

/// Generates the successor of `old`. It takes over name and lifetime unless `options` sets them.
pub fn successor_key(
    ids: &dyn IdGenerator,
    now: Timestamp,
    old: &ApiKey,
    options: &KeyOptions,
    made_by: &AuditActor,
) -> IssuedKey {
    let as_before = old.expires_at.map(|end| end.since(old.created_at));
    let options = KeyOptions {
        name: options.name.clone().or_else(|| old.name.clone()),
        expires_in: options.expires_in.or(as_before),
        organization: old.organization,
        is_automation: old.is_automation,
    };
    new_key(ids, now, &old.user, &options, made_by)
}
