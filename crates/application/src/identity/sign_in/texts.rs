//! The texts of changes by which users sign in, for the audit log and for refusals.

use domain::error::{Entity, StoreError};
use domain::id::UserId;
use domain::user::sign_in::SignInChange;

use crate::AppError;

/// The text for a change that found no row.
pub(in crate::identity) fn not_found(change: &SignInChange) -> AppError {
    match change {
        SignInChange::EndSession { .. } => AppError::not_found("There is no such session"),
        SignInChange::CreateLink { link, .. } => {
            AppError::not_found(format!("There is no user {}", link.user))
        }
        SignInChange::UnlinkIdentity { .. } => {
            AppError::not_found("There is no such linked identity")
        }
        SignInChange::LinkIdentity { identity, .. } => {
            AppError::not_found(format!("There is no user {}", identity.user))
        }
        SignInChange::SetEmail { user, .. } => {
            AppError::not_found(format!("There is no user {user}"))
        }
        SignInChange::ConfirmDevice { .. }
        | SignInChange::DenyDevice { .. }
        | SignInChange::RedeemDevice { .. } => AppError::not_found("There is no such device login"),
        SignInChange::BeginSession { .. }
        | SignInChange::BeginIdentitySession { .. }
        | SignInChange::ChangePassword { .. }
        | SignInChange::RedeemLink { .. } => StoreError::NotFound {
            entity: Entity::User,
        }
        .into(),
    }
}

/// Object and detail of the audit entry.
pub(in crate::identity) fn describe(change: &SignInChange) -> (String, Option<String>) {
    let of_user = |user: &UserId, detail: &str| (format!("user:{user}"), Some(detail.to_owned()));
    match change {
        SignInChange::BeginSession { session, .. }
        | SignInChange::BeginIdentitySession { session, .. } => (
            format!("session:{}", session.id),
            Some(format!("login user:{}", session.user)),
        ),
        SignInChange::EndSession { id, user } => {
            (format!("session:{id}"), Some(format!("logout user:{user}")))
        }
        SignInChange::ChangePassword { user, .. } => of_user(user, "password changed"),
        SignInChange::LinkIdentity { identity, new_user } => {
            let new = new_user.map(|role| format!(" new user, role:{}", role.as_str()));
            let detail = format!(
                "linked to user:{}{}",
                identity.user,
                new.unwrap_or_default()
            );
            (format!("identity:{}", identity.id), Some(detail))
        }
        SignInChange::UnlinkIdentity { id, user, .. } => (
            format!("identity:{id}"),
            Some(format!("unlinked from user:{user}")),
        ),
        SignInChange::SetEmail { user, email } => {
            let is_set = email.is_some();
            of_user(
                user,
                if is_set {
                    "e-mail address set"
                } else {
                    "e-mail address removed"
                },
            )
        }
        SignInChange::ConfirmDevice { code, user } => {
            of_user(user, &format!("device login {code} confirmed"))
        }
        SignInChange::DenyDevice { code, user } => {
            of_user(user, &format!("device login {code} denied"))
        }
        SignInChange::RedeemDevice { key, .. } => (
            format!("key:{}", key.id),
            Some(format!("device login user:{}", key.user)),
        ),
        SignInChange::CreateLink { link, .. } => of_user(&link.user, "one-time link"),
        SignInChange::RedeemLink { user, .. } => of_user(user, "password set by link"),
    }
}
