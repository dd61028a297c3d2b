//! Identities at identity providers on the wire.

use domain::clock::Timestamp;
use domain::id::IdentityId;
use domain::user::single_sign_on::LinkedIdentity;

use crate::decode::model;
use crate::extract::NamedParam;

impl NamedParam for IdentityId {
    const NAME: &'static str = "identity_id";
}

/// An identity at an identity provider by which the caller signs in.
#[model(response = LinkedIdentity, from(identity: LinkedIdentity))]
pub(crate) struct LinkedIdentityDto {
    id: IdentityId,
    /// The provider, as the operator names it.
    #[from(identity.provider.to_string())]
    provider: String,
    /// The e-mail address that the provider named at the last login.
    email: Option<String>,
    created_at: Timestamp,
    /// The time of the last login.
    last_used_at: Timestamp,
}
