//! The members of the organization in which a caller acts.

use domain::clock::Clock;
use domain::id::{OrganizationId, UserId};
use domain::user::organization::{
    MAX_MEMBERS_PER_ORGANIZATION, MemberFilter, Membership, OrganizationChange,
};
use domain::user::permission::MemberRole;

use super::texts::member_not_found;
use super::{OrganizationService, shared};
use crate::AppError;
use crate::identity::authenticate::AuthenticatedUser;
use crate::identity::changes::Origin;

/// A member, as lists show them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberView {
    pub membership: Membership,
    /// The address for which an identity provider or an operator vouches. Others see no address that users enter themselves.
    pub email: Option<String>,
}

impl OrganizationService {
    /// Members by name, without the first `skip`.
    pub async fn members(
        &self,
        caller: &AuthenticatedUser,
        filter: &MemberFilter,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<MemberView>, AppError> {
        let found = if let Some(id) = caller.owner.shared_organization() {
            self.organizations.members(id, filter, skip, limit).await?
        } else {
            let own = own_membership(caller, self.clock.as_ref());
            let own = std::iter::once(own).filter(|own| matches_name(own, filter));
            own.skip(skip).take(limit).collect()
        };
        self.with_emails(found).await
    }

    async fn with_emails(&self, found: Vec<Membership>) -> Result<Vec<MemberView>, AppError> {
        let users: Vec<UserId> = found.iter().map(|it| it.user.clone()).collect();
        let mut emails = self.identities.verified_emails(&users).await?;
        let view = |membership: Membership| MemberView {
            email: emails.remove(&membership.user),
            membership,
        };
        Ok(found.into_iter().map(view).collect())
    }

    async fn with_email(&self, membership: Membership) -> Result<MemberView, AppError> {
        let email = self.identities.email(&membership.user).await?;
        let email = email.filter(|email| email.is_verified);
        Ok(MemberView {
            email: email.map(|email| email.address),
            membership,
        })
    }

    pub async fn count_members(
        &self,
        caller: &AuthenticatedUser,
        filter: &MemberFilter,
    ) -> Result<u64, AppError> {
        let Some(id) = caller.owner.shared_organization() else {
            let own = own_membership(caller, self.clock.as_ref());
            return Ok(u64::from(matches_name(&own, filter)));
        };
        Ok(self.organizations.count_members(id, filter).await?)
    }

    /// A member of the organization in which the caller acts. Members are named by login name or by the user's UUID.
    pub async fn member(
        &self,
        caller: &AuthenticatedUser,
        named: &str,
    ) -> Result<MemberView, AppError> {
        let found = self.find_member(caller, named).await?;
        self.with_email(found).await
    }

    async fn find_member(
        &self,
        caller: &AuthenticatedUser,
        named: &str,
    ) -> Result<Membership, AppError> {
        let Some(id) = caller.owner.shared_organization() else {
            let own = own_membership(caller, self.clock.as_ref());
            let is_own = names_user(named, &own.user);
            return is_own.then_some(own).ok_or_else(member_not_found);
        };
        if let Ok(user) = UserId::parse(named)
            && let Some(found) = self.organizations.membership(id, &user).await?
        {
            return Ok(found);
        }
        if named.parse::<OrganizationId>().is_err() {
            return Err(member_not_found());
        }
        // The UUID of a user is a hash of the name, so only a search finds it. The number of members is bounded.
        let (filter, limit) = (MemberFilter::default(), MAX_MEMBERS_PER_ORGANIZATION);
        let all = self.organizations.members(id, &filter, 0, limit).await?;
        let found = all.into_iter().find(|it| names_user(named, &it.user));
        found.ok_or_else(member_not_found)
    }

    pub async fn set_member_role(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        named: &str,
        role: MemberRole,
    ) -> Result<MemberView, AppError> {
        let organization = shared(caller)?;
        let found = self.find_member(caller, named).await?;
        if found.user == caller.user {
            return Err(AppError::conflict(
                "You cannot change your own role: another owner or administrator can",
            ));
        }
        let change = OrganizationChange::SetMemberRole {
            organization,
            user: found.user.clone(),
            before: found.role,
            role,
        };
        self.administer(origin, change).await?;
        self.with_email(Membership { role, ..found }).await
    }

    /// Ends a membership: the caller leaves, or removes another member. Their keys for this organization end, and their
    /// sandboxes in it pause.
    pub async fn remove_member(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        named: &str,
    ) -> Result<(), AppError> {
        let organization = shared(caller)?;
        let found = self.find_member(caller, named).await?;
        let change = OrganizationChange::RemoveMember {
            organization,
            user: found.user,
            before: found.role,
        };
        self.administer(origin, change).await
    }
}

/// The membership of a user in their personal organization. It has no row; its time is that of the request, and is not shown.
fn own_membership(caller: &AuthenticatedUser, clock: &dyn Clock) -> Membership {
    Membership {
        organization: caller.owner.organization(),
        user: caller.user.clone(),
        role: MemberRole::Owner,
        created_at: clock.now(),
    }
}

fn matches_name(own: &Membership, filter: &MemberFilter) -> bool {
    let name = own.user.as_str().to_ascii_lowercase();
    let part = filter.name.as_deref().map(str::to_ascii_lowercase);
    part.is_none_or(|part| name.contains(&part))
}

/// Whether a text names the user: by login name or by the UUID that the API shows.
fn names_user(named: &str, user: &UserId) -> bool {
    let id = named.parse::<OrganizationId>();
    named == user.as_str() || id.is_ok_and(|id| id == OrganizationId::personal(user))
}
