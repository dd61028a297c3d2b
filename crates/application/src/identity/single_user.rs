//! The single-user rule: sandboxes without isolation belong to one user, unless the operator accepts that users can
//! read each other's files and keys.

use domain::error::ErrorClass;
use domain::id::UserId;
use domain::user::identity::UserRepository;

use crate::ports::AuthMode;
use crate::{AppError, Inner};

const ADVICE: &str = "Run sandboxes in containers (WORKSPACE_SANDBOX__BACKEND=docker), or accept that users can read each \
     other's files and keys (WORKSPACE_PROCESS__ALLOW_MULTIPLE_USERS=true).";

pub async fn refuse_second_user(users: &dyn UserRepository, user: &UserId) -> Result<(), AppError> {
    match users.find_oldest().await? {
        Some(oldest) if oldest.id != *user => Err(AppError::conflict(format!(
            "Sandboxes are processes of one machine account, so this service accepts no second user. {ADVICE}"
        ))),
        _ => Ok(()),
    }
}

impl Inner {
    /// Refuses a second user where the rule applies.
    pub(crate) async fn refuse_second_user(&self, user: &UserId) -> Result<(), AppError> {
        if self.policy.single_user {
            refuse_second_user(self.ports.users.as_ref(), user).await?;
        }
        Ok(())
    }

    /// Only the first user starts sandboxes: an installation may have several users from before the rule applied.
    pub(crate) async fn refuse_second_owner(&self, owner: &UserId) -> Result<(), AppError> {
        // In open mode all requests belong to one user.
        if !self.policy.single_user || matches!(self.policy.auth, AuthMode::Open(_)) {
            return Ok(());
        }
        match self.ports.users.find_oldest().await? {
            Some(oldest) if oldest.id != *owner => Err(AppError::refused(
                ErrorClass::Forbidden,
                format!(
                    "Sandboxes are processes of one machine account, so only the first user of this service starts them. {ADVICE}"
                ),
            )),
            _ => Ok(()),
        }
    }
}
