//! Organizations on the wire. Each user has one, of which they are the owner and the only member.

use domain::id::{OrganizationId, UserId};

use crate::decode::model;

/// An organization.
#[model(response = Organization, from(user: &UserId))]
pub(crate) struct OrganizationDto {
    #[from(OrganizationId::personal(user))]
    id: OrganizationId,
    /// The name of the user.
    #[from(user.clone())]
    name: UserId,
    /// Always true: it has no other members.
    #[from(true)]
    is_personal: bool,
}

/// The organizations of a user.
#[model(response = Organizations, from(user: &UserId))]
pub(crate) struct OrganizationsDto {
    /// Exactly one: the user's own.
    #[schema(min_items = 1, max_items = 1)]
    #[from([user.into()])]
    items: [OrganizationDto; 1],
    /// The only organization.
    #[from(OrganizationId::personal(user))]
    current_org_id: OrganizationId,
}

/// What the owner of an organization may do, in the words of front ends. Permissions for what the service does not have
/// are left out: members, billing, automations.
const OWNER_PERMISSIONS: [&str; 9] = [
    "manage_secrets",
    "manage_mcp",
    "manage_integrations",
    "manage_application_settings",
    "manage_api_keys",
    "view_llm_settings",
    "edit_llm_settings",
    "view_org_settings",
    "edit_org_settings",
];

/// A user's membership in their organization.
#[model(response = OrganizationMember, from(user: &UserId))]
pub(crate) struct MemberDto {
    #[from(OrganizationId::personal(user))]
    org_id: OrganizationId,
    /// The same as `org_id`: front ends recognise a personal organization by it.
    #[schema(value_type = String)]
    #[from(OrganizationId::personal(user))]
    user_id: OrganizationId,
    /// Always `owner`.
    #[from("owner")]
    role: &'static str,
    /// What the caller may do.
    #[from(OWNER_PERMISSIONS)]
    permissions: [&'static str; OWNER_PERMISSIONS.len()],
}

/// Keys of model providers that several profiles share. There are none; each profile has its own key.
#[model(response = ProviderConnections)]
pub(crate) struct ProviderConnectionsDto {
    /// Always empty.
    #[schema(value_type = Vec<serde_json::Value>)]
    connections: [(); 0],
}

impl ProviderConnectionsDto {
    pub(crate) const NONE: Self = Self { connections: [] };
}
