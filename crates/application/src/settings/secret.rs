//! Secrets of settings: how requests set them, how responses show them, and their stored form.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::issues::IssueKind;

/// Stands for a secret in responses. In a request it means "as stored".
pub const MASK: &str = "**********";

/// How secrets are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretVisibility {
    /// As null; separate flags show whether they are set.
    Hidden,
    /// As the mask.
    Masked,
    /// In clear: for the sealed document, and for the owner's own running sandbox.
    Clear,
}

impl SecretVisibility {
    pub fn show(self, secret: Option<&SecretString>) -> Value {
        match (self, secret) {
            (Self::Hidden, _) | (_, None) => Value::Null,
            (Self::Masked, Some(_)) => Value::from(MASK),
            (Self::Clear, Some(secret)) => Value::from(secret.expose_secret()),
        }
    }
}

#[derive(Debug, Clone)]
pub enum SecretInput {
    /// The mask: keep the stored one.
    Keep,
    /// Blank: clear it.
    Clear,
    /// A new value, trimmed.
    Set(SecretString),
}

impl SecretInput {
    pub fn from_text(text: &str) -> Self {
        match text.trim() {
            "" => Self::Clear,
            MASK => Self::Keep,
            value => Self::Set(SecretString::from(value)),
        }
    }

    /// Parses a secret; null clears it.
    pub(super) fn from_json(value: &Value) -> Result<Self, IssueKind> {
        match value {
            Value::Null => Ok(Self::Clear),
            Value::String(text) => Ok(Self::from_text(text)),
            _ => Err(IssueKind::String),
        }
    }

    pub fn apply(self, into: &mut Option<SecretString>) {
        match self {
            Self::Keep => {}
            Self::Clear => *into = None,
            Self::Set(value) => *into = Some(value),
        }
    }

    /// Applies it to one of several secrets.
    pub(super) fn apply_in(self, secrets: &mut BTreeMap<String, SecretString>, name: &str) {
        let mut slot = secrets.remove(name);
        self.apply(&mut slot);
        secrets.extend(slot.map(|secret| (name.to_owned(), secret)));
    }
}

/// A stored secret; a blank one counts as none.
pub(super) fn read_secret(value: &Value) -> Option<SecretString> {
    let text = value.as_str().filter(|t| !t.trim().is_empty())?;
    Some(SecretString::from(text))
}

/// Stored secrets by name.
pub(super) fn read_secrets(value: &Value) -> Option<BTreeMap<String, SecretString>> {
    let members = value.as_object()?.iter();
    Some(
        members
            .filter_map(|(name, value)| Some((name.clone(), read_secret(value)?)))
            .collect(),
    )
}

/// Secrets by name as a JSON object, which the caller wipes.
pub(super) fn in_clear(secrets: &BTreeMap<String, SecretString>) -> Value {
    let members = secrets.iter();
    members
        .map(|(name, secret)| (name.clone(), secret.expose_secret().into()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

/// Overwrites every text in a document that contained secrets.
pub(super) fn wipe(value: &mut Value) {
    use secrecy::zeroize::Zeroize;
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(map) => map.values_mut().for_each(wipe),
        _ => {}
    }
}
