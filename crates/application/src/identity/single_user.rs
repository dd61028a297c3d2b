//! The single-user rule: sandboxes without isolation belong to one user, unless the operator accepts that users can
//! read each other's files and keys.

use std::sync::Arc;

use domain::error::ErrorClass;
use domain::id::{OwnerId, UserId};
use domain::sandbox::SingleUserRule;
use domain::user::identity::UserRepository;

use crate::AppError;
use crate::policy::{AuthMode, Policy};
use crate::ports::Ports;

pub async fn refuse_second_user(
    rule: SingleUserRule,
    users: &dyn UserRepository,
    user: &UserId,
) -> Result<(), AppError> {
    let SingleUserRule { reason, advice } = rule;
    match users.find_oldest().await? {
        Some(oldest) if oldest.id != *user => Err(AppError::conflict(format!(
            "{reason}, so this service accepts no second user. {advice}"
        ))),
        _ => Ok(()),
    }
}

/// Checks users against the rule, where it applies.
#[derive(Clone)]
pub(crate) struct SingleUserCheck {
    users: Arc<dyn UserRepository>,
    rule: Option<SingleUserRule>,
    /// In open mode all requests belong to one user.
    is_open: bool,
}

impl SingleUserCheck {
    pub(crate) fn new(ports: &Ports, policy: &Policy) -> Self {
        Self {
            users: Arc::clone(&ports.users),
            rule: policy.single_user,
            is_open: matches!(policy.auth, AuthMode::Open(_)),
        }
    }

    /// For tests: any number of users.
    #[cfg(test)]
    pub(crate) fn unrestricted(users: Arc<dyn UserRepository>) -> Self {
        Self {
            users,
            rule: None,
            is_open: false,
        }
    }

    /// Refuses a second user.
    pub(crate) async fn check_new_user(&self, user: &UserId) -> Result<(), AppError> {
        match self.rule {
            Some(rule) => refuse_second_user(rule, self.users.as_ref(), user).await,
            None => Ok(()),
        }
    }

    /// Only the first user starts sandboxes: an installation may have several users from before the rule applied.
    pub(crate) async fn check_owner(&self, owner: &OwnerId) -> Result<(), AppError> {
        let Some(SingleUserRule { reason, advice }) = self.rule.filter(|_| !self.is_open) else {
            return Ok(());
        };
        match self.users.find_oldest().await? {
            Some(oldest) if oldest.id != owner.user() => Err(AppError::refused(
                ErrorClass::Forbidden,
                format!("{reason}, so only the first user of this service starts them. {advice}"),
            )),
            _ => Ok(()),
        }
    }
}
