//! Organizations, members and invitations on the wire. Users are named by the UUID that is also the id of their personal
//! organization.

use application::organizations::{MemberView, OrganizationView};
use domain::agent::spending::NanoUsd;
use domain::clock::Timestamp;
use domain::id::{InvitationId, OrganizationId, UserId};
use domain::page::PageLimit;
use domain::patch::Patch;
use domain::user::mail::MailDelivery;
use domain::user::organization::{Invitation, MAX_EMAIL_CHARS, OrganizationUpdate};
use domain::user::permission::{MemberRole, Permission};
use secrecy::SecretString;

use crate::decode::model;
use crate::dto::secret_text::SecretText;
use crate::extract::{Actor, NamedParam};

impl NamedParam for InvitationId {
    const NAME: &'static str = "invitation_id";
}

/// An organization.
#[model(response = Organization, from(found: OrganizationView))]
pub(crate) struct OrganizationDto {
    id: OrganizationId,
    /// The name; for a personal organization, that of the user.
    name: String,
    /// Whether it belongs to one user, and has no other members.
    is_personal: bool,
    /// What all members together may spend on models in a calendar month (UTC), in US dollars; `null`: no limit.
    #[from(found.month_budget.map(NanoUsd::dollars))]
    month_budget: Option<f64>,
}

/// The organizations of a user.
#[model(response = Organizations)]
pub(crate) struct OrganizationsDto {
    /// The personal one first.
    pub(crate) items: Vec<OrganizationDto>,
    /// The organization in which requests without `X-Org-Id` act.
    pub(crate) current_org_id: OrganizationId,
}

/// A new organization.
#[model(body = OrganizationCreate)]
pub(crate) struct NewOrganizationDto {
    /// 1 to 100 characters.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// The login name of the first owner; the caller if absent.
    pub owner: Option<UserId>,
}

/// A change of an organization.
#[model(body = OrganizationUpdate, into = OrganizationUpdate)]
pub(crate) struct OrganizationUpdateDto {
    /// 1 to 100 characters; absent or null keeps the stored one.
    #[schema(min_length = 1, max_length = 100)]
    name: Option<String>,
    /// What all members together may spend on models in a calendar month (UTC), in US dollars. Absent keeps the stored one, null
    /// removes it.
    #[validate(range(min = 0.01, max = 1_000_000.0))]
    #[into(budget(&month_budget))]
    month_budget: Patch<f64>,
}

fn budget(dollars: &Patch<f64>) -> Patch<NanoUsd> {
    match dollars {
        Patch::Keep => Patch::Keep,
        Patch::Set(dollars) => NanoUsd::from_dollars(*dollars).map_or(Patch::Clear, Patch::Set),
        Patch::Clear => Patch::Clear,
    }
}

/// The caller's membership in an organization.
#[model(response = OrganizationMembership, from(actor: &Actor))]
pub(crate) struct MembershipDto {
    #[from(actor.owner.organization())]
    org_id: OrganizationId,
    /// The same as `org_id` in a personal organization: front ends recognise it by that.
    #[schema(value_type = String)]
    #[from(OrganizationId::personal(&actor.user))]
    user_id: OrganizationId,
    /// `owner`, `admin` or `member`.
    #[from(actor.member_role)]
    role: MemberRole,
    /// What the caller may do.
    #[schema(value_type = Vec<String>)]
    #[from(permissions(actor))]
    permissions: Vec<&'static str>,
}

impl MembershipDto {
    pub(crate) fn user_id(&self) -> OrganizationId {
        self.user_id
    }

    /// The same where there are no automations: front ends ask for them only with a permission.
    pub(crate) fn without_automations(mut self) -> Self {
        self.permissions
            .retain(|name| !name.ends_with("_automations"));
        self
    }
}

fn permissions(actor: &Actor) -> Vec<&'static str> {
    let all = actor.permissions();
    all.into_iter().map(Permission::as_str).collect()
}

/// A member of an organization.
#[model(response = OrganizationMember, from(found: MemberView))]
pub(crate) struct MemberDto {
    #[from(found.membership.organization)]
    org_id: OrganizationId,
    #[from(OrganizationId::personal(&found.membership.user))]
    user_id: OrganizationId,
    /// The login name.
    #[from(found.membership.user.clone())]
    name: UserId,
    /// The address for which an identity provider or an operator vouches; `null` without one.
    email: Option<String>,
    /// The role as a number: 0 is the highest.
    #[from(i64::from(found.membership.role.rank()))]
    role_id: i64,
    #[from(found.membership.role)]
    role: MemberRole,
    /// The same as `role_id`.
    #[from(i64::from(found.membership.role.rank()))]
    role_rank: i64,
    /// Always `active`.
    #[schema(value_type = String)]
    #[from("active")]
    status: &'static str,
}

/// A page of members.
#[model(response = OrganizationMemberPage)]
pub(crate) struct MemberPageDto {
    /// The members of this page, by name.
    pub(crate) items: Vec<MemberDto>,
    /// The number of this page; the first is 1.
    pub(crate) current_page: i64,
    /// Maximum number of items on a page.
    pub(crate) per_page: i64,
    /// The next page's `page_id`.
    pub(crate) next_page_id: Option<String>,
}

/// The members to list.
#[model(query)]
pub(crate) struct MemberQuery {
    /// Part of the name.
    #[validate(length(max = 254))]
    pub email: Option<String>,
    /// Part of the name.
    #[validate(length(max = 254))]
    pub name: Option<String>,
}

/// The page of members, by its number.
#[model(query)]
pub(crate) struct MemberPageQuery {
    /// The number of the page; the first is 1.
    #[decode(default = 1)]
    #[validate(range(min = 1, max = 100_000))]
    pub page_id: i64,
    /// Maximum number of items on the page.
    #[decode(default = PageLimit::new(100).unwrap_or_default())]
    #[param(value_type = i64, minimum = 1, maximum = 100, default = 100)]
    pub limit: PageLimit,
}

/// A change of a member.
#[model(body = OrganizationMemberUpdate)]
pub(crate) struct MemberUpdateDto {
    /// The new role.
    pub role: MemberRole,
}

/// Whom to invite.
#[model(body = OrganizationInvite)]
pub(crate) struct InviteDto {
    /// One invitation is made for each address, and one for anyone with the link if there is none. Each address gets a mail if
    /// the service sends mail.
    #[validate(length(max = 50))]
    #[decode(default)]
    #[schema(required)]
    pub emails: Vec<String>,
    /// The role of the new members.
    #[decode(default = MemberRole::Member)]
    #[schema(required, default = "member")]
    pub role: MemberRole,
}

/// Refuses a text that is no e-mail address in one line.
pub(crate) fn is_email(text: &str) -> bool {
    let has_both_parts = text
        .rsplit_once('@')
        .is_some_and(|(name, domain)| !name.is_empty() && !domain.is_empty());
    has_both_parts
        && text.chars().count() <= MAX_EMAIL_CHARS
        && !text.chars().any(|c| c.is_control() || c.is_whitespace())
}

/// An invitation.
#[model(response = OrganizationInvitation, from(
    found: Invitation,
    invite_url: Option<SecretText>,
    email_delivery: Option<MailDelivery>,
))]
pub(crate) struct InvitationDto {
    id: InvitationId,
    #[from(found.organization)]
    org_id: OrganizationId,
    email: Option<String>,
    role: MemberRole,
    /// The login name of the inviter.
    inviter: UserId,
    created_at: Timestamp,
    /// When the link stops working.
    expires_at: Timestamp,
    /// The link, only in the response that makes the invitation.
    #[from(invite_url)]
    invite_url: Option<SecretText>,
    /// Whether the mail was sent, only in the response that makes the invitation. `null`: no mail is meant.
    #[from(email_delivery)]
    email_delivery: Option<MailDelivery>,
}

/// The pending invitations of an organization.
#[model(response = OrganizationInvitations)]
pub(crate) struct InvitationsDto {
    /// Oldest first.
    pub(crate) items: Vec<InvitationDto>,
}

/// An address that was not invited.
#[model(response = FailedInvitation)]
pub(crate) struct FailedInvitationDto {
    /// The address as it was given.
    pub(crate) email: String,
    /// Why it was not invited.
    pub(crate) error: String,
}

/// The invitations that were made.
#[model(response = OrganizationInviteResult)]
pub(crate) struct InviteResultDto {
    /// The new invitations, with their links.
    pub(crate) successful: Vec<InvitationDto>,
    /// The addresses that were refused.
    pub(crate) failed: Vec<FailedInvitationDto>,
    /// Whether the service sends mail. Otherwise the inviter passes the link on.
    pub(crate) email_delivery_configured: bool,
}

/// The token of an invitation.
#[model(body = InvitationAccept)]
pub(crate) struct AcceptInvitationDto {
    /// The part of the link after `#`.
    pub token: SecretString,
}

/// The organization that the caller has joined.
#[model(response = InvitationAccepted, from(found: OrganizationView))]
pub(crate) struct AcceptedInvitationDto {
    #[from(true)]
    success: bool,
    #[from(found.id)]
    org_id: OrganizationId,
    /// The name of the organization.
    #[from(found.name.clone())]
    org_name: String,
    role: MemberRole,
}

/// The number of members.
#[model(response = OrganizationMemberCount)]
pub(crate) struct MemberCountDto {
    /// The number.
    pub(crate) count: i64,
}

/// Organization and member in a path.
#[model]
#[derive(Debug, Clone)]
pub(crate) struct MemberParams {
    /// The user's UUID, or the login name.
    #[decode(rename = "user_id")]
    pub user: String,
}
