//! An invited stranger creates an account and joins the organization.

use domain::audit::AuditActor;
use domain::id::UserId;
use domain::user::administration::AdminChange;
use domain::user::organization::OrganizationChange;
use secrecy::SecretString;

use super::{LoginClient, NewSession, SignInService, check_new_password};
use crate::AppError;
use crate::identity::changes::{Origin, administer};
use crate::identity::organizations::find_valid_invitation;
use crate::identity::single_user::refuse_second_user;

impl SignInService {
    /// Creates the user with this password, makes them a member by the invitation of this link, and begins a session. A
    /// crash before the answer leaves a member who can sign in.
    pub async fn enrol(
        &self,
        origin: Origin,
        token: &str,
        (name, password): (&str, &SecretString),
        client: &LoginClient,
    ) -> Result<NewSession, AppError> {
        self.count_attempt(None, client.network)?;
        let (invitation, organization) =
            find_valid_invitation(self.organizations.as_ref(), token, self.clock.now()).await?;
        let user = UserId::parse(name).map_err(|_| {
            AppError::invalid("A name has 1 to 128 characters and no spaces: choose another one")
        })?;
        check_new_password(password)?;
        if let Some(rule) = self.single_user {
            refuse_second_user(rule, self.users.as_ref(), &user).await?;
        }
        let password = self.work.hash(password).await?;
        let change = AdminChange::Organization(OrganizationChange::Enrol {
            organization: organization.id,
            invitation: invitation.hash,
            user: user.clone(),
            password: password.clone(),
        });
        let origin = Origin {
            actor: AuditActor::User(user.clone()),
            ..origin
        };
        let (ids, now) = (self.ids.as_ref(), self.clock.now());
        administer(self.administration.as_ref(), &origin, ids, now, &change).await?;
        self.attempts.forgive(None, client.network);
        self.begin(origin, user, password, client).await
    }
}
