//! Decodes types of the domain: ids, timestamps and pages.

use std::ops::Bound;

use chrono::{DateTime, Utc};
use domain::audit::{AuditActor, AuditOutcome};
use domain::clock::Timestamp;
use domain::conversation::{ExecutionStatus, GitProvider, Trigger};
use domain::event::EventOrder;
use domain::git::{OwnerType, SuggestedTaskType};
use domain::id::{ApiKeyId, ConversationId, EventId, SandboxId, SpecId, StartTaskId, UserId};
use domain::page::{PageLimit, PageToken};
use domain::sandbox::SandboxStatus;
use domain::start_task::{AgentType, StartStatus, StartTaskOrder};
use domain::user::identity::Role;
use domain::user::usage::EventStorage;
use serde_json::Value;
use uuid::Uuid;

use super::scalar::SaturatedInt;
use super::{Choice, Decode, FieldError, FieldErrors, Path, Rule as _, bounds};

macro_rules! uuid_ids {
    ($($id:ident),*) => {$(
        impl Decode for $id {
            fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
                Uuid::decode(value, at, errors).map(Self::new)
            }
        }
    )*};
}

uuid_ids!(ApiKeyId, ConversationId, StartTaskId);

macro_rules! text_ids {
    ($($id:ident),*) => {$(
        impl Decode for $id {
            fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
                let text = String::decode(value, at, errors)?;
                let parsed = Self::parse(text).map_err(|error| errors.push(at, FieldError::value_error(error), value));
                parsed.ok()
            }
        }
    )*};
}

text_ids!(EventId, SandboxId, SpecId, UserId);

macro_rules! words {
    ($($words:ident),*) => {$(
        impl Choice for $words {
            const CHOICES: &'static [(&'static str, Self)] = Self::ALL;
        }
    )*};
}

words!(
    AgentType,
    ExecutionStatus,
    GitProvider,
    OwnerType,
    SandboxStatus,
    StartStatus,
    SuggestedTaskType,
    Trigger
);

impl Choice for Role {
    const CHOICES: &'static [(&'static str, Self)] = &[
        (Self::User.as_str(), Self::User),
        (Self::Admin.as_str(), Self::Admin),
    ];
}

impl Choice for AuditOutcome {
    const CHOICES: &'static [(&'static str, Self)] = &[
        (Self::Ok.as_str(), Self::Ok),
        (Self::Refused.as_str(), Self::Refused),
        (Self::Failed.as_str(), Self::Failed),
    ];
}

impl Choice for EventStorage {
    const CHOICES: &'static [(&'static str, Self)] = &[
        (Self::Complete.name(), Self::Complete),
        (Self::Shortened.name(), Self::Shortened),
        (Self::Stopped.name(), Self::Stopped),
    ];
}

impl Choice for EventOrder {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("TIMESTAMP", Self::Timestamp),
        ("TIMESTAMP_DESC", Self::TimestampDesc),
    ];
}

impl Choice for StartTaskOrder {
    const CHOICES: &'static [(&'static str, Self)] = &[
        ("CREATED_AT", Self::CreatedAt),
        ("CREATED_AT_DESC", Self::CreatedAtDesc),
        ("UPDATED_AT", Self::UpdatedAt),
        ("UPDATED_AT_DESC", Self::UpdatedAtDesc),
    ];
}

impl Decode for Timestamp {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        DateTime::<Utc>::decode(value, at, errors).map(Self::new)
    }
}

impl Decode for AuditActor {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let text = String::decode(value, at, errors)?;
        let parsed = text.parse::<Self>();
        let parsed = parsed.map_err(|error| errors.push(at, FieldError::value_error(error), value));
        parsed.ok()
    }
}

impl Decode for PageToken {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        String::decode(value, at, errors).map(Self)
    }
}

/// 1 to 100.
impl Decode for PageLimit {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        let SaturatedInt(limit) = SaturatedInt::decode(value, at, errors)?;
        // `gt` and `le`, as in the reference.
        let range = (Bound::Excluded(0), Bound::Included(100));
        if let Some(fault) = bounds(range).check(&limit) {
            errors.push(at, fault, value);
        }
        Self::new(limit)
    }
}
