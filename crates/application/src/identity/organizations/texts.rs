//! What clients and the audit log read about changes of organizations.

use domain::error::{Entity, StoreError};
use domain::patch::Patch;
use domain::user::organization::{OrganizationChange, OrganizationUpdate};

use crate::AppError;

pub(super) const INVITATION_REFUSED: &str = "This invitation is not valid. It may have been used, withdrawn or have expired: ask for a new one.";

/// The text for a change that the store refused.
pub(in crate::identity) fn refusal(error: StoreError, change: &OrganizationChange) -> AppError {
    use OrganizationChange as Change;
    match (error, change) {
        (StoreError::NotFound { .. }, Change::AcceptInvitation { .. } | Change::Enrol { .. }) => {
            AppError::invalid(INVITATION_REFUSED)
        }
        (StoreError::NotFound { .. }, Change::WithdrawInvitation { .. }) => {
            AppError::not_found("This organization has no such invitation")
        }
        (
            StoreError::NotFound {
                entity: Entity::Member,
            },
            _,
        ) => member_not_found(),
        (
            StoreError::NotFound {
                entity: Entity::User,
            },
            Change::Create { owner, .. },
        ) => AppError::not_found(format!("There is no user {owner}")),
        (StoreError::NotFound { .. }, _) => organization_not_found(),
        (
            StoreError::Conflict {
                entity: Entity::User,
            },
            Change::Enrol { user, .. },
        ) => AppError::conflict(format!("User {user} already exists: choose another name")),
        (StoreError::Conflict { .. }, Change::AcceptInvitation { .. }) => {
            AppError::conflict("You are a member of this organization already")
        }
        (error, _) => error.into(),
    }
}

/// Object and detail of the audit entry.
pub(in crate::identity) fn describe(change: &OrganizationChange) -> (String, Option<String>) {
    use OrganizationChange as Change;
    let detail = match change {
        Change::Create { owner, .. } => Some(format!("owner:{owner}")),
        Change::Update { update, .. } => Some(changed(update)),
        Change::Delete { .. } => Some("deleted".to_owned()),
        Change::Invite { invitations, .. } => {
            let role = invitations.first().map_or("", |it| it.role.as_str());
            Some(format!("invitations:{} role:{role}", invitations.len()))
        }
        Change::WithdrawInvitation { id, .. } => Some(format!("invitation withdrawn:{id}")),
        Change::AcceptInvitation { user, .. } => Some(format!("joined user:{user}")),
        Change::Enrol { user, .. } => Some(format!("joined new user:{user}")),
        Change::SetMemberRole { user, role, .. } => {
            Some(format!("user:{user} role:{}", role.as_str()))
        }
        Change::RemoveMember { user, .. } => Some(format!("removed user:{user}")),
        Change::Switch { user, .. } => Some(format!("current of user:{user}")),
    };
    (format!("organization:{}", change.organization()), detail)
}

fn changed(update: &OrganizationUpdate) -> String {
    let name = update.name.as_ref().map(|_| "renamed".to_owned());
    let budget = match &update.month_budget {
        Patch::Keep => None,
        Patch::Set(budget) => Some(format!("month_budget:{}", budget.dollars())),
        Patch::Clear => Some("month_budget:none".to_owned()),
    };
    let all: Vec<String> = name.into_iter().chain(budget).collect();
    all.join(" ")
}

pub(super) fn organization_not_found() -> AppError {
    AppError::not_found("Organization not found")
}

pub(super) fn member_not_found() -> AppError {
    AppError::not_found("This organization has no such member")
}
