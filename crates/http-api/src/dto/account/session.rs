//! Sessions and passwords on the wire. An addition: the reference has none of them.

use domain::clock::Timestamp;
use domain::id::SessionId;
use domain::user::sign_in::Session;
use secrecy::SecretString;

use crate::decode::model;
use crate::extract::NamedParam;

impl NamedParam for SessionId {
    const NAME: &'static str = "session_id";
}

/// A session of a browser.
#[model(response = Session, from(session: Session, current: Option<SessionId>))]
pub(crate) struct SessionDto {
    id: SessionId,
    /// The time of the login.
    created_at: Timestamp,
    /// When the session was last used, to the minute.
    last_seen_at: Timestamp,
    /// When the session ends, however much it is used.
    expires_at: Timestamp,
    /// The client's address at the login.
    address: Option<String>,
    /// The browser's description of itself at the login.
    user_agent: Option<String>,
    /// Whether this request belongs to the session.
    #[from(current == Some(session.id))]
    is_current: bool,
}

/// A change of the caller's password.
#[model(body = PasswordChange)]
pub(crate) struct PasswordChangeDto {
    /// The password until now.
    pub current_password: SecretString,
    /// 12 to 200 characters.
    #[schema(min_length = 12, max_length = 200)]
    pub new_password: SecretString,
}
