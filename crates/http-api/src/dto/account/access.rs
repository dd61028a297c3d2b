//! Who is calling, on the wire. Ours: the reference has no roles.

use domain::id::ApiKeyId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::dto::account::administration::RoleDto;
use crate::extract::Actor;

/// Who is calling.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Access)]
pub struct AccessDto {
    /// The name, which is the id.
    user_id: String,
    /// What they may do.
    role: RoleDto,
    /// The key of this request; `null` for the local user of an open service, who needs none.
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
