//! Organizations that users share: which one a request acts in, their members, and the invitations to join them.
//!
//! Each change is one transaction with its audit entry, in which the store authorizes the caller anew. A personal
//! organization has no rows; it is answered from the user's name.

mod invitation_mail;
mod members;
pub(super) mod texts;

use std::sync::Arc;

use domain::agent::spending::NanoUsd;
use domain::clock::{Clock, Timestamp};
use domain::error::{ErrorClass, StoreError};
use domain::id::{IdGenerator, InvitationId, OrganizationId, OwnerId, UserId};
use domain::user::administration::{AdminChange, AdministrationRepository};
use domain::user::identity::KeyHash;
use domain::user::organization::{
    INVITATION_TTL, Invitation, MAX_ORGANIZATION_NAME_CHARS, Organization, OrganizationChange,
    OrganizationDeletionRepository, OrganizationRepository, OrganizationUpdate,
};
use domain::user::permission::{MemberRole, Permission};
use domain::user::single_sign_on::IdentityRepository;
use secrecy::{ExposeSecret as _, SecretString};

pub use self::members::MemberView;
use self::texts::{INVITATION_REFUSED, organization_not_found};
use super::authenticate::AuthenticatedUser;
use super::changes::{CallerCaches, Origin, administer};
use super::mail::MailService;
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
    /// What all members together may spend on models in a calendar month.
    pub month_budget: Option<NanoUsd>,
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
    identities: Arc<dyn IdentityRepository>,
    deletions: Arc<dyn OrganizationDeletionRepository>,
    administration: Arc<dyn AdministrationRepository>,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdGenerator>,
    mail: Option<MailService>,
    caches: CallerCaches,
    reconciler: SandboxReconciler,
}

impl OrganizationService {
    pub(crate) fn new(
        ports: &Ports,
        mail: Option<MailService>,
        caches: CallerCaches,
        reconciler: SandboxReconciler,
    ) -> Self {
        Self {
            organizations: Arc::clone(&ports.organizations),
            identities: Arc::clone(&ports.identities),
            deletions: Arc::clone(&ports.organization_deletions),
            administration: Arc::clone(&ports.administration),
            clock: Arc::clone(&ports.clock),
            ids: Arc::clone(&ports.ids),
            mail,
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
            month_budget: None,
            created_at: self.clock.now(),
        };
        let change = OrganizationChange::Create {
            organization: organization.clone(),
            owner: owner.clone(),
        };
        self.administer(origin, change).await?;
        Ok(view(organization, MemberRole::Owner))
    }

    pub async fn update(
        &self,
        origin: &Origin,
        caller: &AuthenticatedUser,
        update: OrganizationUpdate,
    ) -> Result<OrganizationView, AppError> {
        let organization = shared(caller)?;
        let name = update.name.as_deref().map(checked_name).transpose()?;
        let change = OrganizationChange::Update {
            organization,
            update: OrganizationUpdate { name, ..update },
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
        month_budget: organization.month_budget,
    }
}

fn personal(user: &UserId) -> OrganizationView {
    OrganizationView {
        id: OrganizationId::personal(user),
        name: user.to_string(),
        is_personal: true,
        role: MemberRole::Owner,
        month_budget: None,
    }
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
