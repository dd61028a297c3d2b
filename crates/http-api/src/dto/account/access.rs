//! The caller on the wire. An addition: the reference has no roles.

use domain::id::{ApiKeyId, UserId};
use domain::user::identity::Role;

use crate::decode::model;
use crate::extract::Actor;

/// The caller.
#[model(response = Access, from(actor: Actor))]
pub(crate) struct AccessDto {
    /// The user's name, which is also the id.
    #[from(actor.user)]
    user_id: UserId,
    /// The user's role.
    role: Role,
    /// The key of this request; `null` for the local user in open mode.
    #[from(actor.key)]
    key_id: Option<ApiKeyId>,
}
