//! Decodes types of the domain: ids, timestamps and pages.

use std::ops::Bound;

use chrono::{DateTime, Utc};
use domain::agent::spending::SpendingGroup;
use domain::audit::{AuditActor, AuditOutcome};
use domain::clock::Timestamp;
use domain::conversation::{ConversationOrder, ExecutionStatus, Trigger};
use domain::coordination::host::HostStatus;
use domain::event::EventOrder;
use domain::git::{GitProvider, OwnerType, SuggestedTaskType};
use domain::id::{
    AgentProfileId, ApiKeyId, ConversationId, EgressRequestId, EventId, HostId, IdentityId,
    InvitationId, OrganizationId, ProviderConnectionId, SandboxId, SessionId, SpecId, StartTaskId,
    UserId,
};
use domain::page::{PageLimit, PageToken};
use domain::sandbox::SandboxStatus;
use domain::start_task::{AgentType, StartStatus, StartTaskOrder};
use domain::user::egress::EgressDecision;
use domain::user::identity::Role;
use domain::user::mail::MailDelivery;
use domain::user::permission::MemberRole;
use domain::user::usage::EventStorage;
use serde_json::Value;
use uuid::Uuid;

use super::scalar::{SaturatedInt, text_of};
use super::{Choice, DecodeScalar, FieldError, bounds};

macro_rules! uuid_ids {
    ($($id:ident),*) => {$(
        impl DecodeScalar for $id {
            fn parse(value: &Value) -> Result<Self, FieldError> {
                Uuid::parse(value).map(Self::new)
            }
        }
    )*};
}

uuid_ids!(
    AgentProfileId,
    ApiKeyId,
    ConversationId,
    EgressRequestId,
    IdentityId,
    InvitationId,
    OrganizationId,
    ProviderConnectionId,
    SessionId,
    StartTaskId
);

macro_rules! texts {
    ($($name:ident),*) => {$(
        impl DecodeScalar for $name {
            fn parse(value: &Value) -> Result<Self, FieldError> {
                text_of(value)?.parse().map_err(FieldError::value_error)
            }
        }
    )*};
}

texts!(AuditActor, EventId, HostId, SandboxId, SpecId, UserId);

macro_rules! words {
    ($($words:ident),*) => {$(
        impl Choice for $words {
            const CHOICES: &'static [(&'static str, Self)] = Self::ALL;
        }
    )*};
}

words!(
    AgentType,
    AuditOutcome,
    ConversationOrder,
    EgressDecision,
    EventOrder,
    EventStorage,
    ExecutionStatus,
    GitProvider,
    HostStatus,
    MailDelivery,
    OwnerType,
    MemberRole,
    Role,
    SandboxStatus,
    SpendingGroup,
    StartStatus,
    StartTaskOrder,
    SuggestedTaskType,
    Trigger
);

impl DecodeScalar for Timestamp {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        DateTime::<Utc>::parse(value).map(Self::new)
    }
}

impl DecodeScalar for PageToken {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        String::parse(value).map(Self)
    }
}

/// 1 to 100.
impl DecodeScalar for PageLimit {
    fn parse(value: &Value) -> Result<Self, FieldError> {
        let SaturatedInt(limit) = SaturatedInt::parse(value)?;
        // `gt` and `le`, as in the reference.
        match bounds((Bound::Excluded(0), Bound::Included(100)))(&limit) {
            Some(fault) => Err(fault),
            None => Ok(Self::new(limit).unwrap_or_default()),
        }
    }
}
