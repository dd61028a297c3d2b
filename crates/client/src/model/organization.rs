//! Organizations, their members, and invitations.

use serde::{Deserialize, Serialize};

use super::secret::Secret;
use super::string_enums::{MailDelivery, MemberRole};
use super::time::UtcTime;

/// An organization.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Organization {
    pub id: String,
    pub name: String,
    /// Whether it belongs to one user, and has no other members.
    pub is_personal: bool,
    /// What all members together may spend on models in a calendar month, in US dollars.
    pub month_budget: Option<f64>,
}

/// The organizations of a user.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OrganizationList {
    /// The personal one first.
    pub items: Vec<Organization>,
    pub current_org_id: String,
}

/// A member of an organization.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrganizationMember {
    pub org_id: String,
    pub user_id: String,
    /// The login name.
    pub name: String,
    /// The address for which an identity provider or an operator vouches.
    pub email: Option<String>,
    pub role_id: i64,
    pub role: MemberRole,
    pub role_rank: i64,
    pub status: String,
}

/// A page of members.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrganizationMemberPage {
    pub items: Vec<OrganizationMember>,
    pub current_page: i64,
    pub per_page: i64,
    pub next_page_id: Option<String>,
}

/// Whom to invite.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrganizationInvite {
    /// One invitation is made for each address.
    pub emails: Vec<String>,
    pub role: MemberRole,
}

/// An invitation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrganizationInvitation {
    pub id: String,
    pub org_id: String,
    pub email: Option<String>,
    pub role: MemberRole,
    /// The login name of the inviter.
    pub inviter: String,
    pub created_at: UtcTime,
    pub expires_at: UtcTime,
    /// The link; the service shows it only in the response that makes the invitation.
    pub invite_url: Option<Secret>,
    /// Whether the mail was sent, in the same response. `None`: no mail is meant.
    pub email_delivery: Option<MailDelivery>,
}

/// An address that was not invited.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FailedInvitation {
    pub email: String,
    pub error: String,
}

/// The invitations that were made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrganizationInviteResult {
    pub successful: Vec<OrganizationInvitation>,
    pub failed: Vec<FailedInvitation>,
    pub email_delivery_configured: bool,
}
