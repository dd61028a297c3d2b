//! Organizations that users share: which one a request acts in, their members, and the invitations to join them.
//!
//! Each change is one transaction with its audit entry, in which the store authorizes the caller anew. A personal
//! organization has no rows; it is answered from the user's name.

mod texts;

use std::sync::Arc;

use domain::clock::{Clock, Timestamp};
use domain::error::{ErrorClass, StoreError};
use domain::id::{IdGenerator, InvitationId, OrganizationId, OwnerId, UserId};
use domain::user::identity::{AdminChange, AdministrationRepository, KeyHash};
use domain::user::organization::{
    INVITATION_TTL, Invitation, MAX_ORGANIZATION_NAME_CHARS, MemberFilter, Membership,
    Organization, OrganizationChange, OrganizationDeletionRepository, OrganizationRepository,
};
use domain::user::permission::{MemberRole, Permission};
use secrecy::{ExposeSecret as _, SecretString};

use self::texts::{INVITATION_REFUSED, member_not_found, organization_not_found};
pub(super) use self::texts::{describe, refusal};
use super::administration::{CallerCaches, Origin, administer};
use super::authenticate::AuthenticatedUser;
use super::users;
use crate::sandboxes::SandboxReconciler;
use crate::{AppError, Ports};

/// An organization of a user, as lists show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrganizationView {
    pub id: OrganizationId,
    /// The user's name, for the personal one.
    pub name: String,
    pub is_personal: bool,
    pub role: MemberRole,
}

/// An invitation that was just made, with the token for its link. The store has only the hash.
#[derive(Debug)]
pub struct NewInvitation {
    pub invitation: Invitation,
    pub token: SecretString,
}

#[derive(Clone)]
pub struct OrganizationService {
    organizations: Arc<dyn OrganizationRepository>,
    deletions: Arc<dyn OrganizationDeletionRepository>,
    administration: Arc<dyn AdministrationRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    caches: CallerCaches,
    reconciler: SandboxReconciler,
}

impl OrganizationService {
    pub(crate) fn new(ports: &Ports, caches: CallerCaches, reconciler: SandboxReconciler) -> Self {
        Self {
            organizations: Arc::clone(&ports.organizations),
            deletions: Arc::clone(&ports.organization_deletions),
            administration: Arc::clone(&ports.administration),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            caches,
            reconciler,
        }
    }

    /// The caller, acting in this organization. `None` if they are no member, or their key is bound to another one. One
    /// look-up, and none for the organization in which the caller acts already or their personal one.
    pub async fn act_in(
        &self,
        caller: AuthenticatedUser,
        id: OrganizationId,
    ) -> Result<Option<AuthenticatedUser>, AppError> {
        if id == caller.owner.organization() {
            return Ok(Some(caller));
        }
        if caller.bound_to.is_some() {
            return Ok(None);
        }
        let role = if id == OrganizationId::personal(&caller.user) {
            MemberRole::Owner
        } else {
            match self.organizations.membership(id, &caller.user).await? {
                Some(found) => found.role,
                None => return Ok(None),
            }
        };
        Ok(Some(AuthenticatedUser {
            owner: OwnerId::new(&caller.user, id),
            member_role: role,
            ..caller
        }))
    }

    /// The organizations of a user: the personal one, then the shared ones by name. A bound key shows its own only.
    pub async fn list(
        &self,
        caller: &AuthenticatedUser,
    ) -> Result<Vec<OrganizationView>, AppError> {
        let personal = personal(&caller.user);
        let shared = self.organizations.list_of_user(&caller.user).await?;
        let shared = shared.into_iter().map(|(it, role)| view(it, role));
        let all = std::iter::once(personal).chain(shared);
        let is_visible = |it: &OrganizationView| caller.bound_to.is_none_or(|bound| bound == it.id);
        Ok(all.filter(is_visible).collect())
    }

    /// The organization in which the caller acts.
    pub async fn current(&self, caller: &AuthenticatedUser) -> Result<OrganizationView, AppError> {
        let Some(id) = caller.owner.shared_organization() else {
            return Ok(personal(&caller.user));
        };
        let found = self.organizations.find(id).await?;
        let found = found.ok_or_else(organization_not_found)?;
        Ok(view(found, caller.member_role))
    }

    pub async fn create(
        &self,
        origin: &Origin,
        name: &str,
        owner: &UserId,
    ) -> Result<OrganizationView, AppError> {
        let organization = Organization {
            id: OrganizationId::new(self.ids.uuid()),
            name: checked_name(name)?,
            created_at: self.clock.now(),
        };
        let change = OrganizationChange::Create {
            organization: organization.clone(),
            owner: owner.clone(),
        };
        self.administer(origin, change).await?;
        Ok(view(organization, MemberRole::Owner))
    }

    pub async fn rename(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        name: &str,
    ) -> Result<OrganizationView, AppError> {
        let change = OrganizationChange::Rename {
            organization: shared(caller)?,
            name: checked_name(name)?,
        };
        self.administer(origin, change).await?;
        self.current(caller).await
    }

    /// Deletes an organization and all that its members own in it; their sandboxes follow shortly after.
    pub async fn delete(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
    ) -> Result<(), AppError> {
        let id = shared(caller)?;
        let change = OrganizationChange::Delete { organization: id };
        self.administer(origin, change).await?;
        users::purge_organization(self.deletions.as_ref(), self.clock.as_ref(), id).await?;
        self.reconciler.request_relist();
        Ok(())
    }

    /// Members by name, without the first `skip`.
    pub async fn members(
        &self,
        caller: &AuthenticatedUser,
        filter: &MemberFilter,
        skip: usize,
        limit: usize,
    ) -> Result<Vec<Membership>, AppError> {
        let Some(id) = caller.owner.shared_organization() else {
            let own = own_membership(caller, self.clock.as_ref());
            let own = std::iter::once(own).filter(|own| matches_name(own, filter));
            return Ok(own.skip(skip).take(limit).collect());
        };
        Ok(self.organizations.members(id, filter, skip, limit).await?)
    }

    pub async fn count_members(
        &self,
        caller: &AuthenticatedUser,
        filter: &MemberFilter,
    ) -> Result<u64, AppError> {
        match caller.owner.shared_organization() {
            Some(id) => Ok(self.organizations.count_members(id, filter).await?),
            None => Ok(self.members(caller, filter, 0, 1).await?.len() as u64),
        }
    }

    /// A member of the organization in which the caller acts. Members are named by login name or by the user's UUID.
    pub async fn member(
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
        let limit = domain::user::organization::MAX_MEMBERS_PER_ORGANIZATION;
        let all = self
            .organizations
            .members(id, &MemberFilter::default(), 0, limit)
            .await?;
        let found = all.into_iter().find(|it| names_user(named, &it.user));
        found.ok_or_else(member_not_found)
    }

    pub async fn set_member_role(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        named: &str,
        role: MemberRole,
    ) -> Result<Membership, AppError> {
        let organization = shared(caller)?;
        let found = self.member(caller, named).await?;
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
        Ok(Membership { role, ..found })
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
        let found = self.member(caller, named).await?;
        let change = OrganizationChange::RemoveMember {
            organization,
            user: found.user,
            before: found.role,
        };
        self.administer(origin, change).await
    }

    /// Makes one invitation for each address, or one without an address.
    pub async fn invite(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        emails: &[String],
        role: MemberRole,
    ) -> Result<Vec<NewInvitation>, AppError> {
        let organization = shared(caller)?;
        let emails: Vec<Option<String>> = match emails {
            [] => vec![None],
            emails => emails.iter().cloned().map(Some).collect(),
        };
        let now = self.clock.now();
        let new = emails.into_iter().map(|email| {
            let token = self.ids.secret();
            let invitation = Invitation {
                id: InvitationId::new(self.ids.uuid()),
                hash: KeyHash::of(token.expose_secret()),
                organization,
                email,
                role,
                inviter: caller.user.clone(),
                created_at: now,
                expires_at: now.plus(INVITATION_TTL),
            };
            NewInvitation { invitation, token }
        });
        let new: Vec<NewInvitation> = new.collect();
        let change = OrganizationChange::Invite {
            organization,
            invitations: new.iter().map(|it| it.invitation.clone()).collect(),
        };
        self.administer(origin, change).await?;
        Ok(new)
    }

    /// The invitations that can still be accepted, oldest first.
    pub async fn invitations(
        &self,
        caller: &AuthenticatedUser,
    ) -> Result<Vec<Invitation>, AppError> {
        let Some(id) = caller.owner.shared_organization() else {
            return Ok(Vec::new());
        };
        if !caller.member_role.may(Permission::InviteUser) {
            return Err(StoreError::MemberNotPermitted.into());
        }
        let now = self.clock.now();
        let mut found = self.organizations.invitations(id).await?;
        found.retain(|it| it.expires_at > now);
        Ok(found)
    }

    pub async fn withdraw_invitation(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        id: InvitationId,
    ) -> Result<(), AppError> {
        let change = OrganizationChange::WithdrawInvitation {
            organization: shared(caller)?,
            id,
        };
        self.administer(origin, change).await
    }

    /// The invitation of this link, while it can be accepted.
    pub async fn find_invitation(
        &self,
        token: &str,
    ) -> Result<(Invitation, Organization), AppError> {
        find_valid_invitation(self.organizations.as_ref(), token, self.clock.now()).await
    }

    /// Makes the caller a member, by the invitation of this link.
    pub async fn accept(
        &self,
        origin: &Origin,
        user: &UserId,
        token: &str,
    ) -> Result<OrganizationView, AppError> {
        let (invitation, organization) = self.find_invitation(token).await?;
        let change = OrganizationChange::AcceptInvitation {
            organization: organization.id,
            invitation: invitation.hash,
            user: user.clone(),
        };
        self.administer(origin, change).await?;
        Ok(view(organization, invitation.role))
    }

    /// Sets the organization in which the caller's sessions act.
    pub async fn switch(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
    ) -> Result<(), AppError> {
        let change = OrganizationChange::Switch {
            organization: caller.owner.organization(),
            user: caller.user.clone(),
        };
        self.administer(origin, change).await
    }

    async fn administer(
        &self,
        origin: &Origin,
        change: OrganizationChange,
    ) -> Result<(), AppError> {
        let (ids, now) = (self.ids.as_ref(), self.clock.now());
        let change = AdminChange::Organization(change);
        let done = administer(self.administration.as_ref(), origin, ids, now, &change).await;
        // After a failure too: the change may have been committed.
        self.caches.clear_all();
        self.reconciler.request_relist();
        done.map(drop)
    }
}

/// The invitation of this link, while it can be accepted.
pub(super) async fn find_valid_invitation(
    organizations: &dyn OrganizationRepository,
    token: &str,
    now: Timestamp,
) -> Result<(Invitation, Organization), AppError> {
    let found = organizations.find_invitation(&KeyHash::of(token)).await?;
    let valid = found.filter(|(it, _)| it.expires_at > now);
    valid.ok_or_else(|| AppError::invalid(INVITATION_REFUSED))
}

fn view(organization: Organization, role: MemberRole) -> OrganizationView {
    OrganizationView {
        id: organization.id,
        name: organization.name,
        is_personal: false,
        role,
    }
}

fn personal(user: &UserId) -> OrganizationView {
    OrganizationView {
        id: OrganizationId::personal(user),
        name: user.to_string(),
        is_personal: true,
        role: MemberRole::Owner,
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

/// The shared organization in which the caller acts.
fn shared(caller: &AuthenticatedUser) -> Result<OrganizationId, AppError> {
    caller.owner.shared_organization().ok_or_else(|| {
        AppError::conflict(
            "This is a personal organization, which cannot be shared, renamed or deleted: ask an administrator for a \
             shared one",
        )
    })
}

/// Checks a name that a person chose.
fn checked_name(name: &str) -> Result<String, AppError> {
    let name = name.trim();
    let is_name = (1..=MAX_ORGANIZATION_NAME_CHARS).contains(&name.chars().count())
        && !name.chars().any(char::is_control);
    if is_name {
        return Ok(name.to_owned());
    }
    Err(AppError::refused(
        ErrorClass::Unprocessable,
        format!("A name has 1 to {MAX_ORGANIZATION_NAME_CHARS} characters in one line"),
    ))
}
