//! The single-user rule: sandboxes without isolation belong to one user, unless the operator accepts that users can
//! read each other's files and keys.

use domain::error::ErrorClass;
use domain::id::UserId;
use domain::sandbox::SingleUserRule;
use domain::user::identity::UserRepository;

use crate::ports::AuthMode;
use crate::{AppError, Inner};

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

impl Inner {
    /// Refuses a second user where the rule applies.
    pub(crate) async fn refuse_second_user(&self, user: &UserId) -> Result<(), AppError> {
        if let Some(rule) = self.policy.single_user {
            refuse_second_user(rule, self.ports.users.as_ref(), user).await?;
        }
        Ok(())
    }

    /// Only the first user starts sandboxes: an installation may have several users from before the rule applied.
    pub(crate) async fn refuse_second_owner(&self, owner: &UserId) -> Result<(), AppError> {
        // In open mode all requests belong to one user.
        let is_open = matches!(self.policy.auth, AuthMode::Open(_));
        let Some(SingleUserRule { reason, advice }) = self.policy.single_user.filter(|_| !is_open)
        else {
            return Ok(());
        };
        match self.ports.users.find_oldest().await? {
            Some(oldest) if oldest.id != *owner => Err(AppError::refused(
                ErrorClass::Forbidden,
                format!("{reason}, so only the first user of this service starts them. {advice}"),
            )),
            _ => Ok(()),
        }
    }
}
