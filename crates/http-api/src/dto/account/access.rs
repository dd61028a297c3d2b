//! The caller on the wire. An addition: the reference has no roles.

use domain::id::{ApiKeyId, UserId};

use crate::decode::model;
use crate::dto::enums::RoleSchema;
use crate::extract::Actor;

/// The caller.
#[model(response = Access, from(actor: Actor))]
pub struct AccessDto {
    /// The user's name, which is also the id.
    #[from(actor.user)]
    user_id: UserId,
    /// The user's role.
    #[from(actor.role.as_str())]
    #[schema(value_type = RoleSchema)]
    role: &'static str,
    /// The key of this request; `null` for the local user in open mode.
    #[from(actor.key)]
    key_id: Option<ApiKeyId>,
}
