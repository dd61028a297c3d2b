//! Organizations on the wire. Each user has one, of which they are the owner and the only member.

use domain::id::{OrganizationId, UserId};
use serde::Serialize;
use utoipa::ToSchema;

/// An organization.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Organization)]
pub struct OrganizationDto {
    #[schema(value_type = String)]
    id: OrganizationId,
    /// The name of the user.
    name: String,
    /// Always true: it has no other members.
    is_personal: bool,
}

/// The organizations of a user.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Organizations)]
pub struct OrganizationsDto {
    /// Exactly one: the user's own.
    #[schema(min_items = 1, max_items = 1)]
    items: [OrganizationDto; 1],
    /// The only organization.
    #[schema(value_type = String)]
    current_org_id: OrganizationId,
}

impl OrganizationsDto {
    /// The organizations of a user.
    pub fn of(user: &UserId) -> Self {
        let id = OrganizationId::personal(user);
        let organization = OrganizationDto {
            id,
            name: user.to_string(),
            is_personal: true,
        };
        Self {
            items: [organization],
            current_org_id: id,
        }
    }
}

/// A user's membership in their organization.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OrganizationMember)]
pub struct MemberDto {
    #[schema(value_type = String)]
    org_id: OrganizationId,
    /// The user's name.
    user_id: String,
    /// Always `owner`.
    role: &'static str,
    /// Only `edit_org_settings`, for model profiles. There are no automations and no other members.
    permissions: [&'static str; 1],
}

impl MemberDto {
    /// The owner of their own organization.
    pub fn owner(user: &UserId) -> Self {
        Self {
            org_id: OrganizationId::personal(user),
            user_id: user.to_string(),
            role: "owner",
            permissions: ["edit_org_settings"],
        }
    }
}

/// Keys of model providers that several profiles share. There are none; each profile has its own key.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProviderConnections)]
pub struct ProviderConnectionsDto {
    /// Always empty.
    #[schema(value_type = Vec<serde_json::Value>)]
    connections: [(); 0],
}

impl ProviderConnectionsDto {
    /// The only value.
    pub const NONE: Self = Self { connections: [] };
}
