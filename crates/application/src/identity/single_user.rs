//! The single-user rule: sandboxes without isolation belong to one user, unless the operator accepts that users can
//! read each other's files and keys.

use std::sync::Arc;

use domain::error::ErrorClass;
use domain::id::UserId;
use domain::user::identity::UserRepository;

use crate::AppError;
use crate::ports::{AuthMode, Policy, Ports};

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

/// The rule in this process.
#[derive(Clone)]
pub(crate) struct SingleUserRule {
    users: Arc<dyn UserRepository>,
    applies: bool,
    /// In open mode all requests belong to one user.
    is_open: bool,
}

impl SingleUserRule {
    pub(crate) fn new(ports: &Ports, policy: &Policy) -> Self {
        Self {
            users: Arc::clone(&ports.users),
            applies: policy.single_user,
            is_open: matches!(policy.auth, AuthMode::Open(_)),
        }
    }

    /// Refuses a second user where the rule applies.
    pub(crate) async fn check_new_user(&self, user: &UserId) -> Result<(), AppError> {
        if self.applies {
            refuse_second_user(self.users.as_ref(), user).await?;
        }
        Ok(())
    }

    /// Only the first user starts sandboxes: an installation may have several users from before the rule applied.
    pub(crate) async fn check_owner(&self, owner: &UserId) -> Result<(), AppError> {
        if !self.applies || self.is_open {
            return Ok(());
        }
        match self.users.find_oldest().await? {
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
