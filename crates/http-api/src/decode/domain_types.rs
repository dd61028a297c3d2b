//! Decodes types of the domain: ids, timestamps and pages.

use std::ops::Bound;

use chrono::{DateTime, Utc};
use domain::clock::Timestamp;
use domain::conversation::{GitProvider, Trigger};
use domain::id::{ApiKeyId, ConversationId, EventId, SandboxId, SpecId, StartTaskId};
use domain::page::{PageLimit, PageRequest, PageToken};
use domain::start_task::AgentType;
use serde_json::Value;
use uuid::Uuid;

use super::scalar::SaturatedInt;
use super::{Choice, Decode, FieldError, FieldErrors, Object, Path, bounds};

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

text_ids!(EventId, SandboxId, SpecId);

macro_rules! words {
    ($($words:ident),*) => {$(
        impl Choice for $words {
            const CHOICES: &'static [(&'static str, Self)] = Self::ALL;
        }
    )*};
}

words!(AgentType, GitProvider, Trigger);

impl Decode for Timestamp {
    fn decode(value: &Value, at: &Path<'_>, errors: &mut FieldErrors) -> Option<Self> {
        DateTime::<Utc>::decode(value, at, errors).map(Self::new)
    }
}

impl<Model: Decode> Object<'_, Model> {
    /// Any integer; beyond 64 bits, the nearest one. Legacy routes use it for page lengths and numbers.
    pub fn integer(&mut self, key: &'static str, usual: i64) -> Option<i64> {
        let integer = self.default(key, || SaturatedInt(usual));
        integer.map(|SaturatedInt(integer)| integer)
    }

    /// `page_id` and `limit` (1 to 100) of a search; `usual` is the default limit.
    pub fn page(&mut self, usual: PageLimit) -> Option<PageRequest> {
        let after = self.optional::<String>("page_id");
        let limit = self.default("limit", || {
            SaturatedInt(i64::try_from(usual.get()).unwrap_or(100))
        });
        let limit = limit.map(|SaturatedInt(limit)| limit);
        self.rule(
            "limit",
            limit.as_ref(),
            bounds((Bound::Excluded(0), Bound::Included(100))),
        );
        let limit = limit.and_then(PageLimit::new);
        Some(PageRequest {
            after: after?.map(PageToken),
            limit: limit?,
        })
    }
}
