//! The minimal responses that the web front end of the 1.20 line expects of a hosted service, about keys and agents. Without
//! them it cannot connect or start a conversation.

use domain::id::UserId;

use crate::decode::model;

/// The key of a request.
#[model(response = CurrentApiKey, not_required, from(user: &UserId))]
pub(crate) struct CurrentKeyDto {
    #[from(user.clone())]
    user_id: UserId,
    /// Always null: keys do not belong to organizations.
    #[from(None)]
    org_id: Option<String>,
}

/// Whether automations are available.
#[model(response = AutomationHealth)]
pub(crate) struct AutomationHealthDto {
    /// `ok`, or `error` if there are no automations.
    status: &'static str,
    /// What front ends show if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl AutomationHealthDto {
    pub(crate) fn available() -> Self {
        Self {
            status: "ok",
            message: None,
        }
    }

    pub(crate) fn unavailable(reason: &str) -> Self {
        Self {
            status: "error",
            message: Some(reason.to_owned()),
        }
    }
}
