//! The caller on the wire. An addition: the reference has no roles.

use domain::id::ApiKeyId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::dto::account::administration::RoleDto;
use crate::extract::Actor;

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Access)]
pub struct AccessDto {
    /// The user's name, which is also the id.
    user_id: String,
    /// The user's role.
    role: RoleDto,
    /// The key of this request; `null` for the local user in open mode.
    #[schema(value_type = Option<String>, required)]
    key_id: Option<ApiKeyId>,
}

impl From<Actor> for AccessDto {
    fn from(actor: Actor) -> Self {
        Self {
            user_id: actor.user.to_string(),
            role: actor.role.into(),
            key_id: actor.key,
        }
    }
}
